"""Which changes are worth an attempt to a pod that the plugin rejected (core spec 3.4)."""

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.events import NODE, POD, ActionType
from koordsched.queue.hints import QueueingHint
from tests.plugins.harness import Bench, NoNominations
from tests.plugins.objects import container, node, node_affinity, pod, pod_affinity, pod_term, spread, term


def wire(item):
    return None if item is None else convert(item, core.Node)


def ask(plugin_name, resource, action, waiting, old, new):
    """The answer of the registration that covers the action; None if there is none."""
    bench = Bench()
    plugin = bench.plugin(plugin_name)
    waiting = bench.pod(waiting)
    if resource == NODE:
        old, new = wire(old), wire(new)
    else:
        old, new = (item and bench.pod(item) for item in (old, new))
    for registration in plugin.events_to_register():
        if registration.event.resource == resource and registration.event.action & action:
            if registration.fn is None:
                return True
            return {QueueingHint.QUEUE: True, QueueingHint.SKIP: False}[registration.fn(waiting, old, new)]
    return None


ADD, TAINT, LABEL = ActionType.ADD, ActionType.UPDATE_NODE_TAINT, ActionType.UPDATE_NODE_LABEL
ALLOCATABLE, FEATURE = ActionType.UPDATE_NODE_ALLOCATABLE, ActionType.UPDATE_NODE_DECLARED_FEATURE
DELETE, SCALE_DOWN = ActionType.DELETE, ActionType.UPDATE_POD_SCALE_DOWN
TOLERATION, GATES = ActionType.UPDATE_POD_TOLERATION, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED

CORDONED = node("n", unschedulable=True)
TAINTED = node("n", taints=[("k", "NoSchedule")])
TOLERANT = pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
OTHERWISE_TOLERANT = pod("p", tolerations=[{"key": "x", "operator": "Exists"}])
ON_SSD = pod("p", nodeSelector={"disk": "ssd"})
SSD, HDD = node("n", labels={"disk": "ssd"}), node("n", labels={"disk": "hdd"})
BIG = pod("p", container(cpu="4", gpu=1))
FEATURED = pod("p", hostNetwork=True, hostUsers=False)


@pytest.mark.parametrize(
    "plugin, action, waiting, old, new, expected",
    [
        ("NodeUnschedulable", ADD, pod("p"), None, node("n"), True),
        ("NodeUnschedulable", ADD, pod("p"), None, CORDONED, False),
        ("NodeUnschedulable", TAINT, pod("p"), CORDONED, node("n"), True),
        ("NodeUnschedulable", TAINT, pod("p"), node("n"), TAINTED, False),
        ("NodeName", ADD, pod("p"), None, node("n"), True),
        ("NodeName", LABEL, pod("p"), node("n"), SSD, None),
        ("TaintToleration", ADD, pod("p"), None, node("n"), True),
        ("TaintToleration", ADD, pod("p"), None, TAINTED, False),
        ("TaintToleration", TAINT, pod("p"), TAINTED, node("n"), True),
        ("TaintToleration", TAINT, pod("p"), node("n"), node("n"), False),
        ("TaintToleration", TAINT, pod("p"), TAINTED, node("n", taints=[("k", "NoExecute")]), False),
        ("TaintToleration", TAINT, pod("p"), TAINTED, node("n", taints=[("k", "PreferNoSchedule")]), True),
        ("NodeAffinity", ADD, ON_SSD, None, SSD, True),
        ("NodeAffinity", ADD, ON_SSD, None, HDD, False),
        ("NodeAffinity", LABEL, ON_SSD, HDD, SSD, True),
        ("NodeAffinity", LABEL, ON_SSD, SSD, SSD, False),
        ("NodeAffinity", LABEL, ON_SSD, SSD, HDD, False),
        ("NodePorts", ADD, pod("p", container(ports=[80])), None, node("n"), True),
        ("NodeResourcesFit", ADD, BIG, None, node("n", "4", gpu=1), True),
        ("NodeResourcesFit", ADD, BIG, None, node("n", "4"), False),
        ("NodeResourcesFit", ALLOCATABLE, BIG, node("n", "3", gpu=1), node("n", "4", gpu=1), True),
        ("NodeResourcesFit", ALLOCATABLE, BIG, node("n", "3", gpu=1), node("n", "3500m", gpu=1), False),
        ("NodeResourcesFit", ALLOCATABLE, BIG, node("n", "4", gpu=1), node("n", "4", "9Gi", gpu=1), False),
        ("NodeResourcesFit", ALLOCATABLE, BIG, node("n", "4"), node("n", "4", gpu=1), True),
        ("NodeResourcesFit", ALLOCATABLE, pod("p"), node("n", pods="1"), node("n", pods="2"), True),
        ("NodeResourcesFit", ALLOCATABLE, pod("p"), node("n", pods="2"), node("n", "9", pods="2"), False),
        ("NodeResourcesFit", ALLOCATABLE, pod("p"), node("n"), node("n", pods="0"), False),
        ("NodeResourcesFit", ALLOCATABLE, pod("p"), node("n", cpu="garbage"), node("n"), False),
        ("NodeDeclaredFeatures", ADD, FEATURED, None, node("n"), True),
        ("NodeDeclaredFeatures", FEATURE, FEATURED, node("n"), node("n", features=["x"]), True),
        ("NodeDeclaredFeatures", FEATURE, FEATURED, node("n"), node("n"), False),
    ],
)
def test_node_events(plugin, action, waiting, old, new, expected):
    assert ask(plugin, NODE, action, waiting, old, new) is expected


