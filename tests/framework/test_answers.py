"""What is made of the answers of plugins: texts of errors and rejections, and the end of the PostFilter chain."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from koordsched.framework.diagnosis import first_error, one_node_error
from koordsched.framework.interface import CycleState, FewScores, PostFilter, PostFilterResult
from koordsched.framework.permit import WaitingPod
from koordsched.framework.scoring import InvalidScore, PreScoreFailed, decide, score
from koordsched.framework.status import PASS, SUCCESS, Code, Status
from koordsched.framework.verdicts import Verdicts
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


class Told(PostFilter):
    """Answers as told."""

    name = "Told"

    def __init__(self, answer):
        self.answer = answer

    def post_filter(self, cycle, pod, codes):
        return self.answer

    def reserve(self, cycle, pod, row):
        return self.answer

    def permit(self, cycle, pod, row):
        return self.answer, 0.0

    def pre_score(self, cycle, pod, rows):
        return self.answer if isinstance(self.answer, Status) else SUCCESS

    def score(self, cycle, pod, table, rows):
        return np.full(len(rows), self.answer)

    def normalize(self, cycle, pod, raw):
        return raw


def setup():
    """A profile, a cycle of a pod on two nodes, and the verdicts on them."""
    offline = scheduler([node("a"), node("b"), pod("p", container(cpu="1"))])
    profile = offline.profiles["default-scheduler"]
    cycle = CycleState(offline.pending["default/p"])
    return profile, cycle, profile.filtering.filter(cycle)


def refused(text, nominated=None, code=Code.UNSCHEDULABLE):
    return PostFilterResult(Status(code, (text,)), nominated)


@pytest.mark.parametrize(
    ("answers", "code", "texts", "nominated"),
    [
        ([], Code.UNSCHEDULABLE, (), ""),
        ([refused("a")], Code.UNSCHEDULABLE, ("a",), None),
        ([refused("a"), refused("b", "")], Code.UNSCHEDULABLE, ("a", "b"), ""),
        ([refused("a", ""), refused("b")], Code.UNSCHEDULABLE, ("a", "b"), ""),
        ([refused("a", ""), refused("b", None, Code.UNRESOLVABLE), refused("c")], Code.UNRESOLVABLE, ("b",), None),
        ([refused("a", ""), refused("b", None, Code.ERROR), refused("c")], Code.ERROR, ("b",), None),
        ([refused("a", ""), PostFilterResult(SUCCESS, "n")], Code.SUCCESS, (), "n"),
    ],
)
def test_who_ends_the_post_filters_decides_on_the_nomination(answers, code, texts, nominated):
    profile, cycle, verdicts = setup()
    profile.post_filters = tuple(map(Told, answers))
    found = profile.run_post_filter(cycle, verdicts.codes)
    assert (found.status.code, found.status.reasons, found.nominated_node) == (code, texts, nominated)


def test_all_who_refuse_to_make_room_are_waited_for():
    profile, cycle, verdicts = setup()
    by = ({"A"}, set(), {"C"})
    profile.post_filters = tuple(Told(replace(refused("a"), refused_by=frozenset(names))) for names in by)
    assert profile.run_post_filter(cycle, verdicts.codes).refused_by == {"A", "C"}


def test_a_rejection_on_one_node_counts_its_reasons():
    assert one_node_error(Status(Code.UNSCHEDULABLE, ("R",))) == "0/1 nodes are available: 1 R."
    several = Status(Code.UNRESOLVABLE, ("late", "early", "late"))
    assert one_node_error(several) == "0/1 nodes are available: 1 early, 2 late."


@pytest.mark.parametrize(
    ("code", "reserved", "permitted"),
    [
        (Code.ERROR, 'running Reserve plugin "Told": x, y', 'running Permit plugin "Told": x, y'),
        (Code.UNSCHEDULABLE, "x, y", "x, y"),
        (Code.UNRESOLVABLE, "x, y", "x, y"),
    ],
)
def test_errors_name_the_step_and_rejections_do_not(code, reserved, permitted):
    profile, cycle, _ = setup()
    profile.reserve_plugins = profile.permit_plugins = (Told(Status(code, ("x", "y"))),)
    found = profile.run_reserve(cycle, cycle.pod, 0)
    assert (found.code, found.message, found.plugin) == (code, reserved, "Told")
    found, _ = profile.run_permit(cycle, cycle.pod, 0)
    assert (found.code, found.message, found.plugin) == (code, permitted, "Told")


def test_an_error_of_a_filter_names_it():
    profile, _, verdicts = setup()
    codes = np.array([PASS, profile.handle.reasons.intern("Told", Code.ERROR, "x")], dtype=np.int32)
    found = first_error(Verdicts(codes, verdicts.plan, verdicts.pre_filtered), profile.handle.reasons)
    assert (found.code, found.message, found.plugin) == (Code.ERROR, 'running "Told" filter plugin: x', "Told")


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (Status(Code.ERROR, ("x",)), PreScoreFailed, 'running PreScore plugin "Told": x'),
        (
            101,
            InvalidScore,
            'applying score defaultWeights on Score plugins: plugin "Told" returns an invalid score 101, '
            "it should in the range of [0, 100] after normalizing",
        ),
        (
            -1,
            InvalidScore,
            'applying score defaultWeights on Score plugins: plugin "Told" returns an invalid score -1, '
            "it should in the range of [0, 100] after normalizing",
        ),
    ],
)
def test_errors_of_scoring(answer, error, message):
    profile, cycle, verdicts = setup()
    verdicts.plan.pod_scores = ((Told(answer), 1),)
    with pytest.raises(error) as raised:
        score(cycle, profile.handle.cluster.table, verdicts).totals()
    assert str(raised.value) == message


class Few(Told):
    """Scores these rows alone."""

    def few(self, cycle, pod, codes):
        return FewScores(*self.answer)


@pytest.mark.parametrize(
    ("rows", "scores", "chosen"),
    [
        ([0], [0], {0, 1}),
        ([0], [1], {0}),
        ([1], [100], {1}),
        ([0, 1], [5, 5], {0, 1}),
        ([0, 1], [5, 6], {1}),
        ([], [], {0, 1}),
    ],
)
def test_equal_nodes_have_equal_chances_where_few_are_scored(rows, scores, chosen):
    profile, cycle, verdicts = setup()
    asked = [(Few((rows, scores, scores)), 2)]
    table = profile.handle.cluster.table
    choices = [decide(cycle, table, verdicts, Random(seed), asked) for seed in range(20)]
    assert {choice.row for choice in choices} == chosen
    alike = verdicts.evaluation.totals.item(0)
    assert {choice.total - alike for choice in choices} == {2 * max(scores, default=0)}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (1, "1s"), (10.25, "10.25s"), (59, "59s"), (60, "1m0s"), (90, "1m30s"), (3600, "15m0s")],
)
def test_a_pod_that_waits_says_for_how_long(seconds, text):
    async def main():
        return await WaitingPod(None, {"Gang": seconds}).wait()

    rejected = run(main())
    assert rejected.reasons == (f"rejected due to timeout after waiting {text} at plugin Gang",)
