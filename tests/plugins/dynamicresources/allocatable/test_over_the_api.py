"""Devices that take something of their nodes, played over the API (dra spec 3.11)."""

import asyncio

import pytest
from msgspec import convert

from koordsched.api import core
from koordsched.api.resource import ResourceSlice
from koordsched.plugins.dynamicresources.allocatable import MappedDevices
from koordsched.scheduling.snapshot import pod_object
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    allocated,
    claim,
    claiming,
    device_class,
    play,
    refusing,
    slice_of,
)
from tests.plugins.objects import container, node, pod

GATES = ("DRANodeAllocatableResources=true",)
STATUS = "nodeAllocatableResourceClaimStatuses"


def taking(name="d0", key=None, **amounts):
    """A device that takes so much of each resource; `key`: of what is consumed of this capacity."""
    mapped = {resource: {"allocationMultiplier": amount} for resource, amount in amounts.items()}
    if key is not None:
        for mapping in mapped.values():
            mapping["capacityKey"] = key
    return name, {"nodeAllocatableResourceMappings": mapped}


def user_of(name, *entries, cpu="100m", **more):
    """A container that uses claims of these entries of its pod."""
    made = container(name=name, cpu=cpu, **more)
    made["resources"]["claims"] = [{"name": entry} for entry in entries]
    return made


def using(name, *claims, cpu="100m", **more):
    """A pod whose only container uses all its claims."""
    entries = [f"e{at}" for at in range(len(claims))]
    return claiming(name, *claims, containers=[user_of("m", *entries, cpu=cpu)], **more)


