"""Whatever happens, in whatever order: the columns are as if the plugin had only seen what is there in the end."""

import json
from random import Random

import pytest

from koordsched.engine.transaction import Transaction
from koordsched.framework.interface import CycleState
from koordsched.framework.overlay import Overlay
from tests.depth import quick_first
from tests.parity.fresh import fresh_seeds
from tests.plugins.nodenumaresource.cluster import Cluster, row_state
from tests.plugins.nodenumaresource.naivemachine import NODE, SCHEDULING
from tests.plugins.nodenumaresource.randomstates import HINT, Draw

NODES = ("m0", "m1", "m2")
PODS = [f"p{i}" for i in range(12)]
STATUS = f"{SCHEDULING}resource-status"


class Walk:
    """Steps applied to a cluster, and what is there in the end.

    `pods`: the objects, with a node by the server's word or without; `assumed`: name -> cycle of those that were placed
    and are not confirmed.
    """

    def __init__(self, seed):
        self.rng = Random(seed)
        self.draw = Draw(self.rng, 0, 0)
        self.args = self.draw.args()
        self.cluster = Cluster(args=self.args)
        self.nodes, self.reports, self.pods, self.assumed = {}, {}, {}, {}
        self.shapes = {}
        self.serial = 0
        self.placed_in_all = 0
        self.seen = {}
        for name in NODES:
            self.machine_comes(name)

    # --- nodes and reports -----------------------------------------------------------------------------

    def machine_comes(self, name=None):
        """Another machine by a known name; its node and its report come in any order, the report perhaps never."""
        name = name or self.rng.choice(NODES)
        node, report, self.shapes[name] = self.draw.node(name)
        things = [node, *([report] if report is not None else [])]
        for thing in self.rng.sample(things, len(things)):
            self.put(thing)

    def put(self, thing):
        kept = self.nodes if thing["kind"] == "Node" else self.reports
        kept[thing["metadata"]["name"]] = thing
        self.cluster.put(thing)

    def node_changes(self):
        """Labels and annotations, the machine stays."""
        name = self.rng.choice(NODES)
        if name in self.nodes:
            other, _, _ = self.draw.node(name)
            metadata = {**self.nodes[name]["metadata"], "labels": other["metadata"]["labels"]}
            metadata["annotations"] = other["metadata"]["annotations"]
            self.put({**self.nodes[name], "metadata": metadata})

    def node_goes(self):
        name = self.rng.choice(NODES)
        if name in self.nodes:
            self.cluster.remove(self.nodes.pop(name))

    def report_comes(self):
        """Perhaps for the first time, perhaps without its node, perhaps of a machine that has shrunk."""
        name = self.rng.choice(NODES)
        report = self.draw.topology(name, self.shapes[name], 0)
        if self.rng.random() < 0.3:
            key, annotations = f"{NODE}cpu-topology", report["metadata"]["annotations"]
            shown = self.rng.sample(self.shapes[name].detail, len(self.shapes[name].detail) * 2 // 3 or 1)
            annotations[key] = self.rng.choice(["{", '{"detail": [{"id": 9999}]}', json.dumps({"detail": shown})])
        self.put(report)

    def report_goes(self):
        name = self.rng.choice(NODES)
        if name in self.reports:
            self.cluster.remove(self.reports.pop(name))

    # --- pods ------------------------------------------------------------------------------------------

    def new_pod(self, name):
        self.serial += 1
        pod = self.draw.pod(name, Random(self.rng.random()))
        pod["metadata"]["annotations"].pop(HINT, None)
        pod["metadata"] |= {"uid": f"{name}-{self.serial}", "resourceVersion": str(self.serial)}
        pod["spec"]["schedulerName"] = "default-scheduler"
        return pod

    def pod_comes(self):
        """One that waits, or one that is on a node, which may be unknown."""
        name = self.rng.choice(PODS)
        if name in self.pods:
            return
        pod = self.new_pod(name)
        if self.rng.random() < 0.4:
            pod["spec"]["nodeName"] = self.rng.choice(NODES)
            self.draw.hold(pod, self.shapes[pod["spec"]["nodeName"]])
        self.pods[name] = pod
        self.cluster.put(pod)

    def on_nodes(self):
        return [name for name, pod in self.pods.items() if pod["spec"].get("nodeName")]

    def some(self, names):
        return self.rng.choice(sorted(names)) if names else None

    def pod_changes(self):
        """It is given something else, or has other labels."""
        name = self.some(self.on_nodes())
        if name is None:
            return
        pod = self.pods[name]
        meta = {**pod["metadata"], "annotations": dict(pod["metadata"]["annotations"])}
        changed = {**pod, "metadata": meta}
        what = self.rng.random()
        if what < 0.6:
            self.draw.hold(changed, self.shapes[pod["spec"]["nodeName"]])
        elif what < 0.8:
            meta["annotations"].pop(STATUS, None)
        else:
            meta["labels"] = self.new_pod(name)["metadata"]["labels"]
        self.bound(name, changed)

    def bound(self, name, pod):
        self.serial += 1
        pod["metadata"]["resourceVersion"] = str(self.serial)
        self.assumed.pop(name, None)
        self.pods[name] = pod
        self.cluster.put(pod)

    def pod_goes(self):
        name = self.some(self.pods)
        if name is not None:
            self.assumed.pop(name, None)
            self.cluster.remove(self.pods.pop(name))

    # --- placing ---------------------------------------------------------------------------------------

    def waiting(self):
        return [name for name, pod in self.pods.items() if not pod["spec"].get("nodeName") and name not in self.assumed]

    def attempt(self, transaction, name, node):
        """The cycle of a pod that was placed; None if it cannot be."""
        cluster, row = self.cluster, self.cluster.table.row_of[node]
        pod = cluster.pod(self.pods[name])
        plugin = cluster.plugin
        early = plugin.pre_filter_shape(pod.shape)
        if early.code.text == "Skip":
            early = None
        elif not early.ok or plugin.filter_rows(pod.shape, cluster.table, slice(row, row + 1)) is not None:
            return None
        cycle = CycleState(pod)
        return cycle if transaction.place(cycle, cluster.profile, row).ok else None

    def place(self):
        name, node = self.some(self.waiting()), self.some(self.nodes)
        if name is None or node is None:
            return
        with Transaction(self.cluster.state, self.cluster.offline.nominator) as transaction:
            cycle = self.attempt(transaction, name, node)
            if cycle is not None:
                transaction.commit()
                self.assumed[name] = cycle
                self.placed_in_all += self.cluster.columns.allocation.of(cycle.pod) is not None

    def binding_ends(self):
        """It is confirmed as it was decided, or says something else, or on another node; or it has failed."""
        name = self.some(self.assumed)
        if name is None:
            return
        cycle = self.assumed[name]
        pod, state = cycle.pod, self.cluster.state
        what = self.rng.random()
        if what < 0.3:
            self.cluster.profile.run_unreserve(cycle, pod, pod.row)
            assert state.forget(pod)
            del self.assumed[name]
            return
        confirmed = self.written(name)
        if what > 0.8:
            confirmed["spec"]["nodeName"] = self.rng.choice(NODES)
        if what > 0.7:
            self.draw.hold(confirmed, self.shapes[confirmed["spec"]["nodeName"]])
        self.bound(name, confirmed)

    def written(self, name):
        """The object of an assumed pod as the API server would have it."""
        pod, own = self.pods[name], self.assumed[name].pod
        given = self.cluster.columns.allocation.of(own)
        annotations = dict(pod["metadata"]["annotations"])
        annotations.pop(STATUS, None)  # of an attempt that came to nothing: PreBind takes it away
        if given is not None:
            annotations[STATUS] = self.cluster.columns.allocation.text(given)
        metadata = {**pod["metadata"], "annotations": annotations}
        return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": own.node}}

    def suppose(self):
        """Pods leave and others come in a transaction that is rolled back, in parts or as a whole."""
        state, before = self.cluster.state, self.states()
        with Transaction(state, self.cluster.offline.nominator) as transaction:
            for _ in range(self.rng.randint(1, 6)):
                mark, there = transaction.checkpoint(), sorted(u for u, pod in state.assigned.items() if pod.row >= 0)
                names = [name for name in self.waiting() if self.pods[name]["metadata"]["uid"] not in state.assigned]
                if there and self.rng.random() < 0.5:
                    transaction.evict(state.assigned[self.rng.choice(there)])
                elif names and self.nodes:
                    self.attempt(transaction, self.some(names), self.some(self.nodes))
                if self.rng.random() < 0.2:
                    transaction.rollback(mark)
        assert self.states() == before

    def overlay(self):
        """For one pod, some rows read differently: others are away, or there."""
        state, before = self.cluster.state, self.states()
        there = sorted((pod for pod in state.assigned.values() if pod.row >= 0), key=lambda pod: pod.uid)
        if not there:
            return
        away = self.rng.choice(there)
        overlay = Overlay()
        overlay.without(away.row, away)
        row, name = away.row, away.node
        with overlay.applied(state, None):
            inside = row_state(self.cluster.columns, row)
        others = [pod for pod in self.as_placed() if pod["metadata"]["uid"] != away.uid]
        assert inside == self.rebuilt(others).states()[name]
        overlay = Overlay()
        overlay.without(row, away)
        overlay.with_pod(row, away)
        with overlay.applied(state, None):
            assert row_state(self.cluster.columns, row) == before[name]
        assert self.states() == before

    def what_if(self):
        """Pods are tried away from their row, and back."""
        state, before = self.cluster.state, self.states()
        there = sorted((pod for pod in state.assigned.values() if pod.row >= 0), key=lambda pod: pod.uid)
        with state.what_if() as hypothesis:
            for pod in self.rng.sample(there, min(3, len(there))):
                hypothesis.remove(pod, pod.row)
                if self.rng.random() < 0.5:
                    hypothesis.add(pod, pod.row)
        assert self.states() == before

    # --- what is to hold -------------------------------------------------------------------------------

    def states(self):
        return self.cluster.states()

    def as_placed(self):
        """The pods on nodes as objects, those included that are assumed."""
        return [
            self.written(name) if name in self.assumed else pod
            for name, pod in self.pods.items()
            if name in self.assumed or pod["spec"].get("nodeName")
        ]

    def rebuilt(self, pods):
        """A cluster that heard of what is there, in any order."""
        things = [*self.nodes.values(), *self.reports.values(), *pods]
        return Cluster(*self.rng.sample(things, len(things)), args=self.args)

    def step(self):
        """Something happens, and everything is as it should be."""
        steps = {
            self.machine_comes: 1, self.node_changes: 2, self.node_goes: 1, self.report_comes: 3, self.report_goes: 1,
            self.pod_comes: 8, self.pod_changes: 2, self.pod_goes: 3, self.place: 10, self.binding_ends: 5,
            self.suppose: 2, self.overlay: 2, self.what_if: 1,
        }  # fmt: skip
        (happening,) = self.rng.choices(list(steps), list(steps.values()))
        happening()
        return happening.__name__

    def check(self, happened):
        """As a rebuild; rows that changed say so, so that verdicts kept of them are not stale."""
        states, cluster, rebuilt = self.states(), self.cluster, self.rebuilt(self.as_placed())
        assert states == rebuilt.states(), happened
        for name, now in states.items():
            row = cluster.table.row_of[name]
            before, serial = self.seen.get((name, row), (None, -1))
            stamp = cluster.table.log.stamp(row, cluster.plugin.facets)
            assert now == before or stamp > serial, happened
            self.seen[name, row] = now, stamp
        assert self.verdicts(cluster) == self.verdicts(rebuilt), happened

    def verdicts(self, cluster):
        """What is said to a pod, by node."""
        pod = cluster.pod(self.draw.pod("new", Random(self.serial)))
        status = cluster.plugin.pre_filter_shape(pod.shape)
        if not status.ok:
            return str(status)
        reasons, found = cluster.profile.handle.reasons, {}
        codes = cluster.plugin.filter_rows(pod.shape, cluster.table, cluster.table.all_rows)
        for name, row in cluster.table.row_of.items():
            code = 0 if codes is None else int(codes[row])
            found[name] = reasons[code].texts if code else ()
        return found


def walk(seed, steps):
    walked, happened = Walk(seed), []
    for _ in range(steps):
        happened.append(walked.step())
        walked.check(happened[-8:])
    return walked


@pytest.mark.parametrize("first", quick_first(range(0, 40, 4), 1))
def test_after_every_step_as_a_rebuild(first):
    assert sum(walk(seed, 80).placed_in_all for seed in range(first, first + 4)) > 2


@pytest.mark.parametrize("seed", fresh_seeds("CPUs over time", 4))
def test_after_every_step_as_a_rebuild_on_fresh_seeds(seed):
    walk(seed, 60)
