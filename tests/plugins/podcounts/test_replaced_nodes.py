"""Nodes replaced by others of other names, labels and taints: who saw it all answers like a new scheduler.

Numbers of label values, of sets of taints and of features are given back and stand for something else later;
whatever is kept by number (counts per domain, judgements, groups of rows) must follow.
"""

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordsched.framework.interface import CycleState
from koordsched.plugins.shared.podcounts import index
from tests.depth import examples
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, node_affinity, pod, term

HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
FEATURE = "UserNamespacesHostNetworkSupport"


def selecting(**labels):
    return {"matchLabels": labels}


def spread(key, app, when="DoNotSchedule", **more):
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": selecting(app=app),
        **more,
    }


def company(kind, key, app):
    wanted = {"labelSelector": selecting(app=app), "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}


def liked(kind, key, app):
    wanted = {"weight": 7, "podAffinityTerm": {"labelSelector": selecting(app=app), "topologyKey": key}}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wanted]}}


def waiting():
    """Pods that ask everything that is answered by number."""
    small = container(cpu="100m")
    web = {"labels": {"app": "web"}}
    return [
        pod("plain", small),
        pod("hosts", small, topologySpreadConstraints=[spread(HOSTNAME, "web")], **web),
        pod("hosts-soft", small, topologySpreadConstraints=[spread(HOSTNAME, "web", "ScheduleAnyway")], **web),
        pod("racks", small, topologySpreadConstraints=[spread(RACK, "web"), spread(ZONE, "db")], **web),
        pod("racks-soft", small, topologySpreadConstraints=[spread(RACK, "web", "ScheduleAnyway")], **web),
        pod("untainted", small, topologySpreadConstraints=[spread(RACK, "web", nodeTaintsPolicy="Honor")], **web),
        pod("lonely", small, affinity=company("podAntiAffinity", HOSTNAME, "web"), **web),
        pod("social", small, affinity=company("podAffinity", RACK, "db"), labels={"app": "db"}),
        pod("fond", small, affinity={**liked("podAffinity", RACK, "db"), **liked("podAntiAffinity", HOSTNAME, "web")}),
        pod("picky", small, affinity=node_affinity([term((HOSTNAME, "NotIn", "n1", "n4", "n9"))])),
        pod("fussy", small, affinity=node_affinity([term((RACK, "Exists"))], [(5, term((RACK, "NotIn", "r1", "r8")))])),
        pod("aged", small, affinity=node_affinity([term(("generation", "Gt", "6"))])),
        pod("pinned", small, nodeSelector={HOSTNAME: "n5"}),
        pod("hardy", small, tolerations=[{"key": "life", "operator": "Exists", "effect": "PreferNoSchedule"}]),
        pod("modern", small, hostNetwork=True, hostUsers=False),
        pod("rich", container(cpu="100m", **{"example.com/unit-5": "1"})),
    ]


def bound(name, on, app, rng):
    affinity = rng.choice((None, None, company("podAntiAffinity", RACK, "web"), liked("podAffinity", HOSTNAME, "web")))
    more = {"affinity": affinity} if affinity else {}
    return pod(name, container(cpu="100m"), on=on, labels={"app": app}, **more)