def holder(cpu="1", on="n", nominated="", **more):
    item = pod("e", container(cpu=cpu, **more), on=on)
    item["status"]["nominatedNodeName"] = nominated
    return item


def with_port(port, on="n", nominated=""):
    item = pod("e", container(ports=[port]), on=on)
    item["status"]["nominatedNodeName"] = nominated
    return item


WANTS_80 = pod("p", container(ports=[("10.0.0.1", "TCP", 80)]))


@pytest.mark.parametrize(
    "plugin, action, waiting, old, new, expected",
    [
        ("SchedulingGates", GATES, pod("p"), pod("p", schedulingGates=[{"name": "g"}]), pod("p"), True),
        ("SchedulingGates", GATES, pod("p"), pod("q", schedulingGates=[{"name": "g"}]), pod("q"), False),
        ("NodeUnschedulable", TOLERATION, pod("p"), pod("p"), TOLERANT, True),
        ("NodeUnschedulable", TOLERATION, pod("p"), pod("p"), OTHERWISE_TOLERANT, False),
        ("TaintToleration", TOLERATION, pod("p"), pod("p"), TOLERANT, True),
        ("TaintToleration", TOLERATION, pod("p"), pod("q"), pod("q"), False),
        ("NodePorts", DELETE, WANTS_80, with_port(80), None, True),
        ("NodePorts", DELETE, WANTS_80, with_port(81), None, False),
        ("NodePorts", DELETE, WANTS_80, with_port(("10.0.0.2", "TCP", 80)), None, False),
        ("NodePorts", DELETE, WANTS_80, with_port(("10.0.0.1", "UDP", 80)), None, False),
        ("NodePorts", DELETE, WANTS_80, with_port(80, on=None), None, False),
        ("NodePorts", DELETE, WANTS_80, with_port(80, on=None, nominated="n"), None, True),
        ("NodeResourcesFit", DELETE, BIG, holder(), None, True),
        ("NodeResourcesFit", DELETE, BIG, holder(on=None), None, False),
        ("NodeResourcesFit", DELETE, BIG, holder(on=None, nominated="n"), None, True),
        ("NodeResourcesFit", SCALE_DOWN, BIG, BIG, pod("p", container(cpu="3", gpu=1)), True),
        ("NodeResourcesFit", SCALE_DOWN, BIG, holder("2"), holder("1"), True),
        ("NodeResourcesFit", SCALE_DOWN, BIG, holder("2", on=None), holder("1", on=None), False),
        ("NodeResourcesFit", SCALE_DOWN, BIG, holder("1", memory="2Gi"), holder("1", memory="1Gi"), False),
        ("NodeDeclaredFeatures", ActionType.UPDATE_POD_LABEL, FEATURED, FEATURED, FEATURED, False),
        ("NodeDeclaredFeatures", ActionType.UPDATE_POD_LABEL, FEATURED, FEATURED, pod("p"), True),
        ("NodeAffinity", TOLERATION, ON_SSD, ON_SSD, ON_SSD, None),
        ("DynamicResources", DELETE, pod("p"), holder(), None, None),
    ],
)  # fmt: skip
def test_pod_events(plugin, action, waiting, old, new, expected):
    assert ask(plugin, POD, action, waiting, old, new) is expected


def test_node_affinity_hint_considers_enforced_terms():
    affinity = node_affinity(required=[term(("zone", "Exists"))])
    assert ask("NodeAffinity", NODE, LABEL, pod("p", affinity=affinity), HDD, node("n", labels={"zone": "a"})) is True


