"""Any interleaving of placing, evicting, taking back, keeping and watching leaves what a rebuild from objects gives."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from koordsched.api import core as core_api
from koordsched.api.decoding import convert
from koordsched.engine.transaction import Transaction
from koordsched.framework.overlay import Overlay
from tests.depth import examples
from tests.engine.objects import books, gpu_node, gpu_pod, offline
from tests.engine.plans import Plan
from tests.engine.state import by_node, everything

NODES = ("alder", "birch", "cedar")
CORES = (None, 30, 50, 100, 200)


class Interleavings(RuleBasedStateMachine):
    """Against a model that knows the objects on the server and, of a transaction, the state before it."""

    def __init__(self):
        super().__init__()
        self.scheduler = offline(*(gpu_node(name, gpus=2) for name in NODES))
        self.nodes = dict.fromkeys(NODES, 2)
        self.bound = {}  # name -> manifest, by the server's word
        self.kept = {}  # name -> the pod that a transaction placed, not confirmed yet
        self.serial = 0
        self.transaction = None
        self.checkpoints = []

    # --- the watch -----------------------------------------------------------------------------------

    @precondition(lambda self: self.transaction is None)
    @rule(name=st.sampled_from(NODES), gpus=st.sampled_from((1, 2, 3)))
    def node_changes(self, name, gpus):
        self.scheduler.add(gpu_node(name, gpus=gpus))
        self.nodes[name] = gpus

    @precondition(lambda self: self.transaction is None)
    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name):
        self.scheduler.cluster.remove_node(name)
        self.nodes.pop(name, None)

    @precondition(lambda self: self.transaction is None)
    @rule(on=st.sampled_from(NODES), minor=st.integers(0, 2), core=st.sampled_from((30, 100)))
    def bound_pod_appears(self, on, minor, core):
        self.serial += 1
        self.bind(gpu_pod(f"b{self.serial}", on=on, allocated=((minor, core),), labels={"app": "web"}))

    @precondition(lambda self: self.transaction is None and self.bound)
    @rule(data=st.data(), minor=st.integers(0, 2))
    def allocation_changes(self, data, minor):
        known = self.bound[data.draw(st.sampled_from(sorted(self.bound)))]
        meta = known["metadata"]
        changed = gpu_pod(meta["name"], on=known["spec"]["nodeName"], allocated=((minor, 70),), labels=meta["labels"])
        self.bind(changed)

    @precondition(lambda self: self.transaction is None and self.bound)
    @rule(data=st.data())
    def bound_pod_goes(self, data):
        name = data.draw(st.sampled_from(sorted(self.bound)))
        del self.bound[name]
        self.scheduler.cluster.remove_pod(f"uid-default-{name}")

    @precondition(lambda self: self.transaction is None and self.kept)
    @rule(data=st.data(), as_planned=st.booleans())
    def binding_is_confirmed_or_fails(self, data, as_planned):
        name = data.draw(st.sampled_from(sorted(self.kept)))
        assumed = self.kept.pop(name)
        allocated = books(self.scheduler).allocation.of(assumed)
        if as_planned:
            self.bind(gpu_pod(name, on=assumed.node, allocated=allocated))
        else:
            profile = self.scheduler.profiles["default-scheduler"]
            profile.run_unreserve(None, assumed, assumed.row)
            self.scheduler.cluster.forget(assumed)

    def bind(self, manifest):
        self.bound[manifest["metadata"]["name"]] = manifest
        self.serial += 1
        manifest["metadata"]["resourceVersion"] = str(self.serial)
        self.scheduler.add(manifest)

    # --- transactions --------------------------------------------------------------------------------

    @precondition(lambda self: self.transaction is None)
    @rule()
    def begins(self):
        self.checkpoints = [(None, everything(self.scheduler))]
        self.transaction = Transaction(self.scheduler.cluster, self.scheduler.nominator)

    @precondition(lambda self: self.transaction is not None)
    @rule(core=st.sampled_from(CORES), spread=st.booleans())
    def places(self, core, spread):
        self.serial += 1
        manifest = gpu_pod(f"p{self.serial}", core, hint="spread" if spread else None)
        waiting = self.scheduler.cluster.pods.build(convert(manifest, core_api.Pod))
        plan = Plan(self.scheduler.cluster, self.transaction, Random(self.serial))
        placed = plan.place(self.scheduler.profiles["default-scheduler"], waiting)
        assert placed == (waiting.uid in plan.nodes) == (waiting.uid not in plan.refused)

    @precondition(lambda self: self.transaction is not None)
    @rule(data=st.data())
    def evicts(self, data):
        there = sorted(uid for uid, pod in self.scheduler.cluster.assigned.items() if pod.row >= 0)
        if there:
            self.transaction.evict(self.scheduler.cluster.assigned[data.draw(st.sampled_from(there))])

    @precondition(lambda self: self.transaction is not None)
    @rule()
    def checkpoint(self):
        self.checkpoints.append((self.transaction.checkpoint(), everything(self.scheduler)))

    @precondition(lambda self: self.transaction is not None)
    @rule(data=st.data())
    def rolls_back(self, data):
        at = data.draw(st.integers(0, len(self.checkpoints) - 1))
        del self.checkpoints[at + 1 :]
        to, before = self.checkpoints[at]
        self.transaction.rollback(to)
        assert everything(self.scheduler) == before

    @precondition(lambda self: self.transaction is not None)
    @rule(keep=st.booleans())
    def ends(self, keep):
        with self.transaction as transaction:
            if keep:
                try:
                    self.kept |= {placed.pod.name: placed.pod for placed in transaction.commit()}
                except ValueError:
                    keep = False  # an eviction is in force
        self.transaction = None
        if not keep:
            assert everything(self.scheduler) == self.checkpoints[0][1]

    # --- overlays ------------------------------------------------------------------------------------

    @rule(data=st.data())
    def overlay(self, data):
        cluster, before = self.scheduler.cluster, everything(self.scheduler)
        there = [pod for pod in cluster.assigned.values() if pod.row >= 0]
        if not there:
            return
        away = data.draw(st.sampled_from(sorted(there, key=lambda pod: pod.uid)))
        overlay = Overlay()
        overlay.without(away.row, away)
        seen = cluster.table.pods_count.data.item(away.row)
        with overlay.applied(cluster, None):
            assert cluster.table.pods_count.data.item(away.row) == seen - 1
        assert everything(self.scheduler) == before

    # --- what must be ----------------------------------------------------------------------------------

    @precondition(lambda self: self.transaction is None)
    @invariant()
    def equals_a_rebuild(self):
        nodes = [gpu_node(name, gpus=gpus) for name, gpus in self.nodes.items()]
        allocation = books(self.scheduler).allocation
        assumed = [gpu_pod(name, on=pod.node, allocated=allocation.of(pod)) for name, pod in self.kept.items()]
        objects = [*self.bound.values(), *nodes, *assumed]
        Random(self.serial).shuffle(objects)
        rebuilt = offline(*objects)
        assert by_node(self.scheduler, books(self.scheduler)) == by_node(rebuilt, books(rebuilt))

    def teardown(self):
        if self.transaction is not None:
            with self.transaction:
                pass


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
