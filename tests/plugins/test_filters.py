"""What each filter refuses, and with which words."""

from types import SimpleNamespace

import numpy as np
import pytest

from koordsched.api.core import NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordsched.config.plugin_args import NodeAffinityArgs, NodeResourcesFitArgs
from koordsched.framework.handle import WriteFailed
from koordsched.framework.interface import CycleState, PreFilterResult
from koordsched.framework.status import SKIP, SUCCESS, Code, Status
from tests.plugins.harness import Bench, scheduler
from tests.plugins.objects import container, node, node_affinity, pod, pod_affinity, term

UU = "UnschedulableAndUnresolvable"
CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    "tolerations, expected",
    [
        ([], (UU, "node(s) were unschedulable")),
        ([{"key": "other", "operator": "Exists"}], (UU, "node(s) were unschedulable")),
        ([{"key": CORDON, "operator": "Exists", "effect": "NoExecute"}], (UU, "node(s) were unschedulable")),
        ([{"key": CORDON, "operator": "Exists"}], None),
        ([{"key": CORDON, "effect": "NoSchedule"}], None),
        ([{"operator": "Exists"}], None),
    ],
)
def test_node_unschedulable(tolerations, expected):
    bench = Bench(node("free"), node("cordoned", unschedulable=True))
    found = bench.filter(bench.plugin("NodeUnschedulable"), pod("p", tolerations=tolerations))
    assert found == {"free": None, "cordoned": expected}


def test_node_name():
    bench = Bench(node("n1"), node("n2"))
    plugin = bench.plugin("NodeName")
    refusal = (UU, "node(s) didn't match the requested node name")
    assert bench.filter(plugin, pod("p", on="n2")) == {"n1": refusal, "n2": None}
    assert bench.filter(plugin, pod("p", on="elsewhere")) == {"n1": refusal, "n2": refusal}
    assert bench.filter(plugin, pod("p")) == {"n1": None, "n2": None}
    assert plugin.skips(bench.pod(pod("p")))
    assert not plugin.skips(bench.pod(pod("p", on="n2")))


REFUSED = (UU, "node(s) had untolerated taint(s)")


@pytest.mark.parametrize(
    "toleration, expected",
    [
        (None, REFUSED),
        ({"key": "k", "value": "v"}, None),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, None),
        ({"key": "k", "operator": "Equal", "value": "w"}, REFUSED),
        ({"key": "k", "operator": "Exists", "value": "ignored"}, None),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, REFUSED),
        ({"key": "", "operator": "Exists"}, None),
        ({"key": "k", "operator": "Gt", "value": "1"}, REFUSED),
        ({"key": "j", "operator": "Exists"}, REFUSED),
    ],
)
def test_taint_toleration_filter(toleration, expected):
    bench = Bench(
        node("plain"),
        node("tainted", taints=[("k", "NoSchedule", "v")]),
        node("soft", taints=[("k", "PreferNoSchedule")]),
    )
    wanted = pod("p", tolerations=[toleration] if toleration else [])
    assert bench.filter(bench.plugin("TaintToleration"), wanted) == {"plain": None, "tainted": expected, "soft": None}


def test_taint_toleration_refuses_no_execute_and_sees_new_taints():
    bench = Bench(node("n1"))
    plugin = bench.plugin("TaintToleration")
    assert bench.filter(plugin, pod("p")) == {"n1": None}
    bench.add(node("n1", taints=[("k", "NoExecute")]))
    assert bench.filter(plugin, pod("p")) == {"n1": REFUSED}
    bench.add(node("n2", taints=[("j", "PreferNoSchedule"), ("k", "PreferNoSchedule")]))
    assert bench.score(plugin, pod("p", tolerations=[{"key": "j", "operator": "Exists"}])) == {"n1": 0, "n2": 1}
    # A toleration of another effect does not make a PreferNoSchedule taint welcome.
    hard = [{"key": "j", "operator": "Exists", "effect": "NoSchedule"}]
    assert bench.score(plugin, pod("p", tolerations=hard)) == {"n1": 0, "n2": 2}