X, Y = {"app": "x"}, {"app": "y"}
SPREAD = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X), spread("rack", 1, X)])
SPREAD_TWICE = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X), spread("rack", 1, Y)])
HONORS_TAINTS = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X, nodeTaintsPolicy="Honor")])
KEYED = node("n", labels={"zone": "a", "rack": "r"})
KEYED_AND_TAINTED = node("n", labels={"zone": "a", "rack": "r"}, taints=[("k",)])
BOTH_AWAY = pod("p", affinity=pod_affinity(required_anti=[pod_term("zone", X), pod_term("zone", {"tier": "t"})]))
TOWARDS = pod("p", affinity=pod_affinity(required=[pod_term("zone", X)]))
AWAY = pod("p", affinity=pod_affinity(required_anti=[pod_term("zone", X)]))
POD_LABEL = ActionType.UPDATE_POD_LABEL


def placed(labels, on="n", namespace="default", **spec):
    return pod("e", on=on, labels=labels, namespace=namespace, **spec)


def tolerant(item):
    return {**item, "spec": {**item["spec"], "tolerations": [{"operator": "Exists"}]}}


REPELLING = placed(Y, affinity=pod_affinity(required_anti=[pod_term("zone", X)]))


@pytest.mark.parametrize(
    "plugin, action, waiting, old, new, expected",
    [
        ("PodTopologySpread", ADD, SPREAD, None, KEYED, True),
        ("PodTopologySpread", ADD, SPREAD, None, node("n", labels={"zone": "a"}), False),
        ("PodTopologySpread", DELETE, SPREAD, KEYED, None, True),
        ("PodTopologySpread", DELETE, SPREAD, node("n"), None, False),
        ("PodTopologySpread", LABEL, SPREAD, node("n", labels={"zone": "a"}), KEYED, True),
        ("PodTopologySpread", LABEL, SPREAD, KEYED, node("n"), True),
        ("PodTopologySpread", LABEL, SPREAD, KEYED, node("n", labels={"zone": "b", "rack": "r"}), True),
        ("PodTopologySpread", LABEL, SPREAD, KEYED, node("n", labels={"zone": "a", "rack": "r", "x": "y"}), False),
        ("PodTopologySpread", TAINT, SPREAD, KEYED, KEYED_AND_TAINTED, True),
        ("PodTopologySpread", TAINT, SPREAD, node("n"), TAINTED, False),
        ("InterPodAffinity", ADD, TOWARDS, None, KEYED, True),
        ("InterPodAffinity", ADD, TOWARDS, None, node("n"), False),
        ("InterPodAffinity", LABEL, TOWARDS, node("n"), KEYED, True),
        ("InterPodAffinity", LABEL, TOWARDS, KEYED, node("n", labels={"zone": "b"}), True),
        ("InterPodAffinity", LABEL, TOWARDS, KEYED, node("n", labels={"zone": "a"}), False),
        ("InterPodAffinity", LABEL, TOWARDS, KEYED, node("n"), False),
        ("InterPodAffinity", ADD, AWAY, None, node("n"), True),
        ("InterPodAffinity", LABEL, AWAY, KEYED, node("n"), True),
        ("InterPodAffinity", LABEL, AWAY, KEYED, node("n", labels={"zone": "b"}), True),
        ("InterPodAffinity", LABEL, AWAY, node("n"), KEYED, False),
        ("InterPodAffinity", ADD, pod("p"), None, node("n"), True),
    ],
)  # fmt: skip
def test_node_events_of_pod_plugins(plugin, action, waiting, old, new, expected):
    assert ask(plugin, NODE, action, waiting, old, new) is expected


