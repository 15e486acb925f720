"""What differs from upstream on purpose (docs/deviations.md), where no other test shows it."""

import asyncio
import json

import pytest

from koordsched.queue.hints import QueueingHint
from tests.plugins.deviceshare.machines import (
    GIB,
    bound,
    device,
    g8,
    gpu,
    m2,
    nic,
    node,
    pod,
    used,
    used_nic,
)
from tests.plugins.deviceshare.naive.request import ALLOCATED, CORE, HINT, MEMORY, RATIO
from tests.plugins.deviceshare.world import DEVICES, World, configuration, profile
from tests.plugins.nodenumaresource.running import cluster, events_about
from tests.virtualtime import run

TOO_FEW = (DEVICES, "Unschedulable", "Insufficient gpu devices")
INVALID = (DEVICES, "UnschedulableAndUnresolvable")
ISOLATION = "koordinator.sh/gpu-isolation-provider"
IMPROVED = {"improvedAllocation": True}
ANY_FUNCTION = {"rdma": {"vfSelector": {}}}
TEMPLATES = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "koordinator-system", "name": "gpu-shared-resource-templates"},
    "data": {"data.yaml": "nvidia-M2: [half"},
}


def without(thing, *fields):
    return {name: value for name, value in thing.items() if name not in fields}


def problems(world):
    """What is wrong with the Device of the node."""
    return world.plugin.nodes.of_node("n").reading.problems


# --- reports --------------------------------------------------------------------------------------------


def test_a_node_without_a_device_is_left_to_the_kubelet_again_when_its_last_holder_is_gone():
    holder, wanted = bound(pod(gpu=100), "holder", gpu=[(0, {"core": 100, "ratio": 100})]), pod(gpu=100)
    world = World(node(), holder)
    assert world.verdicts(wanted) == {"n": TOO_FEW}
    world.remove(holder)
    assert world.verdicts(wanted) == {"n": ()}


def test_a_device_without_number_is_number_0():
    world = World(node(), device(without(gpu(3), "minor"), gpu(1)))
    assert problems(world) == ("devices[0]: a gpu without minor counts as minor 0",)
    assert world.place(pod(gpu=200)) == {"gpu": [0, 1]}


def test_of_two_devices_of_one_number_the_last_counts():
    world = World(node(), device(gpu(0, "8Gi"), gpu(0, "16Gi")))
    assert problems(world) == ("devices[1]: gpu 0 occurs twice: the last one counts",)
    assert world.verdicts(pod(memory=12 * GIB)) == {"n": ()}


def test_devices_of_numbers_from_128_on_are_left_out():
    holder = bound(pod(gpu=100), "holder", gpu=[(128, {"core": 100, "ratio": 100})])
    world = World(node(), device(gpu(128), gpu(127), gpu(-1)), holder)
    assert problems(world) == (
        "devices[0]: gpu 128 is ignored: minors are 0 to 127",
        "devices[2]: gpu -1 is ignored: minors are 0 to 127",
    )
    assert world.verdicts(pod(gpu=200)) == {"n": TOO_FEW}
    assert world.place(pod(gpu=100)) == {"gpu": [127]}


def test_what_cannot_be_read_harms_its_own_part_alone():
    odd = gpu(0, **{CORE: "a lot", MEMORY: "80Gi", RATIO: "-100"})
    world = World(node(), device(odd, {"type": "tpu", "minor": 0, "health": True}, gpu(1)))
    assert [text.partition(": ")[0] for text in problems(world)] == ["devices[0]", "devices[1]"]
    assert world.verdicts(pod(gpu=200)) == {"n": TOO_FEW}
    assert world.place(pod(gpu=100)) == {"gpu": [1]}


def test_what_is_wrong_is_said_to_its_owner():
    """Upstream logs it."""

    async def main():
        broken = device(gpu(0), without(gpu(1), "minor"), labels={"a": "1"})
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
        document = configuration(profile(numa=False))
        async with cluster(node(), broken, namespace, TEMPLATES, document=document) as (embedded, _):
            await asyncio.sleep(5)
            texts = "a gpu without minor counts as minor 0", "gpu 0 occurs twice: the last one counts"
            said = "; ".join(f"devices[1]: {text}" for text in texts)
            assert events_about(embedded, "Device", "n", "InvalidDevice") == [said]
            name, reason = "gpu-shared-resource-templates", "InvalidGPUSharedResourceTemplates"
            (said,) = events_about(embedded, "ConfigMap", name, reason)
            assert said.startswith("data.yaml: ")

    run(main())