class History:
    """The same events for a scheduler that lives through all of them, and as a list of what there is now."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.nodes, self.pods, self.serial = {}, {}, 0
        self.old = scheduler(waiting())
        for _ in range(5):
            self.add_node()
        for _ in range(8):
            self.add_pod()

    def step(self):
        actions = [self.replace_node, self.replace_node, self.change_node, self.add_node, self.remove_node]
        self.rng.choice([*actions, self.add_pod, self.add_pod, self.remove_pod])()

    def node(self, name):
        rng = self.rng
        labels = {ZONE: rng.choice("ab")}
        if rng.random() < 0.8:
            labels[RACK] = f"r{rng.randint(self.serial // 2, self.serial)}"
        if rng.random() < 0.3:
            labels["generation"] = str(self.serial)
        if rng.random() < 0.4:
            labels[f"example.com/only-{self.serial}"] = "yes"
        taints = []
        if rng.random() < 0.4:
            taints.append(("life", rng.choice(("NoSchedule", "PreferNoSchedule")), f"v{self.serial}"))
        features = rng.choice(((), (FEATURE,), (FEATURE, f"Feature{self.serial}")))
        more = {f"example.com/unit-{self.serial % 7}": "2"} if rng.random() < 0.4 else {}
        return node(name, labels=labels, taints=taints, features=features, **more)

    def add_node(self):
        self.serial += 1
        name = f"n{self.serial}"
        self.put(self.node(name))

    def put(self, item):
        self.nodes[item["metadata"]["name"]] = item
        self.old.add(item)

    def change_node(self):
        if self.nodes:
            self.put(self.node(self.rng.choice(list(self.nodes))))

    def remove_node(self):
        if len(self.nodes) > 2:
            name = self.rng.choice(list(self.nodes))
            del self.nodes[name]
            self.old.cluster.remove_node(name)
            for uid in [uid for uid, item in self.pods.items() if item["spec"]["nodeName"] == name]:
                if self.rng.random() < 0.7:
                    self.take(uid)

    def replace_node(self):
        self.remove_node()
        self.add_node()

    def add_pod(self):
        self.serial += 1
        item = bound(f"p{self.serial}", self.rng.choice(list(self.nodes)), self.rng.choice(("web", "db")), self.rng)
        self.pods[item["metadata"]["uid"]] = item
        self.old.add(item)

    def remove_pod(self):
        if self.pods:
            self.take(self.rng.choice(list(self.pods)))

    def take(self, uid):
        del self.pods[uid]
        self.old.cluster.remove_pod(uid)

    def check(self):
        """Every pending pod, on every node: verdict, reasons, and each plugin's scores."""
        new = scheduler([*self.nodes.values(), *self.pods.values(), *waiting()])
        for key in self.old.pending:
            assert _answer(self.old, key) == _answer(new, key), key


def _answer(offline, key):
    explanation = offline.explain(key)
    explanation.any_of.sort()
    return msgspec.to_builtins(explanation)


@pytest.mark.parametrize("kept", [64, 0], ids=["all counters kept", "counters dropped all the time"])
@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_who_saw_nodes_come_and_go_answers_like_a_new_scheduler(kept, seed):
    always_kept, budget = index._ALWAYS_KEPT, index._BUDGET
    index._ALWAYS_KEPT, index._BUDGET = kept, budget if kept else 0
    try:
        history = History(seed)
        history.check()
        for _ in range(15):
            for _ in range(history.rng.choice((1, 1, 2, 5, 20))):
                history.step()
            history.check()
    finally:
        index._ALWAYS_KEPT, index._BUDGET = always_kept, budget


@pytest.mark.parametrize(
    ("plugin", "spec"),
    [
        ("PodTopologySpread", {"topologySpreadConstraints": [spread(ZONE, "web")]}),
        ("InterPodAffinity", {"affinity": company("podAntiAffinity", ZONE, "web")}),
    ],
)
def test_dry_runs_come_to_know_a_node_that_moved_although_no_filter_was_asked(plugin, spec):
    """Where filters before it refuse all nodes, one is asked in the dry runs of preemption only."""
    bench = Bench(*(node(f"n-{zone}", labels={ZONE: zone}) for zone in "abc"))
    asked = bench.plugin(plugin)
    bench.add(pod("there", on="n-a", labels={"app": "web"}))
    new, found = bench.pod(pod("new", labels={"app": "web"}, **spec)), []
    for _ in range(2):
        dry_run = asked.dry_run(CycleState(new), new, ())
        unchanged = [np.zeros(3, dtype=np.int64)] * len(dry_run.tallies)
        codes = dry_run.filter(bench.cluster.table, bench.rows, unchanged)
        found.append([not code for code in codes])
        bench.add(node("n-a", labels={ZONE: "b"}))
    assert found == [[False, True, True], [False, False, True]]
