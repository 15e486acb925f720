"""Jobs of files, planned in one piece: all members get a place, or each says why not."""

from tests.engine.objects import offline
from tests.plugins.objects import container, node, pod
from tests.scheduling.together import JOB, NEED, Together


def outcomes(need, *names, cpu="4"):
    members = [pod(name, container(cpu="1"), labels={JOB: "j", NEED: str(need)}) for name in names]
    scheduler = offline(node("n", cpu=cpu), *members, plugins=(Together,))
    return {name: scheduler.schedule(f"default/{name}") for name in names}


def test_all_are_placed():
    assert {each.node for each in outcomes(2, "a", "b").values()} == {"n"}


def test_a_member_without_a_place_says_what_it_lacks_and_the_others_that_they_wait_for_it():
    found = outcomes(3, "a", "b", "c", cpu="2")
    assert {each.node for each in found.values()} == {""}
    lacking = found["c"].message
    assert lacking.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert found["a"].message == f"0/1 nodes are available: 1 c: {lacking}."


def test_too_few_members_say_that():
    found = outcomes(3, "a", "b")
    assert {each.node for each in found.values()} == {""}
    assert {each.message for each in found.values()} == {"0/1 nodes are available: 1 too few."}
    assert found["a"].job.message == "too few"