def test_a_deleted_device_leaves_devices_that_are_unhealthy_until_a_restart():
    things = m2()
    world = World(*things)
    world.remove(things[1])
    assert world.verdicts(pod(gpu=100)) == {"n": TOO_FEW}
    assert World(things[0]).verdicts(pod(gpu=100)) == {"n": ()}
    world.put(things[1])
    assert world.verdicts(pod(gpu=100)) == {"n": ()}


# --- requests ---------------------------------------------------------------------------------------------


def test_messages_name_resources_and_types_in_one_order():
    names = {"ratio": 50, "core": 50, "memory": 1}
    texts = set()
    for order in (names, dict(reversed(names.items()))):
        texts |= {said[2] for said in World(*m2()).verdicts(pod(**order)).values()}
    assert texts == {f"invalid resource device requests: [{CORE} {MEMORY} {RATIO}]"}
    world = World(node(), device(gpu(0), nic(0)), used(0), used_nic(0))
    for order in ({"rdma": 100, "gpu": 100}, {"gpu": 100, "rdma": 100}):
        assert world.verdicts(pod(**order)) == {"n": TOO_FEW}


def test_a_type_that_is_named_twice_is_one():
    """Upstream gives the pod the first type twice."""
    world = World(*g8())
    twice = {"deviceTypes": ["gpu", "rdma", "rdma", "gpu"], "requiredScope": "SamePCIe"}
    assert world.place(pod(gpu=100, rdma=1, joint=twice)) == {"gpu": [0], "rdma": [1]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"gpu": {"selector": 5}}, "Expected `object | null`, got `int` - at `$[...].selector`"),
        ({"gpu": {"allocateStrategy": ["all"]}}, "Expected `str`, got `array` - at `$[...].allocateStrategy`"),
    ],
)
def test_wrong_types_within_a_structure_are_named_by_their_path(value, text):
    said = World(*m2()).verdicts(pod(gpu=100, annotations={HINT: json.dumps(value)}))
    assert said == {"n": (*INVALID, f"invalid DeviceAllocateHint annotation, err: {text}")}


def test_an_allocation_from_an_attempt_in_vain_is_taken_away():
    """Upstream leaves it, and the pod counts with devices that it was not given."""
    stale = json.dumps({"gpu": [{"minor": 0, "resources": {CORE: "100"}}]})
    assert World(node()).written(pod(annotations={ALLOCATED: stale}))[ALLOCATED] is None
    assert World(node()).written(pod(gpu=100, annotations={ALLOCATED: stale}))[ALLOCATED] is None


# --- preemption and waking ----------------------------------------------------------------------------------


def test_virtual_functions_of_victims_count_as_free():
    """Upstream does not give them back in dry runs: it finds no victims."""
    held = {"minor": 1, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "0000:11:00.2"}]}}
    holder = bound(pod(priority=0, rdma=1), "holder")
    holder["metadata"]["annotations"][ALLOCATED] = json.dumps({"rdma": [held]})
    world = World(node(), device(nic(1, functions=1)), holder)
    wanted = pod(rdma=1, hints=ANY_FUNCTION)
    assert world.verdicts(wanted) == {"n": (DEVICES, "Unschedulable", "Insufficient rdma devices")}
    explanation = world.explain(wanted)
    assert (explanation.nominated_node, explanation.victims) == ("n", ["default/holder"])