NOT_SELECTED = (UU, "node(s) didn't match Pod's node affinity/selector")
LABELLED = [
    node("small", labels={"size": "5", "disk": "ssd"}),
    node("large", labels={"size": "12", "disk": "hdd"}),
    node("bare"),
    node("odd", labels={"size": "many"}),
]


@pytest.mark.parametrize(
    "terms, matching",
    [
        ([term(("disk", "In", "ssd", "nvme"))], {"small"}),
        ([term(("disk", "NotIn", "ssd"))], {"large", "bare", "odd"}),
        ([term(("disk", "Exists"))], {"small", "large"}),
        ([term(("disk", "DoesNotExist"))], {"bare", "odd"}),
        ([term(("size", "Gt", "5"))], {"large"}),
        ([term(("size", "Lt", "12"))], {"small"}),
        ([term(("size", "Gt", f"{'0' * 62}5"))], {"large"}),
        ([term(("size", "Gt", "-1"))], set()),  # not a label value, and those are checked for every operator
        ([term(("disk", "Exists"), ("size", "Gt", "5"))], {"large"}),
        ([term(("disk", "In", "ssd")), term(("size", "Gt", "5"))], {"small", "large"}),
        ([term(("unheard.of/key", "Exists"))], set()),
        ([term(("unheard.of/key", "DoesNotExist"))], {"small", "large", "bare", "odd"}),
        ([], set()),
        ([{}], set()),
        ([{}, term(("disk", "In", "ssd"))], {"small"}),
        ([term(("size", "Gt", "five"))], set()),
        ([term(("size", "Gt", "1", "2"))], set()),
        ([term(("size", "Between", "1", "2")), term(("disk", "In", "hdd"))], {"large"}),
        ([term(("disk", "NotIn", "not a label value"))], set()),
        ([term(fields=[("metadata.name", "In", "bare")])], {"bare"}),
        ([term(fields=[("metadata.name", "NotIn", "bare")])], {"small", "large", "odd"}),
        ([term(fields=[("metadata.name", "In", "bare", "odd")])], set()),
        ([term(fields=[("metadata.uid", "In", "x")])], set()),
        ([term(("disk", "Exists"), fields=[("metadata.name", "NotIn", "large")])], {"small"}),
    ],
)
def test_node_affinity_terms(terms, matching):
    bench = Bench(*LABELLED)
    found = bench.filter(bench.plugin("NodeAffinity"), pod("p", affinity=node_affinity(required=terms)))
    assert found == {name: None if name in matching else NOT_SELECTED for name in found}


def test_node_affinity_selector_and_terms_are_anded_and_follow_labels():
    bench = Bench(*LABELLED)
    plugin = bench.plugin("NodeAffinity")
    wanted = pod("p", nodeSelector={"disk": "ssd"}, affinity=node_affinity(required=[term(("size", "Exists"))]))
    fits = lambda: {name for name, verdict in bench.filter(plugin, wanted).items() if verdict is None}  # noqa: E731
    assert fits() == {"small"}
    bench.add(node("bare", labels={"disk": "ssd", "size": "1"}))
    assert fits() == {"small", "bare"}
    bench.cluster.remove_node("small")
    assert fits() == {"bare"}
    bench.add(node("new", labels={"disk": "ssd", "size": "unseen value"}))
    assert fits() == {"bare", "new"}


def added(*expressions, preferred=()):
    terms = (NodeSelectorTerm(match_expressions=tuple(NodeSelectorRequirement(*e) for e in expressions)),)
    return NodeAffinityArgs(added_affinity=NodeAffinity(required=NodeSelector(terms) if expressions else None))


def test_node_affinity_enforced_by_the_profile():
    bench = Bench(*LABELLED)
    plugin = bench.plugin("NodeAffinity", added(("disk", "Exists")))
    enforced = (UU, "node(s) didn't match scheduler-enforced node affinity")
    assert plugin.pre_filter_shape(bench.pod(pod("p")).shape) == SUCCESS
    assert bench.filter(plugin, pod("p")) == {"small": None, "large": None, "bare": enforced, "odd": enforced}
    wanted = pod("p", nodeSelector={"disk": "ssd"})
    expected = {"small": None, "large": NOT_SELECTED, "bare": enforced, "odd": enforced}
    assert bench.filter(plugin, wanted) == expected


