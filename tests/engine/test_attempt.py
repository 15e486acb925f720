"""What comes before nodes are looked at, and what ends an attempt."""

from random import Random

import numpy as np

from koordsched.cluster.changelog import Facet
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.framework.interface import PreEnqueue, ShapeFilter
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
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


def offline_with(*state):
    plugins = [Closed, Broken]
    resolved = resolved_with(DEFAULT_CONFIG, plugins)
    return OfflineScheduler(resolved, registry_with(plugins), state, clock=StoppedClock(), rng=Random(7))


def attempt_at(*state):
    offline = offline_with(*state)
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