@pytest.mark.parametrize(
    "plugin, action, waiting, old, new, expected",
    [
        ("PodTopologySpread", ADD, SPREAD, None, placed(X), True),
        ("PodTopologySpread", ADD, SPREAD, None, placed(Y), False),
        ("PodTopologySpread", ADD, SPREAD, None, placed(X, namespace="other"), False),
        ("PodTopologySpread", ADD, SPREAD, None, placed(X, on=None), False),
        ("PodTopologySpread", DELETE, SPREAD, placed(X), None, True),
        ("PodTopologySpread", DELETE, SPREAD, placed(Y), None, False),
        ("PodTopologySpread", POD_LABEL, SPREAD, placed(X), placed(Y), True),
        ("PodTopologySpread", POD_LABEL, SPREAD, placed(X), placed({**X, "more": "1"}), False),
        ("PodTopologySpread", POD_LABEL, SPREAD_TWICE, placed(X), placed(Y), True),
        ("PodTopologySpread", TOLERATION, HONORS_TAINTS, HONORS_TAINTS, tolerant(HONORS_TAINTS), True),
        ("PodTopologySpread", TOLERATION, SPREAD, SPREAD, tolerant(SPREAD), False),
        ("InterPodAffinity", ADD, TOWARDS, None, placed(X), True),
        ("InterPodAffinity", ADD, TOWARDS, None, placed(Y), False),
        ("InterPodAffinity", ADD, TOWARDS, None, placed(X, on=None), False),
        ("InterPodAffinity", ADD, AWAY, None, placed(X), False),
        ("InterPodAffinity", POD_LABEL, TOWARDS, placed(Y), placed(X), True),
        ("InterPodAffinity", POD_LABEL, TOWARDS, placed(X), placed({**X, "more": "1"}), False),
        ("InterPodAffinity", POD_LABEL, AWAY, placed(X), placed(Y), True),
        ("InterPodAffinity", POD_LABEL, AWAY, placed(Y), placed(X), False),
        ("InterPodAffinity", POD_LABEL, BOTH_AWAY, placed({**X, "tier": "t"}), placed(X), True),
        ("InterPodAffinity", POD_LABEL, TOWARDS, TOWARDS, pod("p", labels=X), True),
        ("InterPodAffinity", DELETE, AWAY, placed(X), None, True),
        ("InterPodAffinity", DELETE, AWAY, placed(Y), None, False),
        ("InterPodAffinity", DELETE, TOWARDS, placed(X), None, False),
        ("InterPodAffinity", DELETE, pod("p", labels=X), REPELLING, None, True),
        ("InterPodAffinity", DELETE, pod("p", labels=Y), REPELLING, None, False),
    ],
)  # fmt: skip
def test_pod_events_of_pod_plugins(plugin, action, waiting, old, new, expected):
    assert ask(plugin, POD, action, waiting, old, new) is expected


class Promised(NoNominations):
    """Pods promised a node, by its name."""

    def __init__(self, **pods):
        self._pods = pods

    def __len__(self):
        return sum(map(len, self._pods.values()))

    def nominated_on(self, node, priority):
        return [other for other in self._pods.get(node, ()) if other.priority >= priority]


@pytest.mark.parametrize(
    "left_on, coming, expected",
    [
        ("roomy", [], True),
        ("full", [], False),
        ("slots", [], False),
        ("unknown", [], False),
        ("roomy", [pod("other", container(cpu="1"), priority=10)], False),
        ("roomy", [pod("lower", container(cpu="1"), priority=9)], True),
        ("roomy", [pod("small", container(cpu="500m"), priority=11)], True),
    ],
)
def test_who_was_promised_a_node_is_woken_by_room_elsewhere_only_if_it_is_enough(left_on, coming, expected):
    """Two of three CPUs are free on `roomy`, one less than asked for on `full`, no place for a pod on `slots`."""
    bench = Bench(
        node("home", cpu="1"),
        node("roomy", cpu="3"),
        pod("a", container(cpu="500m"), on="roomy"),
        node("full", cpu="2"),
        pod("b", container(cpu="1"), on="full"),
        node("slots", cpu="8", pods="0"),
    )
    bench.handle.nominations = Promised(roomy=[bench.pod(item) for item in coming])
    plugin = bench.plugin("NodeResourcesFit")
    registration = next(r for r in plugin.events_to_register() if r.event.resource == POD)
    waiting = bench.pod(pod("p", container(cpu="2"), priority=10))
    gone = bench.pod(pod("gone", container(cpu="100m"), on=left_on))
    assert registration.fn(waiting, gone, None) is QueueingHint.QUEUE
    assert registration.other_node.node(gone, None) == left_on
    answer = registration.other_node.fn(waiting, gone, None)
    assert answer is (QueueingHint.QUEUE if expected else QueueingHint.SKIP)