async def gone(there, name):
    """Deletes a pod at once."""
    await there.embedded.call("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})


def shown(there, name):
    return there.embedded.get("Pod", name)["status"].get(STATUS)


def requested(there, resource=0, row=0):
    return int(there.running.scheduler.cluster.table.requested[resource].data[row])


def refusal(*objects, gates=GATES, pods=None):
    """What is said of pod p, which stays without a node."""
    said = []

    async def steps(there):
        there.embedded.insert(pods or using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") is None
        said.append(there.message("p"))

    play(steps, *objects, gates=gates)
    return said[0]


def test_what_devices_take_is_in_the_status_and_counts():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        resources = {"cpu": "3", "memory": "2Gi"}
        assert shown(there, "p") == [{"resourceClaimName": "c", "containers": ["m"], "resources": resources}]
        assert (requested(there), requested(there, 1)) == (3100, 2 << 30)
        # A pod without claims finds what is left.
        there.embedded.insert(pod("q", container(cpu="1")))
        await asyncio.sleep(3)
        assert there.where("q") is None
        assert "1 Insufficient cpu" in there.message("q")
        await gone(there, "p")
        await asyncio.sleep(3)
        assert there.where("q") == "n1"
        assert requested(there) == 1000

    devices = [taking("d0", cpu="1500m", memory="1Gi"), taking("d1", cpu="1500m", memory="1Gi")]
    play(steps, N1, device_class(), slice_of("n1", *devices), claim(count=2), gates=GATES)


@pytest.mark.parametrize("amounts", [{}, {"cpu": "1"}], ids=["nothing is taken now", "less is taken now"])
def test_what_an_earlier_attempt_has_shown_goes(amounts):
    async def steps(there):
        left = [{"resourceClaimName": "c", "containers": ["m"], "resources": {"cpu": "60"}}]
        waiting = using("p", "c")
        there.embedded.insert({**waiting, "status": {**waiting.get("status", {}), STATUS: left}})
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        now = [{"resourceClaimName": "c", "containers": ["m"], "resources": amounts}] if amounts else None
        assert shown(there, "p") == now
        assert requested(there) == (1100 if amounts else 100)
        assert len([write for write in there.writes if STATUS in str(write.body)]) == 1

    play(steps, N1, device_class(), slice_of("n1", taking(**amounts)), claim(), gates=GATES)


def test_off_by_default():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        assert shown(there, "p") is None
        assert requested(there) == 100

    play(steps, N1, device_class(), slice_of("n1", taking(cpu="64")), claim())


def test_what_is_consumed_of_a_capacity_is_multiplied():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert shown(there, "p")[0]["resources"] == {"cpu": "3"}
        assert requested(there) == 3100

    name, more = taking(key="cores", cpu="2")
    device = name, {**more, "allowMultipleAllocations": True, "capacity": {"cores": {"value": "8"}}}
    wants = claim()
    wants["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"cores": "1500m"}}
    play(steps, N1, device_class(), slice_of("n1", device), wants, gates=GATES)


def test_a_share_of_a_device_that_is_not_shared_is_an_error():
    name, more = taking(key="cores", cpu="2")
    text = refusal(N1, device_class(), slice_of("n1", (name, {**more, "capacity": {"cores": {"value": "8"}}})), claim())
    assert text.endswith(
        "claim default/c, device d0: ConsumedCapacity is nil, but Capacity key 'cores' is set in "
        "NodeAllocatableResourceMappings for resource cpu"
    )


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi"])
def test_a_node_that_is_too_small(resource):
    name, device = taking(**{resource: "100Gi"})
    text = refusal(
        node("n1", **{"ephemeral-storage": "1Gi", "hugepages-2Mi": "1Gi"}),
        device_class(),
        slice_of("n1", (name, device)),
        claim(),
    )
    assert f"0/1 nodes are available: 1 Insufficient {resource}." in text
    assert "Preemption is not helpful" in text


def test_all_shortages_of_a_node_are_named_in_order():
    text = refusal(
        N1, device_class(), slice_of("n1", taking(cpu="9", memory="90Gi", **{"hugepages-1Gi": "1Gi"})), claim()
    )
    assert "1 Insufficient cpu, 1 Insufficient hugepages-1Gi, 1 Insufficient memory" in text


def test_the_node_with_room_is_taken():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n2"

    slices = [slice_of(name, taking(cpu="5")) for name in ("n1", "n2", "n3")]
    play(steps, N1, node("n2", cpu="8"), node("n3"), device_class(), *slices, claim(), gates=GATES)


def test_a_pod_of_lower_priority_makes_room():
    async def steps(there):
        there.embedded.insert(pod("low", container(cpu="2")))
        await asyncio.sleep(3)
        there.embedded.insert(using("p", "c", priority=10))
        await asyncio.sleep(3)
        assert "Preempted by pod uid-default-p on node n1" in there.notes()
        assert there.embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "n1"
        await gone(there, "low")
        await asyncio.sleep(3)
        assert there.where("p") == "n1"

    play(steps, N1, device_class(), slice_of("n1", taking(cpu="3")), claim(), gates=GATES)


def test_a_pod_waits_until_another_leaves():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert "1 Insufficient cpu" in there.message("p")
        await gone(there, "there")
        await asyncio.sleep(3)
        assert there.where("p") == "n1"

    other = pod("there", container(cpu="2"), on="n1")
    play(steps, N1, other, device_class(), slice_of("n1", taking(cpu="3")), claim(), gates=GATES)


def test_a_claim_that_no_container_uses():
    text = refusal(N1, device_class(), slice_of("n1", taking(cpu="1")), claim(), pods=claiming("p", "c"))
    assert "1 claim c: node-allocatable resource claim not referenced by any container within the pod" in text


def test_the_request_of_the_whole_pod_is_too_small():
    whole = using("p", "c", resources={"requests": {"cpu": "1"}})
    text = refusal(N1, device_class(), slice_of("n1", taking(cpu="1")), claim(), pods=whole)
    wanted = "1 pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA"
    assert wanted in text


def test_the_request_of_the_whole_pod_includes_what_devices_take():
    async def steps(there):
        there.embedded.insert(using("p", "c", resources={"requests": {"cpu": "1100m"}}))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        assert requested(there) == 1100

    play(steps, N1, device_class(), slice_of("n1", taking(cpu="1")), claim(), gates=GATES)


def placed(name, **resources):
    """A pod on n1 that has the claim c, by its status."""
    there = using(name, "c", on="n1")
    there["status"] = {STATUS: [{"resourceClaimName": "c", "containers": ["m"], "resources": resources}]}
    return there


@pytest.mark.parametrize(
    ("others", "text"),
    [
        (["a"], "node allocatable resource claim c is already used by another pod"),
        (["a", "b"], "node allocatable resource claim c shared by multiple pods"),
    ],
)
def test_a_claim_that_other_pods_have(others, text):
    pods = [placed(name, cpu="1") for name in others]
    owned = claim(status=allocated("d0", users=others))
    assert f"1 {text}." in refusal(N1, device_class(), slice_of("n1", taking(cpu="1")), *pods, owned)


@pytest.mark.parametrize("node_first", [True, False])
def test_after_a_restart_statuses_count(node_first):
    async def steps(there):
        await asyncio.sleep(1)
        if not node_first:
            there.embedded.insert(N1)
            await asyncio.sleep(1)
        assert requested(there) == 3100

    owned = claim(status=allocated("d0", users=["a"]))
    nodes = [N1] if node_first else []
    play(steps, *nodes, placed("a", cpu="3"), device_class(), slice_of("n1", taking(cpu="3")), owned, gates=GATES)


def test_a_claim_that_is_allocated_already_counts():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        assert shown(there, "p")[0]["resources"] == {"cpu": "3"}
        assert requested(there) == 3100

    play(steps, N1, device_class(), slice_of("n1", taking(cpu="3")), claim(status=allocated("d0")), gates=GATES)


@pytest.mark.parametrize(
    ("share", "resources"),
    [
        ({"consumedCapacity": {"cores": "2"}}, {"cpu": "6"}),
        ({"shareID": "s", "consumedCapacity": {"cores": "1"}}, {"cpu": "3"}),
        ({"shareID": "s"}, None),
    ],
    ids=["without an ID", "with both", "nothing is consumed"],
)
def test_of_an_allocated_claim_what_is_consumed_of_a_capacity_counts(share, resources):
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        assert there.where("p") == "n1"
        assert [each["resources"] for each in shown(there, "p") or ()] == ([resources] if resources else [])

    name, more = taking(key="cores", cpu="3")
    device = name, {**more, "allowMultipleAllocations": True, "capacity": {"cores": {"value": "8"}}}
    owned = claim(status=allocated("d0", **share))
    play(steps, node("n1", cpu="16"), device_class(), slice_of("n1", device), owned, gates=GATES)


def test_a_binding_fails_and_the_status_is_cleared():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(0.5)
        assert there.where("p") is None
        patches = [w.body["status"][STATUS] for w in there.writes if STATUS in w.body.get("status", {})]
        assert [bool(each) for each in patches] == [True, False]
        assert shown(there, "p") is None
        assert requested(there) == 0
        await asyncio.sleep(5)
        assert there.where("p") == "n1"
        assert shown(there, "p")[0]["resources"] == {"cpu": "3"}
        assert requested(there) == 3100

    play(
        steps,
        N1,
        device_class(),
        slice_of("n1", taking(cpu="3")),
        claim(),
        gates=GATES,
        fault=refusing(500, "no"),
    )


def test_the_status_cannot_be_written():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(0.5)
        assert "updating pod default/p NodeAllocatableResourceClaimStatuses: " in there.message("p")
        assert requested(there) == 0

    refused = refusing(403, "no", method="PATCH", path="pods/p/status", reason="Forbidden")

    async def fault(call, proceed):
        return await (refused(call, proceed) if STATUS.encode() in (call.body or b"") else proceed())

    play(steps, N1, device_class(), slice_of("n1", taking(cpu="3")), claim(), gates=GATES, fault=fault)


def test_devices_of_the_old_generation_are_not_looked_at():
    devices = MappedDevices()
    old, new = (_slice(generation, cpu) for generation, cpu in ((1, "1"), (2, "2")))
    devices.slice_changed(None, new)
    devices.slice_changed(None, old)
    assert devices.of("drv", "n1", "d0")["cpu"].allocation_multiplier == "2"
    devices.slice_changed(new, None)
    assert devices.of("drv", "n1", "d0")["cpu"].allocation_multiplier == "1"
    devices.slice_changed(old, None)
    assert devices.of("drv", "n1", "d0") == {}


def _slice(generation, cpu):
    made = slice_of("n1", taking(cpu=cpu), name=f"s{generation}")
    made["spec"]["pool"]["generation"] = generation
    return convert(made, ResourceSlice)


def test_a_snapshot_shows_what_devices_take_once():
    async def steps(there):
        there.embedded.insert(using("p", "c"))
        await asyncio.sleep(3)
        cluster = there.running.scheduler.cluster
        placed_pod = cluster.assigned["uid-default-p"]
        names = cluster.table.resource_names.names
        made = pod_object(placed_pod, names, {}, cluster.pod_facts.status(placed_pod))
        again = cluster.pods.build(convert(made, core.Pod))
        assert again.requests.amounts == placed_pod.requests.amounts == ((0, 3100), (1, 1 << 30))
        assert again.facts == placed_pod.facts

    devices = [taking(cpu="3", memory="1Gi")]
    play(steps, N1, device_class(), slice_of("n1", *devices), claim(), gates=GATES)
