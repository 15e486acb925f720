"""The naive model on random stories: what it hands out holds together, and the stories reach all that it can say."""

from collections import Counter

import pytest

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.telling import Teller
from tests.reference.world import allocatable

TEXTS = {
    "node(s) no reservations match reservation affinity",
    "node(s) didn't match the nodeName specified by reservation",
    "node(s) reservation allocate policy conflict",
    "node(s) reservation pre allocation is unsupported with current attributes",
    "reservation requires cluster mode pre-allocation which is disabled",
    "node(s) no pod match reservation with pre allocation required",
    "node(s) no pod(s) to meet the pre-allocation requirements",
    "pod affinity terms conflict",
    "Insufficient cpu by node",
    "Insufficient memory by node",
    "Reservation(s) Insufficient cpu",
    "Reservation(s) Insufficient memory",
    "Reservation(s) Too many pods",
    "Reservation(s) Insufficient cpu, requested: #, used: #, capacity: #",
    "Reservation(s) Insufficient memory, requested: #, used: #, capacity: #",
    "Reservation(s) matched owner total",
    "Reservation(s) exactly matches the requested reservation name",
    "Reservation(s) didn't match the requested reservation name",
    "Reservation(s) didn't match affinity rules",
    "Reservation(s) is unschedulable",
    "Reservation(s) is not exact matched",
    "Reservation(s) had untolerated taint {k: v}",
    "Reservation(s) had untolerated taint {other: }",
    "Reservation(s) for node reason that Insufficient cpu",
    "Reservation(s) for node reason that Too many pods",
}


class Watcher:
    """Chooses one of the best nodes and checks what comes of it."""

    given = {}

    def __init__(self, teller):
        self.teller, self.cluster = teller, teller.cluster
        self.said, self.uses = Counter(), Counter()
        self.before = None

    def put(self, thing):
        """The cluster is looked at when the step is over."""

    def remove(self, thing):
        """The same."""

    def controlled(self, before, after):
        """The same."""

    def decided(self, thing, decided):
        outcome = decided.outcome
        if outcome.rejected is not None:
            self.note(outcome.rejected[1].reasons)
        for plugin, status in outcome.filtered.values():
            if plugin == names.PLUGIN:
                self.note(status.reasons)
        self.note(reason.partition(" ")[2] for reason in decided.reasons)
        if not outcome.feasible:
            return None
        node = self.teller.story.rng.choice(outcome.any_of)
        used = self.teller.model.nominated(decided, node)
        self.uses["pods taken over" if isinstance(used, list) and used else type(used).__name__] += 1
        self.uses["scored"] += outcome.scores is not None and names.PLUGIN in outcome.scores
        self.before = None if self.may_overcommit(decided, node) else (node, self.crowded(node))
        return node

    def note(self, reasons):
        for reason in reasons:
            words = ("#," if word.rstrip(",").isdigit() else word for word in reason.split())
            self.said[" ".join(words).removesuffix(",")] += 1

    def may_overcommit(self, decided, node):
        """Pods that ignore Reservations do, and owners of one that counts some resources only."""
        if not decided.decision.is_reserve and decided.decision.wish.ignores:
            return True
        infos = [*self.cluster.infos(node), *([decided.decision.info] if decided.decision.is_reserve else [])]
        return any(names.OPTIONS in info.annotations for info in infos)

    def crowded(self, name):
        """The resources of a node of which more is in use than there is; what is not checked does not count."""
        node, view = self.cluster.nodes[name], self.cluster.view()
        resources = node["status"]["allocatable"].keys() - {"pods", *self.teller.model.settings.ignored}
        return {each for each in resources if view.requested(node, each) > allocatable(node, each)}

    def ended(self):
        """A step is over."""
        if self.before:
            node, before = self.before
            assert self.crowded(node) <= before
        self.before = None


def stories(seeds, **options):
    for seed in seeds:
        yield Teller(seed, Watcher, **options).tell()


@pytest.mark.parametrize("seed", range(12))
def test_no_decision_overcommits_a_node(seed):
    Teller(seed, Watcher, taking=seed % 2 == 0).tell()


@pytest.mark.slow
def test_stories_reach_everything():
    said, uses = Counter(), Counter()
    for watcher in (*stories(range(120)), *stories(range(150), taking=True)):
        said += watcher.said
        uses += watcher.uses
    assert not TEXTS - said.keys()
    assert all(uses[use] > 10 for use in ("str", "NoneType", "list", "pods taken over", "scored")), uses
