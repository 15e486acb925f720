"""Pod groups in simulate, in explanations and in snapshots."""

from random import Random

import pytest

from koordsched.plugins import IN_TREE
from koordsched.plugins.gangscheduling import messages
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.extraplugins import resolved_with
from tests.plugins.gangscheduling.running import API, GATES
from tests.plugins.gangscheduling.test_over_the_api import FEASIBLE
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod

CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def group(minimum, name="g", **spec):
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"schedulingPolicy": policy, **spec}}


def member(name, cpu="1", memory="1Gi", **more):
    made = pod(name, container(cpu=cpu, memory=memory), **more)
    made["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return made


def offline(*objects, gates=GATES):
    resolved = resolved_with(CONFIG, (), gates)
    return OfflineScheduler(resolved, IN_TREE, objects, clock=StoppedClock(), rng=Random(1))


def outcomes(scheduler, *names):
    return {name: scheduler.schedule(f"default/{name}") for name in names}


def test_members_are_placed_together():
    found = outcomes(offline(node("n1", cpu="4"), group(2), member("a"), member("b"), member("c", "9")), "a", "b", "c")
    assert (found["a"].node, found["b"].node, found["c"].node) == ("n1", "n1", "")
    assert "1 Insufficient cpu" in found["c"].message


def test_or_none_is():
    found = outcomes(offline(node("n1", cpu="4"), group(2), member("a", "3"), member("b", "3")), "a", "b")
    assert (found["a"].node, found["b"].node) == ("", "")
    assert found["a"].message == FEASIBLE
    assert "1 Insufficient cpu" in found["b"].message


@pytest.mark.parametrize("minimum", [1, 3])
def test_each_member_that_has_no_place_says_what_it_lacks(minimum):
    """The explanation is about the first of them."""
    objects = [node("n1", cpu="4", memory="4Gi"), group(minimum), member("a"), member("b", "9")]
    objects.append(member("c", memory="9Gi"))
    scheduler = offline(*objects)
    explained = scheduler.explain("default/a").job
    found = outcomes(scheduler, "a", "b", "c")
    assert [found[name].node for name in ("a", "b", "c")] == ["n1" if minimum == 1 else "", "", ""]
    assert "1 Insufficient cpu" in found["b"].message
    assert "1 Insufficient memory" in found["c"].message
    if minimum > 1:
        assert (explained.refused, explained.message) == ("default/b", found["b"].message)


def test_gated_members_say_what_they_wait_for():
    scheduler = offline(node("n1"), group(2), member("a"))
    assert scheduler.explain("default/a").job is None
    found = outcomes(scheduler, "a")
    assert found["a"].message == "waiting for minCount pods from a gang to appear in scheduling queue"


def test_members_of_several_schedulers_are_not_placed():
    profiles = [{"schedulerName": name} for name in ("default-scheduler", "other")]
    resolved = resolved_with({**CONFIG, "profiles": profiles}, (), GATES)
    stranger = member("b")
    stranger["spec"]["schedulerName"] = "other"
    objects = [node("n1"), group(2), member("a"), stranger]
    scheduler = OfflineScheduler(resolved, IN_TREE, objects, clock=StoppedClock(), rng=Random(1))
    found = outcomes(scheduler, "a", "b")
    assert {each.node for each in found.values()} == {""}
    assert all(messages.several_schedulers("other", "default-scheduler") in each.message for each in found.values())


def test_a_member_that_would_need_room_keeps_the_group_waiting():
    low = pod("low", container(cpu="4"), on="n1", priority=1)
    objects = [node("n1", cpu="4"), node("n2", cpu="4"), group(2), low]
    objects += [member(name, "4", priority=10) for name in ("a", "b")]
    found = outcomes(offline(*objects), "a", "b")
    assert [found[name].node for name in ("a", "b")] == ["", ""]
    assert found["a"].message == "pod group is unschedulable, pod group is waiting for preemption to complete"


def test_members_that_evict_no_pod_use_the_room_that_is_made_for_others():
    low = pod("low", container(cpu="8"), on="n1", priority=1)
    members = [member("a", "4", priority=10), member("b", "4", priority=10, preemptionPolicy="Never")]
    found = outcomes(offline(node("n1", cpu="8"), group(2), low, *members), "a", "b")
    text = "pod group is unschedulable, pod group is waiting for preemption to complete"
    assert [found[name].message for name in ("a", "b")] == [text, text]


WHOLE = (*GATES, "WorkloadAwarePreemption=true")


def test_an_explanation_shows_the_room_for_the_whole_group():
    low = pod("low", container(cpu="4"), on="n1", priority=1)
    kept = pod("kept", container(cpu="3"), on="n2", priority=500)
    objects = [node("n1", cpu="4"), node("n2", cpu="4"), group(2, priority=10), low, kept]
    objects += [member("a", "4"), member("b", "1")]
    scheduler = offline(*objects, gates=WHOLE)
    explained = scheduler.explain("default/a").job
    assert (explained.complete, explained.victims) == (False, ["default/low"])
    assert explained.nominated == {"default/a": "n1", "default/b": "n2"}
    found = outcomes(scheduler, "a", "b")
    assert [found[name].node for name in ("a", "b")] == ["", ""]
    assert found["b"].message == "pod group is unschedulable, pod group is waiting for preemption to complete"
    assert found["a"].message.endswith("preemption: not eligible due to workload aware preemption enabled")


def test_no_room_is_made_for_a_group_that_has_its_places():
    low = pod("low", container(cpu="3"), on="n1", priority=1)
    objects = [node("n1", cpu="4"), node("n2", cpu="4"), group(1, priority=10), low, member("a", "4"), member("b", "4")]
    scheduler = offline(*objects, gates=WHOLE)
    explained = scheduler.explain("default/a").job
    assert (explained.complete, explained.nodes, explained.victims) == (True, {"default/a": "n2"}, [])
    found = outcomes(scheduler, "a", "b")
    assert found["a"].node == "n2"
    assert "2 Insufficient cpu" in found["b"].message


def test_an_explanation_says_why_no_room_is_made():
    objects = [node("n1", cpu="4"), group(1, priority=10), member("a", "9")]
    explained = offline(*objects, gates=WHOLE).explain("default/a").job
    assert explained.message.endswith(", No preemption victims found for incoming preemptor")


def test_room_that_is_being_made_on_a_node_the_status_does_not_show_yet_is_waited_for():
    low = pod("low", container(cpu="4"), on="n1", priority=1)
    low["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    low["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    other = pod("other", container(cpu="4"), on="n2", priority=1)
    objects = [node("n1", cpu="4"), node("n2", cpu="4"), group(1, priority=10), low, other, member("a", "4")]
    scheduler = offline(*objects, gates=WHOLE)
    scheduler.nominator.add(scheduler.pending["default/a"], "n1")
    assert scheduler.explain("default/a").job.message.endswith(f", {messages.VICTIMS_LEAVE}")


def test_an_explanation_shows_the_group():
    explained = offline(node("n1", cpu="4"), group(2), member("a"), member("b")).explain("default/a")
    assert explained.job is not None
    assert (explained.job.complete, explained.job.nodes) == (True, {"default/a": "n1", "default/b": "n1"})


def test_snapshots_keep_the_group_of_pods_on_nodes():
    """Pods that are alike share a spec; groups differ."""
    there = member("a", on="n1")
    other = pod("z", container(cpu="1"), on="n1")
    scheduler = offline(node("n1", cpu="4"), group(2), there, other, member("b"))
    shown = {item["metadata"]["name"]: item for item in snapshot(scheduler.cluster, list(scheduler.pending.values()))}
    assert shown["a"]["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    assert "schedulingGroup" not in shown["z"]["spec"]
    again = offline(*shown.values())
    assert again.schedule("default/b").node == "n1"