NAMED_N1 = term(fields=[("metadata.name", "In", "n1")])


def names(*sets):
    return node_affinity(required=[term(fields=[("metadata.name", "In", *s) for s in each]) for each in sets])


@pytest.mark.parametrize(
    "spec, expected",
    [
        ({}, SKIP),
        ({"nodeSelector": {"a": "b"}}, SUCCESS),
        ({"affinity": node_affinity(required=[])}, SUCCESS),
        ({"affinity": node_affinity(preferred=[(1, term(("a", "Exists")))])}, SKIP),
        ({"affinity": names([["n1"]])}, {"n1"}),
        ({"affinity": names([["n1"]], [["n2", "n3"]])}, {"n1", "n2", "n3"}),
        ({"affinity": names([["n1", "n2"], ["n2", "n3"]])}, {"n2"}),
        ({"affinity": names([["n1"], ["n2"]])}, Status(Code.UNRESOLVABLE, ("pod affinity terms conflict",))),
        ({"affinity": names([["n1"], ["n2"]], [["n3"]])}, {"n3"}),
        ({"affinity": node_affinity(required=[NAMED_N1, term(("a", "Exists"))])}, SUCCESS),
        ({"affinity": node_affinity(required=[term(fields=[("metadata.name", "NotIn", "n1")])])}, SUCCESS),
    ],
)  # fmt: skip
def test_node_affinity_name_sets(spec, expected):
    bench = Bench(node("n1"))
    answer = bench.plugin("NodeAffinity").pre_filter_shape(bench.pod(pod("p", **spec)).shape)
    assert (set(answer.node_names) if isinstance(answer, PreFilterResult) else answer) == expected


@pytest.mark.parametrize(
    "preferred, expected",
    [
        ([(10, term(("disk", "In", "ssd"))), (4, term(("disk", "Exists")))], (14, 4, 0, 0)),
        ([(0, term(("disk", "Exists"))), (3, {})], (0, 0, 0, 0)),
        ([(5, term(("size", "Gt", "x"))), (2, term(("size", "Exists")))], (2, 2, 0, 2)),
        ([], None),
    ],
)  # fmt: skip
def test_node_affinity_preferences(preferred, expected):
    bench = Bench(*LABELLED)
    wanted = pod("p", affinity=node_affinity(preferred=preferred))
    scores = bench.score(bench.plugin("NodeAffinity"), wanted)
    assert scores == (expected and dict(zip(("small", "large", "bare", "odd"), expected, strict=True)))


NO_MEMORY = "Insufficient memory"
ROOM = [
    node("empty", "4", "8Gi", gpu=2, **{"hugepages-2Mi": "64Mi"}),
    node("used", "4", "8Gi", gpu=2),
    pod("e", container(cpu="3", memory="7Gi", gpu=2), on="used"),
]


