"""Section 7 of the default-plugins specification, the cases of plugins that look at other pods."""

import pytest

from tests.plugins.harness import Bench, explain, normalized, totals, weighted
from tests.plugins.objects import (
    container,
    deployed,
    node,
    pod,
    pod_affinity,
    pod_term,
    service,
    spread,
)
from tests.plugins.test_default_plugins_cases import T4, of_t4

HOSTNAME = "kubernetes.io/hostname"
UU = "UnschedulableAndUnresolvable"
SKEW = ("Unschedulable", "node(s) didn't match pod topology spread constraints")
NO_LABEL = (UU, "node(s) didn't match pod topology spread constraints (missing required label)")
X = {"app": "x"}


def test_default_plugins_case_03_soft_spread():
    constraints = [spread("zone", 1, X, hard=False), spread(HOSTNAME, 2, X, hard=False)]
    found = explain(T4, pod("p", container(cpu="1", memory="1000Mi"), topologySpreadConstraints=constraints))
    raw = {n.name: n.scores["PodTopologySpread"].raw for n in found.nodes}
    assert raw == of_t4(8, 7, 1)
    assert weighted(found, "PodTopologySpread") == of_t4(24, 50, 200)
    assert totals(found) == of_t4(472, 204, 505)
    assert found.any_of == ["b1"]


def test_default_plugins_case_04_preferred_pod_affinity():
    affinity = pod_affinity(
        preferred=[(5, pod_term("zone", X))], preferred_anti=[(3, pod_term(HOSTNAME, {"app": "y"}))]
    )
    found = explain(T4, pod("p", container(cpu="1", memory="1000Mi"), affinity=affinity))
    assert weighted(found, "InterPodAffinity") == of_t4(200, 200, 0)


def populated(counts, key=HOSTNAME, labels=X):
    """Nodes n0, n1, … with that many pods each; `key` other than the host name is a zone of each node's own."""
    objects = []
    for i, count in enumerate(counts):
        objects.append(node(f"n{i}", "64", "256Gi", labels={} if key == HOSTNAME else {key: f"z{i}"}))
        objects += [pod(f"e{i}-{j}", on=f"n{i}", labels=labels) for j in range(count)]
    return objects


@pytest.mark.parametrize(
    "max_skew, expected",
    [(1, (20, 60, 100, 0)), (2, (33, 66, 100, 16))],
)
def test_default_plugins_case_18_soft_host_name_spread(max_skew, expected):
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread(HOSTNAME, max_skew, X, hard=False)])
    found = explain(populated((2, 1, 0, 3)), wanted)
    assert tuple(normalized(found, "PodTopologySpread").values()) == expected


def test_default_plugins_case_18_system_defaults():
    found = explain([*populated((4, 3, 2, 1)), service("s", X)], pod("p", labels=X))
    assert tuple(normalized(found, "PodTopologySpread").values()) == (44, 66, 77, 100)


def test_default_plugins_case_18_nil_selector():
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread(HOSTNAME, 1, None, hard=False)])
    found = explain(populated((2, 1, 0, 3)), wanted)
    assert tuple(normalized(found, "PodTopologySpread").values()) == (100, 100, 100, 100)


def spread_verdicts(objects, wanted):
    bench = Bench(*objects)
    return bench.filter(bench.plugin("PodTopologySpread"), wanted)


@pytest.mark.parametrize("labels, first", [(X, SKEW), ({"app": "other"}, None)])
def test_default_plugins_case_19_hard_zone_spread(labels, first):
    wanted = pod("p", labels=labels, topologySpreadConstraints=[spread("zone", 1, X)])
    assert spread_verdicts(populated((2, 1, 1), "zone"), wanted) == {"n0": first, "n1": None, "n2": None}


def test_default_plugins_case_20_min_domains():
    nodes = [node("n0", labels={"zone": "a"}), node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"})]
    placed = [pod("e0", on="n0", labels=X), pod("e1", on="n2", labels=X)]
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X, minDomains=3)])
    found = explain([*nodes, *placed], wanted)
    assert found.message.startswith("0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.")
    enough = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X, minDomains=2)])
    assert explain([*nodes, *placed], enough).any_of == ["n1"]


def test_default_plugins_case_21_node_without_the_label():
    objects = [*populated((1, 1), "zone"), node("bare"), *(pod(f"b{i}", on="bare", labels=X) for i in range(5))]
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X)])
    assert spread_verdicts(objects, wanted) == {"n0": None, "n1": None, "bare": NO_LABEL}


