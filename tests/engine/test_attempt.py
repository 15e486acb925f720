"""What comes before nodes are looked at, and what ends an attempt."""

from random import Random

import numpy as np
import pytest

from koordsched.cluster.changelog import Facet
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.framework.interface import PreEnqueue, ShapeFilter
from koordsched.framework.scoring import ScoringFailed
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.engine.objects import Fussy
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import node, pod


class Closed(PreEnqueue):
    """Keeps one pod back."""

    name = "Closed"

    def __init__(self, args, handle):
        pass

    def pre_enqueue(self, pod):
        return Status(Code.UNRESOLVABLE, ("closed",)) if pod.name == "kept" else SUCCESS


class Broken(ShapeFilter):
    """Fails on nodes of a name."""

    name = "Broken"
    facets = Facet.LABELS

    def __init__(self, args, handle):
        self.code = handle.reasons.intern(self.name, Code.ERROR, "no such table")

    def filter_rows(self, shape, table, rows):
        bad = table.row_of.get("bad", -1)
        return (np.arange(table.size)[rows] == bad) * np.int32(self.code)


def offline_with(*state, plugins=(Closed, Broken)):
    resolved = resolved_with(DEFAULT_CONFIG, plugins)
    return OfflineScheduler(resolved, registry_with(plugins), state, clock=StoppedClock(), rng=Random(7))


def attempt_at(*state, **more):
    offline = offline_with(*state, **more)
    return Attempt(offline.profiles["default-scheduler"], offline.cluster, offline.add(pod("p")))


def test_the_gate_that_keeps_a_pod_back_is_named():
    offline = offline_with(node("n"))
    profile = offline.profiles["default-scheduler"]
    refused = gated_by(profile, offline.add(pod("kept")))
    assert (refused.code, refused.reasons, refused.plugin) == (Code.UNRESOLVABLE, ("closed",), "Closed")
    assert gated_by(profile, offline.add(pod("let-in"))) is SUCCESS


def test_without_any_node_nothing_is_asked():
    assert not attempt_at().has_nodes
    assert attempt_at(node("n")).has_nodes


def test_an_error_of_a_plugin_ends_the_attempt():
    attempt = attempt_at(node("bad"))
    attempt.filter()
    error = attempt.error()
    assert error.code is Code.ERROR
    assert "no such table" in error.message
    sound = attempt_at(node("n"))
    sound.filter()
    assert sound.error() is None


@pytest.mark.parametrize("preferred", [(True, True), (False, True), (False, False, True), (False, True, True), (True,)])
def test_all_nodes_of_the_highest_total_are_as_good(preferred):
    disliked = [("a", "PreferNoSchedule")]
    nodes = (node(f"n{number}", taints=() if liked else disliked) for number, liked in enumerate(preferred))
    attempt = attempt_at(*nodes)
    attempt.filter()
    assert attempt.best_rows().tolist() == [row for row, liked in enumerate(preferred) if liked]


def test_the_only_node_is_chosen_without_scores():
    only, two = attempt_at(node("a"), plugins=[Fussy]), attempt_at(node("a"), node("b"), plugins=[Fussy])
    only.filter()
    two.filter()
    assert only.best_rows().tolist() == [only.choose(Random(1)).row]
    with pytest.raises(ScoringFailed, match="no scores"):
        two.best_rows()
