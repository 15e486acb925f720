"""Requests and nodes by the old names of resources: every plugin goes by the new ones."""

import json

import pytest

from tests.plugins.deviceshare.machines import device, gpu, m2, node, pod
from tests.plugins.deviceshare.naive.request import GPU, RATIO
from tests.plugins.deviceshare.world import ALLOCATED, World

OLD, OLD_CORE, OLD_RATIO = "kubernetes.io/gpu", "kubernetes.io/gpu-core", "kubernetes.io/gpu-memory-ratio"
CORE = "koordinator.sh/gpu-core"


def offering(**more):
    made = node()
    sizes = {**made["status"]["allocatable"], **{name.replace("__", "/"): n for name, n in more.items()}}
    return {**made, "status": {**made["status"], "allocatable": sizes, "capacity": sizes}}


def asking(*containers, init=(), overhead=None, name="p"):
    """A pod whose containers ask for these resources."""
    made = pod(name)

    def listed(requests, at):
        return {"name": f"c{at}", "image": "app", "resources": {"requests": requests, "limits": requests}}

    spec = {**made["spec"], "containers": [listed(requests, at) for at, requests in enumerate(containers)]}
    if init:
        spec["initContainers"] = [listed(requests, at + 9) for at, requests in enumerate(init)]
    if overhead:
        spec["overhead"] = overhead
    return {**made, "spec": spec}


def nodes(core="200"):
    return [offering(**{"koordinator.sh__gpu-core": core, "koordinator.sh__gpu-memory-ratio": "200"}), m2()[1]]


HALF = {OLD_CORE: "50", OLD_RATIO: "50"}


def test_nodes_need_not_offer_the_old_names():
    world = World(*nodes(), fit=True)
    assert world.verdicts(asking(HALF)) == {"n": ()}
    assert world.place(asking(HALF)) == {"gpu": [0]}


def test_the_sums_of_a_node_count_pods_of_both_names():
    world = World(*nodes(core="90"), fit=True)
    assert world.place(asking(HALF, name="first")) == {"gpu": [0]}
    refused = ("NodeResourcesFit", "Unschedulable", f"Insufficient {CORE}")
    assert world.verdicts(asking(HALF)) == {"n": refused}
    assert world.verdicts(asking({CORE: "50", RATIO: "50"}, name="new")) == {"n": refused}
    assert world.verdicts(asking({CORE: "40", RATIO: "40"}, name="less")) == {"n": ()}


@pytest.mark.parametrize(("offered", "passes"), [({"kubernetes.io__gpu": "100"}, True), ({}, False)])
def test_what_a_node_offers_by_an_old_name(offered, passes):
    world = World(offering(**offered), m2()[1], fit=True)
    assert (world.verdicts(asking({GPU: "100"}))["n"] == ()) is passes
    world.put(offering(koordinator__sh="0", **{"koordinator.sh__gpu": "100"}))
    assert world.verdicts(asking({GPU: "100"}))["n"] == ()


def test_a_node_that_offers_both_keeps_both():
    world = World(offering(**{"kubernetes.io__gpu": "200", "koordinator.sh__gpu": "100"}), m2()[1], fit=True)
    assert world.verdicts(asking({OLD: "200"}))["n"][2:] == ("Insufficient koordinator.sh/gpu",)
    assert world.verdicts(asking({OLD: "100"}, name="q"))["n"] == ()


@pytest.mark.parametrize(
    ("containers", "init", "overhead", "given"),
    [
        ([{OLD: "100"}, {GPU: "100"}], (), None, [0, 1]),
        ([{OLD: "50"}, {OLD: "50"}], (), None, [0]),
        ([{GPU: "100"}], [{OLD: "200"}], None, [0, 1]),
        ([{OLD: "100", GPU: "200"}], (), None, [0, 1]),
        ([{OLD: "100"}], (), {GPU: "100"}, [0, 1]),
        ([{GPU: "100"}], (), {OLD: "100"}, [0, 1]),
    ],
)
def test_names_are_replaced_container_by_container(containers, init, overhead, given):
    """In one that has both the old one stays, which is no device."""
    both = offering(**{"kubernetes.io__gpu": "200", "koordinator.sh__gpu": "200"})
    world = World(both, device(gpu(0), gpu(1)))
    wanted = asking(*containers, init=init, overhead=overhead)
    assert world.verdicts(wanted) == {"n": ()}
    assert world.place(wanted) == {"gpu": given}


def test_bound_pods_count_by_the_new_name_too():
    bound = asking(HALF, name="bound")
    listed = {"gpu": [{"minor": 1, "resources": {OLD_CORE: "50", OLD_RATIO: "50"}}]}
    bound["metadata"]["annotations"] = {ALLOCATED: json.dumps(listed)}
    bound["spec"]["nodeName"] = "n"
    bound["status"] = {"phase": "Running", "containerStatuses": [{"name": "c0", "resources": {"requests": {}}}]}
    world = World(*nodes(core="100"), bound, fit=True)
    assert world.verdicts(asking({CORE: "50", RATIO: "50"})) == {"n": ()}
    assert world.verdicts(asking({CORE: "100", RATIO: "100"}, name="q"))["n"][2:] == (f"Insufficient {CORE}",)
    assert list(world.books()["n"]["used"]) == [("gpu", 1)]


def test_without_the_plugin_names_are_what_they_are():
    world = World(offering(**{"kubernetes.io__gpu": "100"}), devices=False, numa=False, fit=True)
    assert world.verdicts(asking({OLD: "100"})) == {"n": ()}
    assert world.verdicts(asking({GPU: "100"}, name="q"))["n"][2:] == (f"Insufficient {GPU}",)