@pytest.mark.parametrize(
    "policy, verdicts",
    [("Honor", (None, None, None)), ("Ignore", (SKEW, SKEW, None)), (None, (SKEW, SKEW, None))],
)
def test_default_plugins_case_22_node_taints_policy(policy, verdicts):
    objects = populated((1, 1), "zone")
    objects.append(node("n2", labels={"zone": "z2"}, taints=[("k", "NoSchedule")]))
    more = {"nodeTaintsPolicy": policy} if policy else {}
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X, **more)])
    assert spread_verdicts(objects, wanted) == dict(zip(("n0", "n1", "n2"), verdicts, strict=True))


def affinity_verdicts(objects, wanted):
    bench = Bench(*objects)
    return bench.filter(bench.plugin("InterPodAffinity"), wanted)


ZONED = [node("a1", labels={"zone": "z1"}), node("a2", labels={"zone": "z1"}), node("b1", labels={"zone": "z2"})]
NOT_TOGETHER = (UU, "node(s) didn't match pod affinity rules")
APART = ("Unschedulable", "node(s) didn't match pod anti-affinity rules")
REPELLED = ("Unschedulable", "node(s) didn't satisfy existing pods anti-affinity rules")


def test_default_plugins_case_23_first_of_a_group():
    affinity = pod_affinity(required=[pod_term("zone", X)])
    nodes = [*ZONED, node("bare")]
    together = {"a1": None, "a2": None, "b1": None, "bare": NOT_TOGETHER}
    assert affinity_verdicts(nodes, pod("p", labels=X, affinity=affinity)) == together
    found = explain(ZONED, pod("p", labels={"app": "z"}, affinity=affinity))
    assert found.message.startswith("0/3 nodes are available: 3 node(s) didn't match pod affinity rules.")
    second = [*nodes, pod("e", on="b1", labels=X)]
    expected = {"a1": NOT_TOGETHER, "a2": NOT_TOGETHER, "b1": None, "bare": NOT_TOGETHER}
    assert affinity_verdicts(second, pod("p", labels=X, affinity=affinity)) == expected


def test_default_plugins_case_24_anti_affinity_is_symmetric():
    holder = pod("e", on="a1", labels={"app": "y"}, affinity=pod_affinity(required_anti=[pod_term("zone", X)]))
    wanted = pod("p", labels=X)
    assert affinity_verdicts([*ZONED, holder], wanted) == {"a1": REPELLED, "a2": REPELLED, "b1": None}
    assert explain([*ZONED, holder], wanted).any_of == ["b1"]
    elsewhere = pod("p", labels=X, namespace="other")
    assert affinity_verdicts([*ZONED, holder], elsewhere) is None


def test_default_plugins_case_25_one_pod_must_match_all_terms():
    terms = [pod_term("zone", X), pod_term("zone", {"tier": "db"})]
    placed = [pod("x", on="a1", labels=X), pod("d", on="a2", labels={"tier": "db"})]
    wanted = pod("p", affinity=pod_affinity(required=terms))
    refused = dict.fromkeys(("a1", "a2", "b1"), NOT_TOGETHER)
    assert affinity_verdicts([*ZONED, *placed], wanted) == refused
    both = pod("b", on="a2", labels={**X, "tier": "db"})
    assert affinity_verdicts([*ZONED, *placed, both], wanted) == {"a1": None, "a2": None, "b1": NOT_TOGETHER}


def test_own_anti_affinity_counts_terminating_pods_and_spread_does_not():
    leaving = pod("e", on="a1", labels=X)
    leaving["metadata"]["deletionTimestamp"] = "2031-05-04T08:00:00Z"
    objects = [*ZONED, leaving]
    affinity = pod_affinity(required_anti=[pod_term("zone", X)])
    assert affinity_verdicts(objects, pod("p", affinity=affinity)) == {"a1": APART, "a2": APART, "b1": None}
    wanted = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X)])
    assert spread_verdicts(objects, wanted) == {"a1": None, "a2": None, "b1": None}


def test_default_constraints_follow_the_controller():
    """A ReplicaSet's selector is ANDed; what its status says changes nothing; gone, it selects nothing."""
    bench = Bench(*populated((2, 0), labels={"app": "x", "version": "1"}), deployed("rs", {**X, "version": "1"}))
    plugin = bench.plugin("PodTopologySpread")
    wanted = pod("p", labels={"app": "x", "version": "1"})
    wanted["metadata"]["ownerReferences"] = [
        {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "rs", "uid": "u", "controller": True}
    ]
    raw, normalised = bench.score_and_normalize(plugin, wanted, ["n0", "n1"])
    # 2 pods * ln(2 nodes + 2) + 3 - 1, and the zone term is missed by both.
    assert raw == {"n0": 5, "n1": 2}
    assert normalised == {"n0": 40, "n1": 100}
    bench.remove(deployed("rs", X))
    assert bench.score_and_normalize(plugin, wanted, ["n0", "n1"]) is None
