"""Claims that an earlier binding has left with a pod that waits are freed, and only those."""

import asyncio
from types import SimpleNamespace

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim
from koordsched.cluster.state import ClusterState
from koordsched.plugins import CONTROLLERS
from koordsched.plugins.dynamicresources.leftclaims import LeftClaims
from tests.plugins.dynamicresources.deviceworld import (
    N1,
    allocated,
    claim,
    claiming,
    device_class,
    play,
    refusing,
    slice_of,
    special,
    wanting,
)
from tests.plugins.objects import container

GOING = {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["resource.kubernetes.io/delete-protection"]}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}}
PROFILE = "default-scheduler"
LARGE = [container(cpu="1000")]
"""Of a pod that fits on no node, but whose claim does not keep it from any."""


def playing(steps, pod, claims=None, fault=None):
    """With devices of which one was allocated before this scheduler started."""
    claims = claims or [claim(status=allocated("d0", users=["p"]))]
    controllers = {"DynamicResources": CONTROLLERS["DynamicResources"]}
    objects = N1, device_class(), slice_of("n1", "d0"), *claims, pod
    play(steps, *objects, controllers=controllers, fault=fault)


def users(there, name="c"):
    return [user["name"] for user in there.get(name)["status"].get("reservedFor", ())]


def devices(there, name="c"):
    allocation = there.get(name)["status"].get("allocation") or {"devices": {"results": []}}
    return [result["device"] for result in allocation["devices"]["results"]]


def test_the_devices_of_a_pod_that_has_no_place_come_free():
    async def steps(there):
        await asyncio.sleep(5)
        assert (users(there), devices(there)) == (["p"], ["d0"]), "a binding that was sent may still arrive"
        await asyncio.sleep(10)
        assert (users(there), devices(there)) == ([], [])
        there.embedded.insert(claim("c2"))
        there.embedded.insert(claiming("q", "c2"))
        await asyncio.sleep(5)
        assert there.where("q") == "n1"

    playing(steps, claiming("p", "c", containers=LARGE))


def test_a_claim_for_extended_resources_is_deleted():
    async def steps(there):
        await asyncio.sleep(5)
        assert devices(there, "left") == ["d0"]
        await asyncio.sleep(10)
        assert there.claims() == []

    playing(steps, wanting("p"), [special("left", owner="p", status=allocated("d0", users=["p"]))])


def test_a_claim_that_goes_is_released_so_that_it_can():
    async def steps(there):
        await asyncio.sleep(15)
        assert users(there) == []

    playing(steps, claiming("p", "c"), [claim(status=allocated("d0", users=["p"]), **GOING)])


def test_others_that_use_it_keep_it_and_its_devices():
    async def steps(there):
        await asyncio.sleep(30)
        assert (users(there), devices(there)) == (["other"], ["d0"])

    playing(steps, claiming("p", "c", containers=LARGE), [claim(status=allocated("d0", users=["other", "p"]))])


def test_an_idle_allocation_is_freed_if_the_claim_was_made_for_the_pod():
    async def steps(there):
        await asyncio.sleep(15)
        assert (devices(there), devices(there, "own")) == (["d0"], [])

    claims = [claim(status=allocated("d0")), claim("own", owner="p", status=allocated("d1"))]
    playing(steps, claiming("p", "c", "own", containers=LARGE), claims)


@pytest.mark.parametrize(
    "pod",
    [
        claiming("p", "c", on="n1"),
        claiming("p", "c", schedulerName="another"),
        claiming("q", "c", containers=LARGE),
    ],
    ids=["on a node", "of another scheduler", "of another name"],
)
def test_claims_of_other_pods_are_left_alone(pod):
    async def steps(there):
        await asyncio.sleep(30)
        assert (users(there), devices(there)) == (["p"], ["d0"])

    playing(steps, pod)