def test_a_pod_is_tried_again_where_an_event_lets_it_in_and_only_there():
    """Upstream tries it after every deleted pod and every changed Device."""
    roomy, full = used(0, share=40, memory="8Gi", priority=500), used(0, node="m", memory="8Gi", priority=500)
    sick = [node("m"), device(gpu(0, "8Gi"), gpu(1, "8Gi", health=False), name="m")]
    world = World(node(), device(gpu(0, "8Gi")), roomy, *sick, full)
    by_event = {each.event.label: each.fn for each in world.plugin.events_to_register()}
    devices, left = (next(fn for label, fn in by_event.items() if word in label) for word in ("Devices", "Pod"))
    waiting = world.pod(pod(gpu=100, priority=0))

    def after_leaving(holder):
        gone = world.pod(holder)
        world.remove(holder)
        found = left(waiting, gone, None)
        world.put(holder)
        return found

    small = used(0, node="m", share=10, memory="8Gi")
    world.put({**small, "metadata": {**small["metadata"], "name": "small", "uid": "small"}})
    assert after_leaving(full) is QueueingHint.SKIP  # the small one is still there
    assert after_leaving(roomy) is QueueingHint.QUEUE
    assert devices(waiting, None, world.row("m")) is QueueingHint.SKIP
    world.put(device(gpu(0, "8Gi"), gpu(1, "8Gi"), name="m"))
    assert devices(waiting, None, world.row("m")) is QueueingHint.QUEUE
    assert devices(waiting, None, world.row("n")) is QueueingHint.SKIP


# --- the switch `improvedAllocation` --------------------------------------------------------------------------


@pytest.mark.parametrize(("args", "code"), [({}, "Error"), (IMPROVED, "Unschedulable")])
def test_a_node_without_the_isolation_of_the_pod(args, code):
    def isolated(name, **labels):
        return [node(name, labels), device(gpu(0, "8Gi"), name=name)]

    world = World(*isolated("n"), *isolated("m", **{ISOLATION: "HAMi-core"}), args=args)
    wanted = pod(core=50, ratio=50, labels={ISOLATION: "HAMi-core"})
    text = "GPUIsolationProviderHAMICore not found on the node"
    assert world.verdicts(wanted) == {"n": (DEVICES, code, text), "m": ()}
    explanation = world.explain(wanted)
    assert explanation.any_of == (["m"] if args else [])
    assert (explanation.reason == "SchedulerError") is not bool(args)


@pytest.mark.parametrize(("args", "minors"), [({}, [2, 3]), (IMPROVED, [3, 4])])
def test_switches_that_a_pod_has_for_itself(args, minors):
    """Two NICs on each switch; one of the first two holds a pod."""
    cards = [nic(n, place=(str((n - 1) // 2), 0)) for n in range(1, 7)]
    world = World(node(), device(*cards), used_nic(1), args=args)
    hints = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "PCIeLevel"}}
    assert world.place(pod(rdma=2, hints=hints), keep=False) == {"rdma": minors}
    verdict = world.verdicts(pod("five", rdma=5, hints=hints))["n"]
    assert verdict == ((DEVICES, "Unschedulable", "Insufficient rdma devices") if args else ())


@pytest.mark.parametrize("scope", ["SamePCIe", ""])
def test_joint_allocations_are_looked_for_on_all_switches(scope):
    """GPU 0 is used, so GPU 1 comes first; the NIC of its switch is taken."""
    wanted = pod(gpu=100, rdma=100, joint={"deviceTypes": ["gpu", "rdma"], "requiredScope": scope})
    things = [*g8(), used(0), used_nic(1)]
    world = World(*things)
    if scope:
        rules = "node(s) Device Joint-Allocate rules violation"
        assert world.verdicts(wanted) == {"n": (DEVICES, "Unschedulable", rules)}
    else:
        assert world.place(wanted) == {"gpu": [1], "rdma": [2]}
    world = World(*things, args=IMPROVED)
    assert world.place(wanted) == ({"gpu": [2], "rdma": [2]} if scope else {"gpu": [1], "rdma": [2]})


@pytest.mark.parametrize("args", [{}, IMPROVED])
def test_memory_and_its_share_count_both(args):
    """24Gi of which 10, 10 and 4 are given: 98 % by rounded shares."""
    parts = [(10, 41), (10, 41), (4, 16)]
    holders = [
        bound(pod(memory=size * GIB), f"part-{n}", gpu=[(0, {"memory": size * GIB, "ratio": share})])
        for n, (size, share) in enumerate(parts)
    ]
    world = World(node(), device(gpu(0, "24Gi")), *holders, args=args)
    assert world.verdicts(pod(ratio=2)) == {"n": TOO_FEW if args else ()}
