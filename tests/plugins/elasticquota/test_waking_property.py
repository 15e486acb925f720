"""Nobody is forgotten: a pod that its quota refused, and that fits after some change, was told of that change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.elasticquota.room import ROOM
from koordsched.queue.hints import QueueingHint
from tests.depth import examples
from tests.plugins.elasticquota.objects import node, pod
from tests.plugins.elasticquota.test_books_property import CROWDS, NAMES, SMALL, lists
from tests.plugins.elasticquota.world import World

LESS = st.sampled_from([0, 1, 3, 5, 20])
PODS = st.builds(
    lambda number, request, name, on, preemptible: pod(f"p{number}", request, name, on=on, preemptible=preemptible),
    number=st.integers(0, 9),
    request=lists(st.sampled_from([1, 2, 3, 5, 8]), at_least=1),
    name=st.sampled_from([*NAMES, None]),
    on=st.sampled_from([None, None, None, "n-0"]),
    preemptible=st.sampled_from([True, True, True, False]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PODS),
        st.tuples(st.just("put"), PODS),
        st.tuples(st.just("forget"), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("node"), st.sampled_from([5, 20, 60])),
        st.tuples(st.just("change"), st.tuples(st.sampled_from(NAMES), lists(SMALL), LESS)),
    ),
    min_size=20,
    max_size=50,
)


class Waiting:
    """A world, and the pods in it that were refused and have not been told of anything since."""

    def __init__(self, crowd, by_runtime, checks_parents, gates):
        args = {"enableRuntimeQuota": by_runtime, "enableCheckParentQuota": checks_parents}
        self.world = World(*CROWDS[crowd], args=args, gates=gates)
        self.admission = self.world.plugin.admission
        self.quotas = {thing["metadata"]["name"]: thing for thing in CROWDS[crowd] if thing["kind"] == "ElasticQuota"}
        self.there = {}
        self.refused = {}
        (self.hint,) = (each.fn for each in self.world.plugin.events_to_register() if each.event == ROOM)
        self.world.cluster.on_event(self._told)

    def _told(self, event, old, room):
        for uid, own in list(self.refused.items()):
            if self.hint(own, old, room) is QueueingHint.QUEUE:
                del self.refused[uid]

    def take(self, kind, what):
        """One step."""
        if kind == "put":
            self._put(what)
        elif kind == "node":
            self.world.put(node("n-0", cpu=what, memory=40, x=3))
        elif kind == "change":
            name, most, least = what
            before = self.quotas[name]
            spec = {**before["spec"], "max": {**before["spec"]["max"], **{k: str(v) for k, v in most.items()}}}
            if "cpu" in spec["max"]:
                spec["min"] = {"cpu": str(least)}
            self.quotas[name] = {**before, "spec": spec}
            self.world.put(self.quotas[name])
        elif f"uid-default-p{what}" in self.there:
            getattr(self, kind)(f"uid-default-p{what}")

    def _put(self, thing):
        uid = thing["metadata"]["uid"]
        if uid in self.world.cluster.assigned:
            return
        self.there[uid] = thing
        self.refused.pop(uid, None)
        self.world.put(thing)

    def remove(self, uid):
        """A pod is gone."""
        self.refused.pop(uid, None)
        self.world.remove(self.there.pop(uid))

    def forget(self, uid):
        """A pod that was to be placed is not."""
        cluster = self.world.cluster
        if uid in cluster.assumed:
            cluster.forget(cluster.assumed[uid])

    def schedule(self):
        """Those who have not been refused, or were told of something, are placed or refused."""
        cluster = self.world.cluster
        for uid, thing in self.there.items():
            if uid in cluster.assigned or uid in self.refused:
                continue
            if self.world.refusal(thing) is None:
                cluster.assume(self.world.books.member(uid).pod, cluster.table.row_of["n-0"])
            else:
                self.refused[uid] = self.world.books.member(uid).pod

    def check(self):
        """Whoever has heard of nothing does not fit."""
        for own in self.refused.values():
            assert self.admission.refusal(self.admission.claimant(own)) is not None


@settings(max_examples=examples(150), deadline=None)
@given(
    STEPS,
    st.sampled_from(sorted(CROWDS)),
    st.sampled_from([True, True, False]),
    st.booleans(),
    st.sampled_from([(), (), ("ElasticQuotaGuaranteeUsage",)]),
)
def test_who_fits_was_told(steps, crowd, by_runtime, checks_parents, gates):
    waiting = Waiting(crowd, by_runtime, checks_parents, gates)
    for kind, what in steps:
        waiting.take(kind, what)
        waiting.check()
        waiting.schedule()


OVERDRAWN = {
    "its max was lowered": (
        [("put", pod("in-child", {"cpu": 8}, "c", on="n-0")), ("change", ("c", {"cpu": 2}, 0))],
        (1, 2),
    ),
    "others placed its pod": ([("put", pod("in-child", {"cpu": 12}, "c", on="n-0"))], (1,)),
}


@pytest.mark.parametrize(("steps", "sizes"), OVERDRAWN.values(), ids=OVERDRAWN)
def test_more_requests_make_room_where_more_is_used_than_requested(steps, sizes):
    """A child uses more than its max: what it has too much is held against its parent's request."""
    waiting = Waiting("regular", True, False, ())
    for kind, what in steps:
        waiting.take(kind, what)
    for number, size in enumerate(sizes):
        waiting.take("put", pod(f"p{number}", {"cpu": size}, "a"))
        waiting.schedule()
    assert len(waiting.refused) == len(sizes)
    waiting.take("put", pod("last", {"cpu": 1}, "a"))
    waiting.check()
    assert "uid-default-p0" not in waiting.refused
