"""What is counted pod by pod equals what is counted afresh, whatever happened in between, and in what-ifs."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.framework.interface import PodScore, PreFilter
from koordsched.plugins.shared.podcounts import index
from tests.depth import examples
from tests.plugins.harness import Bench, same_scores
from tests.reference.plugins import REGISTRY
from tests.reference.randomstate import RandomState
from tests.reference.status import SKIP
from tests.reference.world import World

LIST_DEFAULTS = {
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
    ],
}
WATCHED = (
    ("PodTopologySpread", {}),
    ("PodTopologySpread", LIST_DEFAULTS),
    ("InterPodAffinity", {}),
    ("NodePorts", {}),
    ("NodeResourcesFit", {}),
    ("TaintToleration", {}),
    ("NodeAffinity", {}),
)


class History:
    """A cluster that changes at random, seen by the plugins as events and by the reference as it is."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.state = RandomState(self.rng, namespaces=("default", "default", "default", "prod"))
        self.others = {self.identity(item): item for item in self.state.others()}
        self.nodes = {f"n{i}": self.state.node(f"n{i}") for i in range(self.rng.randint(2, 6))}
        self.pods = {}
        self.bench = Bench(*self.others.values(), *self.nodes.values())
        self.plugins = [
            (self.bench.plugin(name, self.bench.typed_args(name, args)), REGISTRY[name](args)) for name, args in WATCHED
        ]
        self.wanted = [self.spreading(True), self.spreading(True), self.spreading(False), self.state.pod("w")]
        # As long as a pod has the shape, what plugins derived from it stays.
        self.waiting = [self.bench.pod(item) for item in self.wanted]
        self.serial = 0
        for _ in range(self.rng.randint(5, 25)):
            self.add_pod()

    def spreading(self, itself):
        """A pod with constraints of its own, or one that gets the default ones if a service selects it."""
        item = self.state.pod("w")
        item["spec"]["topologySpreadConstraints"] = []
        while itself and not item["spec"]["topologySpreadConstraints"]:
            item["spec"]["topologySpreadConstraints"] = self.state.spread_constraints()
        return item

    @staticmethod
    def identity(item):
        return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]

    # --- events ------------------------------------------------------------------------------------

    def step(self):
        """One random event."""
        events = [self.add_pod] * 4 + [self.remove_pod, self.change_pod]
        events += [self.change_node, self.change_taints, self.remove_node, self.other]
        self.rng.choice(events)()

    def add_pod(self):
        self.serial += 1
        item = self.state.pod(f"e{self.serial}", on=self.rng.choice([*self.nodes, "unknown"]))
        self.pods[item["metadata"]["uid"]] = item
        self.bench.add(item)

    def remove_pod(self):
        if self.pods:
            uid = self.rng.choice(list(self.pods))
            del self.pods[uid]
            self.bench.cluster.remove_pod(uid)

    def change_pod(self):
        """New labels, or on its way out, or a resize that adds nothing: the watch sends the whole pod again."""
        if not self.pods:
            return
        uid = self.rng.choice(list(self.pods))
        item = self.pods[uid]
        metadata = dict(item["metadata"])
        if self.rng.random() < 0.5:
            metadata["labels"] = self.state.pod("x")["metadata"]["labels"]
        else:
            metadata["deletionTimestamp"] = "2031-05-04T08:00:00Z"
        self.pods[uid] = {**item, "metadata": metadata}
        self.bench.add(self.pods[uid])

    def change_node(self):
        name = f"n{self.rng.randrange(8)}"
        self.nodes[name] = self.state.node(name)
        self.bench.add(self.nodes[name])

    def change_taints(self):
        name = self.rng.choice(list(self.nodes))
        spec = self.state.node(name)["spec"]
        self.nodes[name] = {**self.nodes[name], "spec": spec}
        self.bench.add(self.nodes[name])

    def remove_node(self):
        if len(self.nodes) > 1:
            name = self.rng.choice(list(self.nodes))
            del self.nodes[name]
            self.bench.cluster.remove_node(name)

    def other(self):
        if self.rng.random() < 0.3:
            identity = self.rng.choice(list(self.others))
            if identity[0] == "Service":
                item = self.others.pop(identity)
                self.bench.remove(item)
                return
        for item in self.state.others():
            if self.rng.random() < 0.3:
                self.others[self.identity(item)] = item
                self.bench.add(item)

    # --- comparison --------------------------------------------------------------------------------

    def check(self, world=None):
        """All plugins against the reference."""
        world = world or World([*self.others.values(), *self.nodes.values(), *self.pods.values()])
        for item in self.wanted:
            for plugin, naive in self.plugins:
                expected = {node["metadata"]["name"]: naive.filter(item, node, world) for node in world.nodes}
                expected = {node: verdict and (verdict.code, *verdict.reasons) for node, verdict in expected.items()}
                if isinstance(plugin, PreFilter) and naive.pre_filter(item, world) is SKIP:
                    expected = None
                assert self.bench.filter(plugin, item) == expected, plugin.name
                if isinstance(plugin, PodScore):
                    same_scores(self.bench, plugin, naive, item, world, world.nodes)

    def what_if(self):
        """Some pods more, some fewer, and everything as before afterwards."""
        table = self.bench.cluster.table
        here = [uid for uid, item in self.pods.items() if item["spec"]["nodeName"] in self.nodes]
        gone = self.rng.sample(here, min(len(here), 2))
        newcomers = [self.state.pod(f"h{i}") for i in range(self.rng.randint(0, 2))]
        added = [(item, self.rng.choice(list(self.nodes))) for item in newcomers]
        with self.bench.cluster.what_if() as hypothesis:
            for item, name in added:
                hypothesis.add(self.bench.pod(item), table.row_of[name])
            for uid in gone:
                pod = self.bench.cluster.assigned[uid]
                hypothesis.remove(pod, pod.row)
            kept = [item for uid, item in self.pods.items() if uid not in gone]
            world = World([*self.others.values(), *self.nodes.values(), *kept]).with_pods(added)
            self.check(world)
        self.check()


@pytest.mark.parametrize("kept", [64, 0], ids=["all counters kept", "counters dropped all the time"])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_counts_follow_events_and_what_ifs(kept, seed):
    always_kept, budget = index._ALWAYS_KEPT, index._BUDGET
    index._ALWAYS_KEPT, index._BUDGET = kept, budget if kept else 0
    try:
        history = History(seed)
        for round_ in range(24):
            history.step()
            history.check()
            if round_ % 4 == 0:
                history.what_if()
    finally:
        index._ALWAYS_KEPT, index._BUDGET = always_kept, budget