def test_only_pods_that_leave_a_node_leave_it_somewhere():
    bench = Bench(node("alder", cpu="1"))
    plugin = bench.plugin("NodeResourcesFit")
    registration = next(r for r in plugin.events_to_register() if r.event.resource == POD)
    placed, waiting = bench.pod(pod("placed", on="alder")), bench.pod(pod("waiting"))
    place = registration.other_node.node
    assert [place(placed, None), place(waiting, None), place(placed, placed), place(None, None)] == [
        "alder",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "labels, after, expected",
    [
        ({"app": "db"}, {"zone": "b"}, True),
        ({"app": "db"}, {}, True),
        ({"app": "db"}, {"zone": "a", "rack": "r"}, False),
        ({"app": "web"}, {"zone": "b"}, False),
    ],
)
def test_a_node_that_leaves_its_zone_takes_its_pods_objections_with_it(labels, after, expected):
    loner = pod("loner", on="n", affinity=pod_affinity(required_anti=[pod_term("zone", {"app": "db"})]))
    bench = Bench(node("n", labels={"zone": "a"}), loner)
    plugin = bench.plugin("InterPodAffinity")
    registration = next(r for r in plugin.events_to_register() if r.event.resource == NODE)
    waiting = bench.pod(pod("p", labels=labels))
    before, now = wire(node("n", labels={"zone": "a"})), wire(node("n", labels=after))
    assert registration.fn(waiting, before, now) is (QueueingHint.QUEUE if expected else QueueingHint.SKIP)


@pytest.mark.parametrize(
    "labels, after, expected",
    [
        ({"app": "db"}, {}, True),
        ({"app": "db"}, {"rack": "r"}, True),
        ({"app": "db"}, {"zone": "a", "rack": "r"}, False),
        ({"app": "web"}, {}, False),  # it may not be the first of a group that it does not belong to
    ],
)
def test_a_node_that_loses_its_zone_may_take_the_last_of_a_group_with_it(labels, after, expected):
    together = pod_affinity(required=[pod_term("zone", {"app": "db"})])
    bench = Bench(node("n", labels={"zone": "a"}), pod("db", on="n", labels={"app": "db"}))
    plugin = bench.plugin("InterPodAffinity")
    registration = next(r for r in plugin.events_to_register() if r.event.resource == NODE)
    waiting = bench.pod(pod("p", labels=labels, affinity=together))
    before, now = wire(node("n", labels={"zone": "a"})), wire(node("n", labels=after))
    assert registration.fn(waiting, before, now) is (QueueingHint.QUEUE if expected else QueueingHint.SKIP)


@pytest.mark.parametrize(
    "policy, before, after, expected",
    [
        ("Honor", "ssd", "hdd", True),
        ("Honor", "hdd", "ssd", True),
        ("Honor", "hdd", "tape", False),
        ("Ignore", "ssd", "hdd", False),
    ],
)
def test_a_node_that_begins_or_ceases_to_count_moves_what_others_are_held_against(policy, before, after, expected):
    constraint = spread("zone", 1, X, nodeAffinityPolicy=policy)
    waiting = pod("p", labels=X, nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[constraint])
    old, new = (node("n", labels={"zone": "a", "disk": disk}) for disk in (before, after))
    assert ask("PodTopologySpread", NODE, LABEL, waiting, old, new) is expected


REV = pod("p", labels=X, topologySpreadConstraints=[spread("zone", 1, X, matchLabelKeys=["rev"])])


def owned(item, name):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def test_pods_of_a_shape_whose_constraints_may_differ_are_asked_about_apart():
    """Labels may be part of a selector, an owner may give the default one, and pods of a namespace count."""
    bench = Bench()
    alike = [bench.pod(owned(REV, "one")) for _ in range(2)]
    others = [
        bench.pod(owned(pod("p", labels={**X, "rev": "2"}, **{key: REV["spec"][key] for key in REV["spec"]}), "one")),
        bench.pod(owned(REV, "two")),
        bench.pod(owned({**REV, "metadata": {**REV["metadata"], "namespace": "other"}}, "one")),
    ]
    assert len({each.shape for each in (*alike, *others)}) == 1
    for registration in bench.plugin("PodTopologySpread").events_to_register():
        key = registration.scope.key
        assert key(alike[0]) == key(alike[1])
        assert len({key(each) for each in (alike[0], *others)}) == 4


def test_a_resource_that_the_profile_ignores_keeps_no_pod_waiting():
    bench = Bench()
    plugin = bench.plugin(
        "NodeResourcesFit", bench.typed_args("NodeResourcesFit", {"ignoredResources": ["ex.com/gpu"]})
    )
    waiting, added = bench.pod(BIG), wire(node("n", "4"))
    registration = next(r for r in plugin.events_to_register() if r.event.resource == NODE)
    registration.index.add("group", waiting)
    assert registration.fn(waiting, None, added) is QueueingHint.QUEUE
    assert list(registration.index.concerned(None, added)) == ["group"]
