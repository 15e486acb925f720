"""Whatever happens on random nodes with devices: a pod that passes nowhere, and then somewhere, is woken; others are
not."""

from collections import Counter

import pytest

from koordsched.cluster.events import ASSIGNED_POD, NODE, ActionType, ClusterEvent
from koordsched.queue.hints import QueueingHint
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.deviceshare.test_walks import Walk
from tests.plugins.deviceshare.world import DEVICES, key

UNANNOUNCED = ("pod_changes", "binding_ends", "what_if")
"""An annotation that was rewritten is no event, for kube-scheduler either."""


class Waiting(Walk):
    """A walk with pods that wait. `rejected_by`: by pod the plugins that refuse it, empty while it passes somewhere."""

    def __init__(self, seed, **options):
        self.events, self.numa = [], options["numa"]
        super().__init__(seed, **options)
        self.asked = [self.pending(f"waits-{at}") for at in range(15)]
        for thing in self.asked:
            thing["spec"]["preemptionPolicy"] = "Never"
            self.world.put(thing)
        self.rejected_by = {key(thing): self.rejectors(thing) for thing in self.asked}
        self.listen()
        self.woken = Counter()

    def listen(self):
        """Notes events as the watch handlers would have them."""
        cluster, noted = self.world.cluster, self.events
        cluster.on_event(lambda event, old, new: noted.append((event, old, new)))
        upsert_node, remove_pod = cluster.upsert_node, cluster.remove_pod

        def node_changed(node):
            changed, new = upsert_node(node)
            if changed:
                noted.append((ClusterEvent(NODE, changed), None, node))
            return changed, new

        def pod_gone(uid):
            pod = cluster.assigned.get(uid)
            found = remove_pod(uid)
            if pod is not None:
                noted.append((ClusterEvent(ASSIGNED_POD, ActionType.DELETE), pod, None))
            return found

        cluster.upsert_node, cluster.remove_pod = node_changed, pod_gone

    def rejectors(self, thing):
        """Reserve refuses some that pass: then DeviceShare does."""
        said = self.world.verdicts(thing)
        if any(not each and self.gets(thing, name) for name, each in said.items()):
            return frozenset()
        return frozenset(each[0] if each else DEVICES for each in said.values()) or frozenset((DEVICES,))

    def gets(self, thing, name):
        return isinstance(self.world.place(thing, name, keep=False), dict)

    def check_woken(self, happened):
        """Before any verdict is asked for anew."""
        for thing in self.asked:
            before = self.rejected_by[key(thing)]
            woken = [event for event in self.events if before and self.wakes(thing, before, *event)]
            after = self.rejected_by[key(thing)] = self.rejectors(thing)
            if before and happened not in UNANNOUNCED:
                assert after or woken, (happened, thing["metadata"]["name"], before)
                if not self.numa and before == after == {DEVICES}:
                    assert not woken, (happened, thing["metadata"]["name"])
                self.woken[not after, bool(woken)] += bool(self.events)
        self.events.clear()

    def wakes(self, thing, plugins, event, old, new):
        """Whether one of the plugins has the pod tried again."""
        pod = self.world.offline.pending[key(thing)]
        for name in plugins & self.world.profile.plugins.keys():
            for registration in self.world.profile.plugins[name].events_to_register() or ():
                if registration.event.matches(event) and (
                    registration.fn is None or registration.fn(pod, old, new) is QueueingHint.QUEUE
                ):
                    return True
        return False


def walk(seed, steps, **options):
    waiting = Waiting(seed, **options)
    for _ in range(steps):
        waiting.check_woken(waiting.step())
    return waiting.woken


SEEDS = [range(4), *(range(first, first + 10) for first in range(0, 60, 10))]


@pytest.mark.parametrize("numa", [False, True], ids=["alone", "aligned"])
@pytest.mark.parametrize("seeds", quick_first(SEEDS, 1), ids=str)
def test_a_pod_that_has_room_at_last_is_woken(seeds, numa):
    walks = (walk(seed, 40, numa=numa, improved=seed % 3 == 2) for seed in seeds)
    woken = sum(walks, Counter())
    assert woken[True, True] > 2
    if not numa:  # a plugin does not know what others say of a node, so two of them wake more
        assert woken[False, True] < woken[False, False]


@pytest.mark.parametrize("seed", fresh_seeds("waking for devices", 6))
def test_on_fresh_seeds(seed):
    walk(seed, 40, numa=bool(seed % 2), improved=bool(seed // 2 % 2))
