"""Jobs of files, planned in one piece: all members get a place, or each says why not."""

import pytest

from koordsched.framework.status import Code, Status
from tests.engine.objects import Fussy, offline
from tests.plugins.objects import container, node, pod
from tests.scheduling.together import JOB, NEED, Together

NODES = (node("n"), node("tiny", cpu="500m"))


def planning(need, *names, nodes=NODES, refuses=None, plugins=()):
    """A scheduler of such members. `refuses`: see `Together`."""

    class Under(Together):
        """Reserves only members whose PreFilter ran in this attempt, and says so of all that were tried."""

        def pre_filter(self, cycle, pod):
            cycle.state["tried"] = pod.uid
            assert self.held.keys() <= cycle.job_members
            return super().pre_filter(cycle, pod)

        def reserve(self, cycle, pod, row):
            assert cycle.state["tried"] == pod.uid
            assert {pod.uid, *self.held} <= cycle.job_members
            return super().reserve(cycle, pod, row)

        def explain_job(self, job):
            return [f"{job.name} has {len(self.held)} places"]

    Under.refuses = dict(refuses or {})
    members = [pod(name, container(cpu="1"), labels={JOB: "j", NEED: str(need)}) for name in names]
    return offline(*nodes, *members, plugins=(Under, *plugins))


def outcomes(need, *names, **more):
    """What comes of the members, by name."""
    scheduler = planning(need, *names, **more)
    return {name: scheduler.schedule(f"default/{name}") for name in names}


def test_all_are_placed():
    assert {each.node for each in outcomes(2, "a", "b").values()} == {"n"}


def test_an_explanation_shows_where_all_would_go_and_leaves_no_trace():
    scheduler = planning(2, "a", "b")
    for name in ("a", "b"):
        job = scheduler.explain(f"default/{name}").job
        assert (job.complete, job.nodes) == (True, {"default/a": "n", "default/b": "n"})
        assert (job.refused, job.message, job.notes, job.untried) == ("", "", [], [])
    assert not scheduler.cluster.assigned


def test_without_any_node():
    found = outcomes(2, "a", "b", nodes=())
    assert found["a"].message == "no nodes available to schedule pods"
    assert found["a"].job.refused == "default/a"


def test_a_member_that_cannot_be_scored_says_why():
    found = outcomes(2, "a", "b", nodes=[node("n"), node("m")], plugins=[Fussy])
    assert found["a"].message == 'running PreScore plugin "Fussy": no scores'
    assert {each.node for each in found.values()} == {""}


def test_a_member_without_a_place_says_what_it_lacks_and_the_others_that_they_wait_for_it():
    found = outcomes(3, "a", "b", "c", nodes=[node("n", cpu="2"), node("tiny", cpu="500m")])
    assert {each.node for each in found.values()} == {""}
    lacking = found["c"].message
    assert lacking.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert found["a"].message == f"0/1 nodes are available: 1 c: {lacking}."
    job = found["a"].job
    assert (job.refused, job.message) == ("default/c", lacking)
    assert [(refusal.reasons, refusal.nodes) for refusal in job.refusals] == 2 * [(("Insufficient cpu",), 1)]


def test_too_few_members_say_that():
    found = outcomes(3, "a", "b")
    assert {each.node for each in found.values()} == {""}
    assert {each.message for each in found.values()} == {"0/1 nodes are available: 1 too few."}
    assert (found["a"].job.message, found["a"].job.notes) == ("too few", ["j has 0 places"])


def test_a_plugin_need_not_say_more_of_a_job():
    members = [pod(name, container(cpu="1"), labels={JOB: "j", NEED: "3"}) for name in "ab"]
    job = offline(*NODES, *members, plugins=(Together,)).schedule("default/a").job
    assert (job.message, job.notes) == ("too few", [])


NO, BROKEN = Status(Code.UNRESOLVABLE, ("not today",)), Status(Code.ERROR, ("no such table",))


@pytest.mark.parametrize("hook", ["pre_filter", "reserve", "permit"])
@pytest.mark.parametrize("answer", [NO, BROKEN])
def test_a_member_that_a_plugin_refuses_says_why_and_no_node_is_blamed(hook, answer):
    found = outcomes(3, "a", "b", "c", refuses={f"{hook} b": answer})
    assert {each.node for each in found.values()} == {""}
    assert answer.reasons[0] in found["b"].message
    assert found["b"].message.startswith("0/") == (answer is NO)
    job = found["a"].job
    assert (job.refused, job.message, job.untried) == ("default/b", found["b"].message, ["default/c"])
    assert (list(job.nodes), job.refusals) == (["default/a"], [])
