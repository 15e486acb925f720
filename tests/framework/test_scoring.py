"""Scores that plugins give to nodes for a pod of its own."""

from random import Random

import numpy as np

from koordsched.framework.interface import PodScore
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import node, pod


class Favours(PodScore):
    """Gives the node that a pod names in an annotation 100, and others 7."""

    name = "Favours"

    def __init__(self, args, handle):
        pass

    def score(self, cycle, pod, table, rows):
        wanted = pod.wire.metadata.annotations.get("favourite")
        return np.array([100 if table.names[row] == wanted else 7 for row in rows], dtype=np.int64)


def test_scores_of_a_plugin_that_does_not_normalize_them_count_as_they_are():
    wanted = pod("p")
    wanted["metadata"]["annotations"] = {"favourite": "b"}
    objects = [node("a"), node("b"), node("c"), wanted]
    resolved = resolved_with(DEFAULT_CONFIG, [Favours])
    offline = OfflineScheduler(resolved, registry_with([Favours]), objects, clock=StoppedClock(), rng=Random(7))
    assert offline.schedule("default/p").node == "b"
