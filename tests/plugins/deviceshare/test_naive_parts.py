"""Parts of the naive model that decisions alone do not show: hints with their scores, NICs where nothing is scored."""

import pytest

from tests.plugins.deviceshare.implementation import NaiveDecision
from tests.plugins.deviceshare.machines import device as device_of
from tests.plugins.deviceshare.machines import g8, gpu, nic, node, pod, used, used_nic
from tests.plugins.deviceshare.naive.numa import hints_of
from tests.plugins.deviceshare.naive.request import ALLOCATED, SCHEDULING_HINTS, UAU, Refused, U
from tests.plugins.deviceshare.naive.scoring import normalised
from tests.plugins.nodenumaresource.naive import Hint


def decided(objects, wanted):
    return NaiveDecision(objects, wanted, None, None, ())


def hints(objects, wanted):
    decision = decided(objects, wanted)
    return hints_of(decision.devices, decision.asked, "n")


def hint(*numa_nodes, preferred=True, score=0):
    return Hint(frozenset(numa_nodes), preferred, score)


def test_every_type_has_the_same_hints():
    same = [hint(0, score=500), hint(1), hint(0, 1, preferred=False, score=500)]
    assert hints(g8(), pod(nvidia=1, rdma=2)) == {"gpu": same, "rdma": same}
    assert hints([*g8(), used(0)], pod(nvidia=4)) == {
        "gpu": [hint(1, score=500), hint(0, 1, preferred=False, score=500)]
    }


@pytest.mark.parametrize("text", ["{}", '{"gpu": []}'])
def test_where_no_device_is_designated_hints_are_those_of_other_pods(text):
    wanted = pod(nvidia=1, annotations={ALLOCATED: text, SCHEDULING_HINTS[0]: '{"extensions":{"DeviceShare":{}}}'})
    assert hints(g8(), wanted) == hints(g8(), pod(nvidia=1)) != {}


def test_without_gpus_all_hints_are_equally_good():
    assert [each.score for each in hints(g8(), pod(rdma=1))["rdma"]] == [500, 500, 500]


def test_without_topology_there_is_no_preference():
    assert hints([node(), device_of(gpu(0))], pod(nvidia=1)) == {}
    assert hints([node()], pod(nvidia=1)) == {}


def test_where_nothing_is_feasible_the_whole_node_says_why():
    for wanted, code, text in (
        (pod(nvidia=17), UAU, "Insufficient NUMA Scoped Devices"),
        (pod(fpga=50), UAU, "Insufficient fpga devices"),
    ):
        with pytest.raises(Refused) as raised:
            hints(g8(), wanted)
        assert (raised.value.verdict.code, raised.value.verdict.reasons) == (code, (text,))
    with pytest.raises(Refused) as raised:
        hints([*g8(), used(0), used(4)], pod(nvidia=7))
    assert raised.value.verdict.code == U


def test_without_a_score_the_first_nic_and_its_next_function_are_taken():
    objects = [*g8(), used_nic(1, 1)]
    decision = decided(objects, pod(rdma=1, hints={"rdma": {"vfSelector": {}}}))
    (taken,) = decision.devices.allocator(decision.asked, "n").allocate()["rdma"]
    assert (taken["minor"], [vf["busID"] for vf in taken["vfs"]]) == (1, ["0000:1f:00.2"])
    decision.world.books["n"].vfs = {"rdma": {1: {"0000:1f:00.2"}}}
    (taken,) = decision.devices.allocator(decision.asked, "n").allocate()["rdma"]
    assert (taken["minor"], [vf["busID"] for vf in taken["vfs"]]) == (1, ["0000:1f:00.3"])


def test_scores_are_normalised_to_the_best():
    assert normalised({"a": 200, "b": 10}) == {"a": 100, "b": 5}
    assert normalised({"a": 0}) == {"a": 0}


def test_a_nic_of_which_all_functions_are_held_is_passed_over():
    objects = [node(), device_of(nic(1, functions=1), nic(2, functions=1))]
    decision = decided(objects, pod(rdma=1, hints={"rdma": {"vfSelector": {}}}))
    decision.world.books["n"].vfs = {"rdma": {1: {"0000:11:00.2"}}}
    (taken,) = decision.devices.allocator(decision.asked, "n").allocate()["rdma"]
    assert taken["minor"] == 2
