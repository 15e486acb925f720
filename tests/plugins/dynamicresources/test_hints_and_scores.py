"""What wakes a pod (dra spec 3.2, case 101), and what nodes score (3.7, case 92)."""

import numpy as np
import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import ResourceClaim
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.events import RESOURCE_CLAIM, UNSCHEDULABLE_POD, ActionType, ClusterEvent
from koordsched.cluster.podevents import pod_events
from koordsched.framework.interface import CycleState
from koordsched.plugins.dynamicresources.structured import score_of
from koordsched.queue.hints import HintTable
from koordsched.queue.item import QueuedPod
from tests.plugins.dynamicresources.deviceworld import allocated, claim, claiming
from tests.plugins.harness import Bench

UPDATE = ClusterEvent(RESOURCE_CLAIM, ActionType.UPDATE)
ADD = ClusterEvent(RESOURCE_CLAIM, ActionType.ADD)


def of(thing):
    return convert(thing, ResourceClaim)


def woken(wanted, event, old, new, *claims):
    """Whether a pod that the plugin rejected is tried again for the event, after which these are all claims."""
    bench = Bench()
    plugin = bench.plugin("DynamicResources")
    for each in claims:
        bench.cluster.objects.of(RESOURCE_CLAIMS).upsert(of(each))
    table = HintTable(plugin.events_to_register())
    queued = QueuedPod(bench.pod(wanted), "default/p", 0.0, 1)
    queued.unschedulable_plugins = frozenset({"DynamicResources"})
    return table.strategy(queued, event, old and of(old), of(new), own=False) > 0


P = claiming("p", "c")
OTHER = claim("other")


@pytest.mark.parametrize(
    "event, old, new, queue",
    [
        (UPDATE, claim("other", status=allocated("d0")), OTHER, True),
        (UPDATE, OTHER, claim("other", status=allocated("d0")), False),
        (UPDATE, claim("other", status=allocated("d0")), claim("other", status=allocated("d0", users=["x"])), False),
        (ADD, None, OTHER, False),
        (UPDATE, claim(), claim(labels={"new": "label"}), False),
        (UPDATE, claim(), claim(status=allocated("d0")), True),
        (UPDATE, claim(status=allocated("d0")), claim(status=allocated("d0", users=["x"])), True),
        (ADD, None, claim(), True),
    ],
)
def test_dra_case_101_changes_of_claims(event, old, new, queue):
    assert woken(P, event, old, new, new) == queue
    # A second claim is missing: nothing of the pod's own helps. What comes free does not either, but that PreEnqueue
    # finds.
    if new["metadata"]["name"] == "c":
        assert not woken(claiming("p", "c", "missing"), event, old, new, new)


def test_a_claim_that_the_status_of_the_pod_names_is_a_change_of_the_pod():
    bench = Bench()
    before = bench.pod(claiming("p", ("e", None)))
    status = {"resourceClaimStatuses": [{"name": "e", "resourceClaimName": "c"}]}
    after = bench.pod(claiming("p", ("e", None)) | {"status": status})
    named = ClusterEvent(UNSCHEDULABLE_POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    assert pod_events(before, after) == [named]
    assert pod_events(after, after) != [named]


@pytest.mark.parametrize("raw, normalized", [([16, 14, 0], [100, 87, 0]), ([0, 0, 0], [0, 0, 0])])
def test_dra_case_92_scores_are_shares_of_the_highest(raw, normalized):
    bench = Bench()
    plugin = bench.plugin("DynamicResources")
    wanted = bench.pod(P)
    scores = plugin.normalize(CycleState(wanted), wanted, np.array(raw))
    assert scores.tolist() == normalized


@pytest.mark.parametrize("chosen, score", [("a/big", 8), ("a/small", 7), ("other/big", 0), (None, 0)])
def test_an_allocation_scores_by_the_alternative_that_was_chosen(chosen, score):
    """8 less its number; requests without alternatives score nothing."""
    had = claim(status=allocated("d0", request=chosen) if chosen is not None else None)
    alternatives = [{"name": name, "deviceClassName": "dc"} for name in ("big", "small")]
    had["spec"]["devices"]["requests"].append({"name": "a", "firstAvailable": alternatives})
    assert score_of(of(had)) == score
