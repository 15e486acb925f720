"""Whatever happens, in whatever order: the columns are as if the plugin had only been told what is there in the end,
and what they say is what the naive reference says."""

from random import Random

import pytest

from koordsched.engine.transaction import Transaction
from koordsched.fakecluster.clock import rfc3339
from koordsched.framework.interface import CycleState
from tests.parity.fresh import fresh_seeds
from tests.plugins.loadaware.world import Clock, World
from tests.reference.plugins.loadawarescheduling import LoadAwareScheduling, seconds
from tests.reference.randomloads import RandomLoads
from tests.reference.randomstate import RandomState
from tests.reference.world import World as Plain

NODES = ("n0", "n1", "n2")
PODS = [f"p{i}" for i in range(9)]


class History:
    """Steps applied to a world, and what is there in the end.

    `seen`: uid -> when a pod was seen on a node first. `timed`: node -> the last report that had a time, as long as
    there is one.
    """

    def __init__(self, seed):
        self.rng = Random(seed)
        self.loads, self.state = RandomLoads(self.rng), RandomState(self.rng, ("default",))
        self.args = self.loads.args()
        self.world = World(args=self.args)
        self.naive = LoadAwareScheduling(self.args)
        self.nodes, self.pods, self.metrics = {}, {}, {}
        self.assumed, self.seen, self.timed = {}, {}, {}
        self.serial = 0
        self.stamps = {}
        for name in NODES:
            self.put_node(name)

    @property
    def now(self):
        return self.world.clock.now

    def step(self):
        """Something happens."""
        happenings = [
            (self.report, 6),
            (self.lose_report, 1),
            (self.create, 5),
            (self.update, 4),
            (self.rebind, 1),
            (self.delete, 2),
            (self.assume, 5),
            (self.hear_of_pending, 1),
            (self.confirm, 3),
            (self.forget, 2),
            (self.change_node, 2),
            (self.take_node_out, 1),
            (self.suppose, 2),
            (self.pass_time, 4),
        ]
        (happening,) = self.rng.choices([what for what, _ in happenings], [weight for _, weight in happenings])
        happening()
        return happening.__name__

    # --- what may happen -------------------------------------------------------------------------

    def put_node(self, name):
        self.nodes[name] = self.loads.on_node(self.state.node(name))
        self.world.put(self.nodes[name])

    def change_node(self):
        self.put_node(self.rng.choice(NODES))

    def take_node_out(self):
        name = self.rng.choice(NODES)
        if self.nodes.pop(name, None) is not None:
            self.world.cluster.remove_node(name)

    def report(self):
        name = self.rng.choice(NODES)
        node = self.nodes.get(name) or self.state.node(name)
        here = [pod for pod in self.on_nodes() if pod["spec"]["nodeName"] == name]
        self.metrics[name] = self.loads.metric(node, here, self.now)
        if "updateTime" in self.metrics[name]["status"]:
            self.timed[name] = self.metrics[name]
        self.world.put(self.metrics[name])

    def lose_report(self):
        name = self.rng.choice(NODES)
        if name in self.metrics:
            self.timed.pop(name, None)
            self.world.remove(self.metrics.pop(name))

    def fresh_pod(self, name, on=None):
        self.serial += 1
        pod = self.loads.on_pod(self.state.pod(name, on), self.now)
        pod["metadata"].pop("deletionTimestamp", None)
        pod["metadata"]["uid"] = f"{name}-{self.serial}"
        return pod

    def create(self):
        """A pod appears, waiting or on a node, one that may be unknown."""
        name = self.rng.choice(PODS)
        if name in self.pods:
            return
        pod = self.fresh_pod(name, self.rng.choice([None, None, *NODES]))
        self.pods[name] = pod
        if pod["spec"].get("nodeName"):
            self.seen[pod["metadata"]["uid"]] = self.now
        self.world.put(pod)

    def some(self, of):
        return self.rng.choice(sorted(of)) if of else None

    def placed(self):
        return [name for name, pod in self.pods.items() if pod["spec"].get("nodeName")]

    def waiting(self):
        return [name for name, pod in self.pods.items() if not pod["spec"].get("nodeName") and name not in self.assumed]

    def update(self):
        """A pod is resized, starts, or its labels change."""
        name = self.some(self.placed())
        if name is None:
            return
        pod, other = self.pods[name], self.fresh_pod(name, self.pods[name]["spec"]["nodeName"])
        known = {each["type"] for each in pod["status"].get("conditions", ())}
        conditions = [each for each in other["status"]["conditions"] if each["type"] not in known]
        pod = {**pod, "status": {**pod["status"], "conditions": [*pod["status"].get("conditions", ()), *conditions]}}
        what = self.rng.random()
        if what < 0.4:
            pod["spec"] = {**pod["spec"], "containers": other["spec"]["containers"]}
        elif what < 0.6:
            pod["metadata"] = {**other["metadata"], "uid": pod["metadata"]["uid"]}
        self.pods[name] = pod
        self.world.put(pod)

    def rebind(self):
        """By the API server's word a pod is on another node than we thought."""
        name = self.some([*self.placed(), *self.assumed])
        if name is None:
            return
        self.bound(name, self.rng.choice(NODES))

    def bound(self, name, node):
        pod = self.pods[name]
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": self.moment()}]
        self.assumed.pop(name, None)
        self.pods[name] = {
            **pod,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**pod["status"], "conditions": conditions},
        }
        self.world.put(self.pods[name])

    def moment(self):
        return rfc3339(self.now)

    def confirm(self):
        """The binding is seen; the conditions say when the pod was placed, or do not yet."""
        name = self.some(self.assumed)
        if name is None:
            return
        if self.rng.random() < 0.6:
            self.bound(name, self.assumed[name].node)
            return
        own = self.assumed.pop(name)
        self.pods[name] = {**self.pods[name], "spec": {**self.pods[name]["spec"], "nodeName": own.node}}
        self.world.put(self.pods[name])

    def delete(self):
        name = self.some(self.pods)
        if name is not None:
            pod = self.pods.pop(name)
            self.assumed.pop(name, None)
            self.seen.pop(pod["metadata"]["uid"], None)
            self.world.remove(pod)

    def assume(self):
        name, node = self.some(self.waiting()), self.some(self.nodes)
        if name is not None and node is not None:
            pod = self.pods[name]
            self.assumed[name] = self.world.assume(pod, node)
            self.seen[pod["metadata"]["uid"]] = self.now

    def hear_of_pending(self):
        """A pod that we placed is changed before the binding is seen."""
        name = self.some(self.assumed)
        if name is not None:
            self.world.cluster.pod_seen(self.world.pod(self.pods[name]))

    def forget(self):
        name = self.some(self.assumed)
        if name is not None:
            assert self.world.cluster.forget(self.assumed.pop(name))
            self.seen.pop(self.pods[name]["metadata"]["uid"], None)

    def suppose(self):
        """Pods come and go in a transaction that is rolled back."""
        cluster = self.world.cluster
        name, node = self.some(self.waiting()), self.some(self.nodes)
        announced = len(self.world.announced)
        with Transaction(cluster, self.world.offline.nominator) as transaction:
            there = [uid for uid, pod in cluster.assigned.items() if pod.row >= 0]
            for uid in self.rng.sample(sorted(there), min(2, len(there))):
                transaction.evict(cluster.assigned[uid])
            if name is not None and node is not None:
                cycle = CycleState(self.world.pod(self.pods[name]))
                assert transaction.place(cycle, self.world.profile, self.world.table.row_of[node]).ok
        assert len(self.world.announced) == announced

    def pass_time(self):
        self.world.pass_time(self.rng.choice([0.25, 1, 7, 30, 61, 179.5, 180, 300]))

    # --- what is to hold -------------------------------------------------------------------------

    def on_nodes(self):
        """The pods on nodes as objects, those included that are assumed."""
        for name, pod in self.pods.items():
            if name in self.assumed:
                yield {**pod, "spec": {**pod["spec"], "nodeName": self.assumed[name].node}}
            elif pod["spec"].get("nodeName"):
                yield pod

    def rebuilt(self):
        """A world that was told what is there, in any order, and nothing of how it came about."""
        clock = Clock()
        fresh = World(args=self.args, clock=clock)
        nodes = list(self.nodes.values())
        placed = [self.pods[name] for name in self.placed()]
        metrics = list(self.metrics)
        for what in self.rng.sample([*nodes, *placed, *metrics], len(nodes) + len(placed) + len(metrics)):
            clock.now = self.now
            if isinstance(what, str):
                if what in self.timed:
                    fresh.put(self.timed[what])
                what = self.metrics[what]
            elif what["kind"] == "Pod":
                clock.now = self.seen[what["metadata"]["uid"]]
            fresh.put(what)
        for name, own in self.assumed.items():
            clock.now = self.seen[own.uid]
            if own.node in self.nodes:
                fresh.assume(self.pods[name], own.node)
        clock.now = self.now
        fresh.offline.timers.run()
        return fresh

    def plain(self):
        """The same for the reference."""
        plain = Plain([*self.nodes.values(), *self.on_nodes(), *self.metrics.values()])
        plain.now, plain.first_seen = self.now, self.seen
        plain.last_update = {name: seconds(metric["status"]["updateTime"]) for name, metric in self.timed.items()}
        return plain

    def check(self, happened):
        """The columns are right, and rows that changed say so: what is remembered of verdicts is not stale."""
        self.world.offline.timers.run()
        readings, table = self.world.readings(), self.world.table
        assert readings == self.rebuilt().readings(), happened
        for (name, kind), reading in readings.items():
            row = table.row_of[name]
            before, serial = self.stamps.get((name, kind, row), (None, -1))
            stamp = table.log.stamp(row, self.world.columns.facet)
            assert reading == before or stamp > serial, happened
            self.stamps[name, kind, row] = reading, stamp

    def compare(self, happened):
        """Verdicts and scores as the reference has them."""
        plain = self.plain()
        for number in range(2):
            pod = self.fresh_pod(f"new{number}")
            verdicts = {node["metadata"]["name"]: self.naive.filter(pod, node, plain) for node in plain.nodes}
            assert self.world.refusals(pod) == {n: s and s.reasons[0] for n, s in verdicts.items()}, happened
            scores = {node["metadata"]["name"]: self.naive.score(pod, node, plain, plain.nodes) for node in plain.nodes}
            assert self.world.scores(pod) == scores, happened


def walk(seed, steps):
    """So many steps; all is checked after each."""
    history, happened = History(seed), []
    for _ in range(steps):
        happened.append(history.step())
        history.check(happened)
        history.compare(happened)


@pytest.mark.parametrize("seed", fresh_seeds("loads over time", 12))
def test_after_every_step_as_a_rebuild_and_as_the_reference(seed):
    walk(seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", fresh_seeds("long loads over time", 150))
def test_over_a_long_time(seed):
    walk(seed, 100)