def test_a_pod_that_is_bound_meanwhile_keeps_it():
    """Its binding was under way when this replica took over."""

    async def steps(there):
        await asyncio.sleep(5)
        path = "/api/v1/namespaces/default/pods/p/binding"
        assert (await there.embedded.call("POST", path, BINDING))[0] == 201
        await asyncio.sleep(30)
        assert (users(there), devices(there)) == (["p"], ["d0"])

    playing(steps, claiming("p", "c", containers=LARGE))


def test_a_pod_that_finds_its_place_keeps_it():
    async def steps(there):
        await asyncio.sleep(30)
        assert (there.where("p"), users(there)) == ("n1", ["p"])
        assert there.of_claims() == []

    playing(steps, claiming("p", "c"))


def test_a_pod_that_is_being_bound_keeps_it():
    async def steps(there):
        await asyncio.sleep(30)
        assert (there.where("p"), users(there)) == (None, ["p"])
        await asyncio.sleep(30)
        assert (there.where("p"), users(there)) == ("n1", ["p"])

    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(50)
        return await proceed()

    # Nothing is written about it meanwhile, so no watch says where it is to go.
    playing(steps, {**claiming("p", "c"), "status": {"nominatedNodeName": "n1"}}, fault=slow)


def test_the_newest_version_of_a_pod_counts_when_its_binding_has_failed():
    """An older one was placed. Of a claim of a template, the pod's status has the name."""
    cluster, taken = ClusterState(), []
    cluster.upsert_node(convert(N1, core.Node))
    claims = {name: convert(claim(name, status=allocated("d0", users=["p"])), ResourceClaim) for name in ("c1", "c2")}
    books = SimpleNamespace(
        served=None,
        claims=SimpleNamespace(get=lambda namespace, name: claims.get(name)),
        special_claims=SimpleNamespace(of=lambda pod: None),
    )
    binding = SimpleNamespace(take_back=lambda pod, due: taken.extend(each.metadata.name for each in due))
    plugin, handle = SimpleNamespace(books=books, binding=binding), SimpleNamespace(cluster=cluster, profiles={PROFILE})
    left = LeftClaims(plugin, None, handle)

    def version(name):
        statuses = [{"name": "e0", "resourceClaimName": name}]
        wire = {**claiming("p", ("e0", None), schedulerName=PROFILE), "status": {"resourceClaimStatuses": statuses}}
        return cluster.pods.build(convert(wire, core.Pod))

    placed = version("c1")
    cluster.pod_seen(placed)
    cluster.assume(placed, 0)
    cluster.pod_seen(version("c2"))
    assert asyncio.run(left.look(set())) == set()
    cluster.forget(placed)
    asyncio.run(left.look(asyncio.run(left.look(set()))))
    assert taken == ["c2"]


def test_claims_of_a_pod_that_is_gone_are_left_to_their_controller():
    async def steps(there):
        await asyncio.sleep(5)
        await there.embedded.call("DELETE", "/api/v1/namespaces/default/pods/p", {"gracePeriodSeconds": 0})
        await asyncio.sleep(30)
        assert (users(there), devices(there)) == (["p"], ["d0"])

    playing(steps, claiming("p", "c", containers=LARGE))


def test_pods_without_claims_do_not_matter_where_classes_stand_for_no_resources(caplog):
    async def steps(there):
        await asyncio.sleep(15)
        assert there.where("p") == "n1"

    controllers = {"DynamicResources": CONTROLLERS["DynamicResources"]}
    play(steps, N1, claiming("p"), controllers=controllers, gates=("DRAExtendedResource=false",))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_it_is_freed_at_a_later_look_if_that_fails():
    async def steps(there):
        await asyncio.sleep(15)
        assert users(there) == ["p"]
        await asyncio.sleep(10)
        assert users(there) == []

    fault = refusing(500, "not now", method="PATCH", path="/resourceclaims/c/status")
    playing(steps, claiming("p", "c", containers=LARGE), fault=fault)