@pytest.mark.parametrize(
    "amounts, empty, used",
    [
        ({"cpu": "1", "memory": "1Gi"}, None, None),
        ({"cpu": "1001m"}, None, ("Unschedulable", "Insufficient cpu")),
        ({"cpu": "5", "memory": "2Gi"}, (UU, "Insufficient cpu"), (UU, "Insufficient cpu", "Insufficient memory")),
        ({"gpu": 1, "memory": "9Gi"}, (UU, NO_MEMORY), (UU, NO_MEMORY, "Insufficient ex.com/gpu")),
        ({"ephemeral-storage": "1"}, (UU, "Insufficient ephemeral-storage"), (UU, "Insufficient ephemeral-storage")),
        ({"hugepages-2Mi": "2Mi"}, None, (UU, "Insufficient hugepages-2Mi")),
        ({"gpu": 0}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_node_resources_fit_reasons(amounts, empty, used):
    bench = Bench(*ROOM)
    found = bench.filter(bench.plugin("NodeResourcesFit"), pod("p", container(**amounts)))
    assert found == {"empty": empty, "used": used}


def test_node_resources_fit_counts_pods():
    full = node("full")
    full["status"]["allocatable"]["pods"] = "1"
    bench = Bench(full, node("n"), pod("e", on="full"))
    plugin = bench.plugin("NodeResourcesFit")
    assert bench.filter(plugin, pod("p")) == {"full": ("Unschedulable", "Too many pods"), "n": None}
    large = bench.filter(plugin, pod("p", container(cpu="5")))
    assert large == {"full": (UU, "Too many pods", "Insufficient cpu"), "n": (UU, "Insufficient cpu")}


def test_node_resources_fit_with_more_resources_than_bits_in_a_word():
    bench = Bench(*ROOM)
    amounts = {f"ex{i}.com/thing": 1 for i in range(80)}
    found = bench.filter(bench.plugin("NodeResourcesFit"), pod("p", container(cpu="4", **amounts)))
    missing = tuple(f"Insufficient {name}" for name in sorted(amounts))
    assert found == {"empty": (UU, *missing), "used": (UU, "Insufficient cpu", *missing)}


@pytest.mark.parametrize(
    "ignored, groups, resource, passes",
    [
        (("ex.com/gpu",), (), "ex.com/gpu", True),
        (("ex.com/gpu",), (), "ex.com/fpga", False),
        ((), ("ex.com",), "ex.com/fpga", True),
        ((), ("ex",), "ex.com/fpga", False),
        (("cpu", "hugepages-1Gi"), (), "hugepages-1Gi", False),
        ((), ("kubernetes.io",), "kubernetes.io/thing", False),
    ],
)
def test_node_resources_fit_ignores_extended_resources_only(ignored, groups, resource, passes):
    bench = Bench(node("n"))
    plugin = bench.plugin(
        "NodeResourcesFit", NodeResourcesFitArgs(ignored_resources=ignored, ignored_resource_groups=groups)
    )
    found = bench.filter(plugin, pod("p", container(**{resource: 1})))
    assert found == {"n": None if passes else (UU, f"Insufficient {resource}")}


def test_node_resources_fit_inside_a_what_if():
    bench = Bench(*ROOM)
    plugin = bench.plugin("NodeResourcesFit")
    wanted = pod("p", container(cpu="2"))
    victim = next(iter(bench.cluster.assigned.values()))
    with bench.cluster.what_if() as hypothesis:
        hypothesis.remove(victim, victim.row)
        assert bench.filter(plugin, wanted) == {"empty": None, "used": None}
    with bench.cluster.what_if(add=[(0, bench.pod(pod("n", container(cpu="3"))))]):
        assert bench.filter(plugin, wanted)["empty"] == ("Unschedulable", "Insufficient cpu")
    assert bench.filter(plugin, wanted) == {"empty": None, "used": ("Unschedulable", "Insufficient cpu")}


def test_node_ports_skips_pods_without_host_ports():
    bench = Bench(node("n"))
    plugin = bench.plugin("NodePorts")
    assert plugin.pre_filter_shape(bench.pod(pod("p")).shape) == SKIP
    assert plugin.pre_filter_shape(bench.pod(pod("p", container(ports=[80]))).shape) == SUCCESS


RESTART = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}


@pytest.mark.parametrize(
    "spec, fitting",
    [
        ({"containers": [{**container(), **RESTART}]}, {"restarts", "both"}),
        ({"initContainers": [{**container(), **RESTART}]}, {"restarts", "both"}),
        ({"hostNetwork": True, "hostUsers": False}, {"both"}),
        ({"hostNetwork": True, "hostUsers": True}, None),
        ({"hostNetwork": False, "hostUsers": False}, None),
        ({}, None),
    ],
)
def test_node_declared_features(spec, fitting):
    restarts, users = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
    bench = Bench(node("none"), node("restarts", features=[restarts]), node("both", features=[users, restarts]))
    plugin = bench.plugin("NodeDeclaredFeatures")
    wanted = pod("p") | {"spec": {**pod("p")["spec"], **spec}}
    if fitting is None:
        assert plugin.pre_filter_shape(bench.pod(wanted).shape) == SKIP
        return
    refusal = (UU, "node(s) didn't match Pod's required features")
    assert plugin.pre_filter_shape(bench.pod(wanted).shape) == SUCCESS
    found = bench.filter(plugin, wanted)
    assert found == {name: None if name in fitting else refusal for name in ("none", "restarts", "both")}


def test_scheduling_gates():
    bench = Bench()
    plugin = bench.plugin("SchedulingGates")
    assert plugin.pre_enqueue(bench.pod(pod("p"))) == SUCCESS
    gated = bench.pod(pod("p", schedulingGates=[{"name": "a.io/x"}, {"name": "b"}]))
    expected = Status(Code.UNRESOLVABLE, ("waiting for scheduling gates: [a.io/x b]",))
    assert plugin.pre_enqueue(gated) == expected


def test_priority_sort():
    bench = Bench()
    queued = [
        SimpleNamespace(pod=bench.pod(pod("p", priority=priority)), timestamp=timestamp, sequence=sequence)
        for priority, timestamp, sequence in [(0, 5.0, 1), (10, 9.0, 2), (0, 4.0, 3), (10, 9.0, 4), (-1, 0.0, 5)]
    ]
    ordered = sorted(queued, key=bench.plugin("PrioritySort").sort_key)
    assert [entry.sequence for entry in ordered] == [2, 4, 3, 1, 5]


def test_dynamic_resources_after_failed_filtering():
    bench = Bench(node("n"))
    plugin = bench.plugin("DynamicResources")
    cycle = CycleState(bench.pod(pod("p")))
    codes = np.zeros(1, dtype=np.int32)
    ordinary = plugin.post_filter(cycle, cycle.pod, codes).status
    assert ordinary == Status(Code.UNSCHEDULABLE, ("no new claims to deallocate",))
    cycle.not_pre_filtered = frozenset({"DynamicResources", "NodeDeclaredFeatures"})
    assert plugin.post_filter(cycle, cycle.pod, codes).status == Status(Code.ERROR, ("not found",))


@pytest.mark.parametrize(
    "failure, expected",
    [(None, SUCCESS), (WriteFailed('pods "p" not found'), Status(Code.ERROR, ('pods "p" not found',)))],
)
async def test_default_binder(failure, expected):
    bound = []

    class Writes:
        async def bind(self, pod, node, annotations=None):
            if failure is not None:
                raise failure
            bound.append((pod.key, node))

    bench = Bench(node("n"))
    bench.handle.writes = Writes()
    wanted = bench.pod(pod("p"))
    assert await bench.plugin("DefaultBinder").bind(CycleState(wanted), wanted, "n") == expected
    assert bound == ([] if failure else [("default/p", "n")])


def test_an_affinity_term_with_a_selector_that_is_none_is_an_error():
    wrong = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
    away = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": wrong}]}
    bench = Bench(node("n"))
    plugin, new = bench.plugin("InterPodAffinity"), bench.pod(pod("p", affinity={"podAntiAffinity": away}))
    refusal = Status(Code.ERROR, ("'Like' is not a valid label selector operator",))
    assert plugin.pre_filter(CycleState(new), new) == refusal
    assert plugin.pre_score(CycleState(new), new, bench.rows) == refusal


def test_a_constraint_with_a_selector_that_is_none_is_an_error_also_where_only_scores_are_asked():
    wrong = {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}
    soft = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": wrong}
    bench = Bench(node("n"))
    plugin, new = bench.plugin("PodTopologySpread"), bench.pod(pod("p", topologySpreadConstraints=[soft]))
    assert not plugin.abstains(CycleState(new), new)
    refusal = Status(Code.ERROR, ("'Like' is not a valid label selector operator",))
    assert plugin.pre_score(CycleState(new), new, bench.rows) == plugin.pre_filter(CycleState(new), new) == refusal


@pytest.mark.parametrize("field", ["labelSelector", "namespaceSelector"])
@pytest.mark.parametrize(
    "requirement",
    [("Bogus", ["x"]), ("NotIn", []), ("DoesNotExist", ["y"]), ("Lt", ["x"])],
    ids=["operator", "no values", "values", "no number"],
)
def test_an_anti_affinity_with_a_selector_that_no_server_accepts_keeps_no_pod_away(requirement, field):
    """A pod that has it all the same restricts no other one."""
    operator, values = requirement
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, field: selector}
    there = pod("there", affinity=pod_affinity(required_anti=[away]), on="n1")
    offline = scheduler([node("n1"), there, pod("p", labels={"app": "x"})])
    assert offline.schedule("default/p").node == "n1"
    assert offline.cluster.listener_errors.count == 0
