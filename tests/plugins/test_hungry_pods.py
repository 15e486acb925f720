"""Pods with thousands of everything: the work grows with what they list, not with its square."""

from random import Random

import numpy as np
import pytest

from koordsched.api.selectors import Selector
from koordsched.cluster.events import POD, ActionType
from koordsched.framework.interface import CycleState
from koordsched.framework.status import ReasonTable
from koordsched.plugins.interpodaffinity import existing, incoming
from koordsched.plugins.interpodaffinity.existing import ExistingTerms
from koordsched.plugins.noderesourcesfit.insufficiency import Insufficiency
from koordsched.plugins.shared.matching.lookup import LabelTest, MembershipTest
from koordsched.plugins.shared.podcounts.bits import Weights, bits
from koordsched.plugins.shared.podcounts.index import PodIndex
from koordsched.plugins.shared.podcounts.labelselectors import LabelSelectors
from koordsched.plugins.shared.podcounts.query import PodQuery, WeightedQueries
from koordsched.plugins.shared.podcounts.topology import Topology
from koordsched.queue.hints import QueueingHint
from tests.depth import quick_first
from tests.plugins.harness import Bench, same_scores, scheduler
from tests.plugins.objects import node, node_affinity, pod
from tests.plugins.objects import term as node_term
from tests.reference.plugins import REGISTRY
from tests.reference.selectors import label_selector_matches
from tests.reference.status import SKIP
from tests.reference.world import World


@pytest.mark.parametrize("resources", [1, 60, 61, 62, 63, 64, 300])
def test_shortages_of_any_number_of_resources_row_by_row_and_all_at_once(resources):
    """Around the widths at which patterns stop to fit an integer of 64 bits."""
    rng = Random(resources)
    names = [f"ex.com/r{i}" for i in range(resources)]
    bench = Bench(
        *(
            node(f"n{i}", pods=str(rng.choice([0, 110])), **{name: str(rng.randrange(4)) for name in names})
            for i in range(20)
        )
    )
    table = bench.cluster.table
    known = table.resource_names
    asked = tuple((known.intern(name), rng.randrange(1, 4)) for name in names)
    reasons = ReasonTable()
    insufficiency = Insufficiency("Fit", asked, known.names, reasons)
    codes = insufficiency.of_rows(table, table.all_rows)
    assert codes.tolist() == [insufficiency.of_row(table, row) for row in range(table.size)]
    for name, row in table.row_of.items():
        lacking = {f"Insufficient {known.names[i]}" for i, amount in asked if table.allocatable[i].data[row] < amount}
        if not table.pods_allocatable.data[row]:
            lacking.add("Too many pods")
        assert set(reasons[int(codes[row])].texts) == lacking, name


@pytest.mark.parametrize("resources", [1, 62, 300])
def test_nothing_is_short(resources):
    names = [f"ex.com/r{i}" for i in range(resources)]
    table = Bench(*(node(f"n{i}", **dict.fromkeys(names, "3")) for i in range(3))).cluster.table
    known = table.resource_names
    insufficiency = Insufficiency("Fit", tuple((known.intern(n), 3) for n in names), known.names, ReasonTable())
    assert insufficiency.of_rows(table, table.all_rows) is None


def test_nodes_that_constraints_look_at_are_determined_once_for_all_of_them(monkeypatch):
    asked = []
    eligible = Topology.eligible

    def counting(self, keys, shape, **policies):
        asked.append(len(keys))
        return eligible(self, keys, shape, **policies)

    monkeypatch.setattr(Topology, "eligible", counting)
    labels = {f"k{i}": "v" for i in range(50)}
    constraints = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}, "nodeTaintsPolicy": taints}
        for key in labels
        for when, taints in (("DoNotSchedule", "Honor"), ("ScheduleAnyway", "Ignore"))
    ]
    offline = scheduler([node("n1", labels=labels), node("n2"), pod("p", topologySpreadConstraints=constraints)])
    verdicts = offline.profiles["default-scheduler"].filtering.filter(CycleState(offline.pending["default/p"]))
    assert asked == [50, 50]
    assert np.count_nonzero(verdicts.codes == 0) == 1


HOSTNAME, ZONE = "kubernetes.io/hostname", "zone"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def selector(rng):
    """A label selector of up to three requirements, often one of those that other selectors have, too."""
    return {
        "matchExpressions": [
            {"key": rng.choice("abc"), "operator": operator, "values": rng.sample("xyz", rng.randint(1, 2))}
            if operator in ("In", "NotIn")
            else {"key": rng.choice("abc"), "operator": operator}
            for operator in rng.choices(("In", "NotIn", "Exists", "DoesNotExist"), k=rng.choice((0, 1, 1, 2, 3)))
        ]
    }


def labels(rng):
    return {key: rng.choice("xyz") for key in rng.sample("abcd", rng.randint(0, 4))}


def requirements(of):
    return tuple((e["key"], e["operator"], tuple(e.get("values", ()))) for e in of["matchExpressions"])


@pytest.mark.parametrize("seed", range(40))
def test_selectors_put_to_a_pod_all_at_once_weigh_what_they_weigh_one_by_one(seed):
    rng = Random(seed)
    selectors = [(rng.randint(1, 100), selector(rng)) for _ in range(rng.choice((1, 3, 200)))]
    weights = Weights([weight for weight, _ in selectors])
    together = LabelSelectors(requirements(of) for _, of in selectors)
    for _ in range(50):
        asked = labels(rng)
        expected = sum(weight for weight, of in selectors if label_selector_matches(of, asked))
        assert weights.of(together.matching(asked)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_requirements_are_looked_up_with_the_answer_that_they_give_one_by_one(seed):
    rng = Random(seed)
    of = {"matchExpressions": [e for _ in range(rng.randint(1, 3)) for e in selector(rng)["matchExpressions"]]}
    wanted = PodQuery(None, requirements(of))
    for _ in range(50):
        asked = labels(rng)
        assert wanted.matches("default", asked) == label_selector_matches(of, asked)


@pytest.mark.parametrize("seed", range(20))
def test_selectors_that_come_and_go_leave_nothing_behind(seed):
    rng = Random(seed)
    together, known, numbers = LabelSelectors(), {}, rng.choice((4, 150))
    for _ in range(20):
        for number in rng.sample(range(numbers), numbers // 2):
            if number in known:
                together.drop(number, Selector(requirements(known.pop(number))))
            else:
                known[number] = selector(rng)
                together.put(number, Selector(requirements(known[number])))
        for _ in range(5):
            asked = labels(rng)
            expected = [number for number, of in known.items() if label_selector_matches(of, asked)]
            assert together.matching(asked) == bits(expected)
    for number, of in known.items():
        together.drop(number, Selector(requirements(of)))
    assert together.matching({"a": "x"}) == 0
    assert not any(getattr(together, name) for name in LabelSelectors.__slots__)


def term(rng):
    found = {"topologyKey": rng.choice((HOSTNAME, ZONE, "nowhere", "rack"))}
    if rng.random() < 0.95:
        found["labelSelector"] = selector(rng)
    if rng.random() < 0.3:
        found["namespaces"] = rng.sample(("default", "prod"), rng.randint(1, 2))
    if rng.random() < 0.3:
        team = {"key": "team", "operator": rng.choice(("In", "NotIn")), "values": rng.sample(("blue", "red", "y"), 2)}
        of_team = {"matchExpressions": [team, {"key": "old", "operator": rng.choice(("Exists", "DoesNotExist"))}]}
        found["namespaceSelector"] = rng.choice(({}, {"matchLabels": {"team": "blue"}}, of_team))
    return found


def preference(rng):
    return {"weight": rng.choice((1, 1, 50, 100)), "podAffinityTerm": term(rng)}


def hungry(rng, name, on=None):
    """A pod with some terms of each kind, none that keep it from everywhere."""
    affinity = {
        "podAffinity": {PREFERRED: [preference(rng) for _ in range(rng.randint(0, 6))]},
        "podAntiAffinity": {PREFERRED: [preference(rng) for _ in range(rng.randint(0, 6))]},
    }
    for kind, most in (("podAffinity", 2), ("podAntiAffinity", 6)):
        if rng.random() < 0.5:
            affinity[kind][REQUIRED] = [term(rng) for _ in range(rng.randint(1, most))]
    namespace = rng.choice(("default", "prod"))
    return pod(name, on=on, labels=labels(rng), namespace=namespace, affinity=affinity)


@pytest.fixture(params=[32, 0], ids=["terms one by one", "terms together"])
def few(request, monkeypatch):
    monkeypatch.setattr(incoming, "_FEW_TERMS", request.param)
    monkeypatch.setattr(existing, "_FEW_TERMS", request.param)


@pytest.mark.parametrize("seed", quick_first(range(25), 5))
def test_pods_with_many_terms_are_judged_as_by_the_reference(seed, few):
    """While pods come and go, node labels appear and disappear, and namespaces get other labels."""
    rng = Random(seed)

    def fresh_node(name):
        return node(name, labels={key: rng.choice("pq") for key in rng.sample((ZONE, "rack"), rng.randint(0, 2))})

    def namespaces():
        teams = ({"team": rng.choice(("blue", "red")), rng.choice(("old", "new")): ""} for _ in range(2))
        kind = {"kind": "Namespace", "apiVersion": "v1"}
        return [
            {**kind, "metadata": {"name": name, "labels": team}}
            for name, team in zip(("default", "prod"), teams, strict=True)
        ]

    nodes = {f"n{i}": fresh_node(f"n{i}") for i in range(4)}
    spaces, placed, serial = namespaces(), {}, 0
    bench = Bench(*spaces, *nodes.values())
    plugin, naive = bench.plugin("InterPodAffinity"), REGISTRY["InterPodAffinity"]({})
    waiting = [hungry(rng, f"w{i}") for i in range(3)]
    views = [bench.pod(item) for item in waiting]  # as long as a pod has the shape, what was derived from it stays
    assert len(views) == 3
    for _ in range(12):
        for _ in range(rng.randint(1, 3)):
            serial += 1
            item = hungry(rng, f"p{serial}", on=rng.choice(list(nodes)))
            placed[item["metadata"]["uid"]] = item
            bench.add(item)
        if rng.random() < 0.5:
            uid = rng.choice(list(placed))
            del placed[uid]
            bench.cluster.remove_pod(uid)
        if rng.random() < 0.4:
            name = rng.choice(list(nodes))
            nodes[name] = fresh_node(name)
            bench.add(nodes[name])
        if rng.random() < 0.2:
            spaces = namespaces()
            for item in spaces:
                bench.add(item)
        world = World([*spaces, *nodes.values(), *placed.values()])
        for item in waiting:
            expected = None
            if naive.pre_filter(item, world) is not SKIP:
                verdicts = {n["metadata"]["name"]: naive.filter(item, n, world) for n in world.nodes}
                expected = {name: verdict and (verdict.code, *verdict.reasons) for name, verdict in verdicts.items()}
            assert bench.filter(plugin, item) == expected
            same_scores(bench, plugin, naive, item, world, world.nodes)


TERMS = {
    "as many labels": lambda i: {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": f"a{i}"}}},
    "as many topology keys": lambda i: {"topologyKey": f"k{i}", "labelSelector": {"matchLabels": {"app": "a7"}}},
    "all but one each": lambda i: {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"a{i}"]}]},
    },
    "with and without": lambda i: {
        "topologyKey": HOSTNAME,
        "labelSelector": {
            "matchExpressions": [
                {"key": "app", "operator": "Exists"},
                {"key": f"k{i}", "operator": "DoesNotExist"},
            ]
        },
    },
}
"""Thousands of terms that pods in the cluster have to do with in different ways."""


class Counting:
    """How many single selectors were put to pods, whichever way."""

    def __init__(self, monkeypatch):
        self.evaluations = 0
        for kind, name in ((PodQuery, "admits"), (LabelSelectors, "matching")):
            monkeypatch.setattr(kind, name, self._counted(getattr(kind, name)))

    def _counted(self, fn):
        def counted(*args):
            self.evaluations += 1
            return fn(*args)

        return counted


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("strength", [REQUIRED, PREFERRED])
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_thousands_of_terms_are_never_asked_one_by_one(terms, strength, kind, monkeypatch):
    """Not when the pod is tried, bound or in the way of others, nor when something happens while it waits."""
    listed = [terms(i) for i in range(3_000)]
    if strength == PREFERRED:
        listed = [{"weight": i % 100 + 1, "podAffinityTerm": each} for i, each in enumerate(listed)]
    affinity = {kind: {strength: listed}}
    nodes = [node(f"n{i}") for i in range(20)]
    others = [pod(f"e{i}", on=f"n{i % 20}", labels={"app": f"a{i}"}) for i in range(50)]
    bench = Bench(*nodes, *others)
    plugin = bench.plugin("InterPodAffinity")
    waiting = bench.pod(pod("waiting", labels={"app": "a7"}, affinity=affinity))
    bound = bench.pod(pod("bound", labels={"app": "a8"}, on="n3", affinity=affinity))
    plain = [bench.pod(pod("plain", labels={"app": app})) for app in ("a7", "a9")]
    counting = Counting(monkeypatch)

    def attempt(asked):
        cycle = CycleState(asked)
        plugin.pre_filter(cycle, asked)
        plugin.filter(cycle, asked, bench.cluster.table, bench.rows)
        plugin.pre_score(cycle, asked, bench.rows)

    attempt(waiting)
    bench.cluster.set_pod(bound)
    for asked in (*plain, waiting):
        attempt(asked)
    (changed,) = (r for r in plugin.events_to_register() if r.event.resource == POD)
    assert changed.event.action & ActionType.DELETE
    for item in others:
        changed.fn(waiting, bench.pod(item), None)
    # One that kept it away is gone; or one that it wanted to be with, but now it may be the first of these.
    helps = strength == REQUIRED and (kind == "podAntiAffinity" or terms is TERMS["with and without"])
    assert changed.fn(waiting, bound, None) is (QueueingHint.QUEUE if helps else QueueingHint.SKIP)
    assert counting.evaluations < 2000
    assert len(bench.cluster.shared(PodIndex)) <= 1
    assert len(bench.cluster.shared(ExistingTerms)._terms_of(bound)) == 1


@pytest.mark.parametrize(("app", "hint"), [("a7", QueueingHint.QUEUE), ("web", QueueingHint.SKIP)])
def test_a_pod_that_goes_helps_those_that_one_of_its_terms_kept_away(app, hint, few):
    bench = Bench(node("n1"))
    plugin = bench.plugin("InterPodAffinity")
    affinity = {"podAntiAffinity": {REQUIRED: [TERMS["as many labels"](i) for i in range(20)]}}
    gone = bench.pod(pod("gone", on="n1", affinity=affinity))
    (changed,) = (r for r in plugin.events_to_register() if r.event.resource == POD)
    assert changed.fn(bench.pod(pod("waiting", labels={"app": app})), gone, None) is hint


@pytest.mark.parametrize("strength", [REQUIRED, PREFERRED])
def test_thousands_of_namespace_selectors_are_not_put_to_thousands_of_namespaces(strength, monkeypatch):
    """Neither when the pod is tried, nor when it keeps others away, nor when labels of namespaces change."""

    def namespace(i, team):
        return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": f"ns{i}", "labels": {"team": team}}}

    def all_but(i):
        others = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": [f"t{i}"]}]}
        return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}, "namespaceSelector": others}

    listed = [all_but(i) for i in range(1_000)]
    if strength == PREFERRED:
        listed = [{"weight": i % 100 + 1, "podAffinityTerm": each} for i, each in enumerate(listed)]
    affinity = {"podAntiAffinity": {strength: listed}}
    others = [pod(f"e{i}", on="n1", labels={"app": "x"}, namespace=f"ns{i}") for i in range(1_000)]
    bench = Bench(*(namespace(i, f"t{i}") for i in range(1_000)), node("n1"), node("n2"), node("n3"), *others)
    plugin = bench.plugin("InterPodAffinity")
    waiting = pod("waiting", labels={"app": "x"}, namespace="ns0", affinity=affinity)
    counting = Counting(monkeypatch)

    def kept_from(asked):
        cycle, asked = CycleState(asked), bench.pod(asked)
        plugin.pre_filter(cycle, asked)
        codes = plugin.filter(cycle, asked, bench.cluster.table, bench.rows)
        plugin.pre_score(cycle, asked, bench.rows)
        return {name for name, row in bench.cluster.table.row_of.items() if codes is not None and codes[row]}

    for number in range(2):
        assert kept_from(waiting) == ({"n1"} if strength == REQUIRED else set())
        bench.add(namespace(number, "t999"))
    bench.add(pod("bound", labels={"app": "y"}, namespace="ns1", on="n2", affinity=affinity))
    for i in range(200):
        plain = pod("plain", labels={"app": "x"}, namespace=f"ns{i}")
        assert kept_from(plain) == ({"n2"} if strength == REQUIRED else set())
    assert counting.evaluations < 4_000


def test_counters_of_many_terms_look_at_new_pods_when_they_are_asked(monkeypatch):
    bench = Bench(node("n1"), node("n2"))
    index = bench.cluster.shared(PodIndex)
    queries = tuple((i + 1, PodQuery(frozenset(("default",)), (("app", "In", (f"a{i}",)),))) for i in range(100))
    counter = index.counter(WeightedQueries(queries), count_deleting=True)
    counting = Counting(monkeypatch)
    for i in range(60):
        bench.add(pod(f"p{i}", labels={"app": f"a{i % 3}"}, on="n1"))
    bench.add(pod("elsewhere", labels={"app": "a1"}, on="n2", namespace="prod"))
    assert counting.evaluations == 0
    assert index.used(counter) is counter
    assert counting.evaluations == 4
    assert counter.by_row.tolist() == [20 * (1 + 2 + 3), 0]
    bench.add(pod("q", labels={"app": "a2"}, on="n2"))
    assert counter.by_row.tolist() == [20 * (1 + 2 + 3), 3]
    with bench.cluster.what_if() as hypothesis:
        hypothesis.add(bench.pod(pod("r", labels={"app": "a99"})), 1)
        assert index.used(counter).by_row.tolist() == [120, 103]
    assert index.used(counter).by_row.tolist() == [120, 3]


@pytest.mark.parametrize("seed", range(40))
def test_node_terms_judge_as_the_reference_does(seed):
    """Also terms of one value, which are looked up together, and keys that no node has."""
    rng = Random(seed)

    def expression():
        operator = rng.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
        key = rng.choice(("a", "a", "b", "nobody-has-this"))
        values = rng.sample(("x", "y", "w"), rng.randint(1, 2)) if operator in ("In", "NotIn") else ()
        return (key, operator, *values)

    nodes = [
        node(f"n{i}", labels={key: rng.choice("xyz") for key in rng.sample("ab", rng.randint(0, 2))}) for i in range(6)
    ]
    bench = Bench(*nodes)
    plugin, naive, world = bench.plugin("NodeAffinity"), REGISTRY["NodeAffinity"]({}), World(nodes)
    for i in range(15):
        terms = [node_term(*(expression() for _ in range(rng.choice((0, 1, 1, 2))))) for _ in range(rng.randint(1, 6))]
        more = {"nodeSelector": rng.choice(({"a": "x"}, {"nobody-has-this": "x"}))} if rng.random() < 0.3 else {}
        item = pod(f"p{i}", affinity=node_affinity(terms), **more)
        verdicts = {n["metadata"]["name"]: naive.filter(item, n, world) for n in nodes}
        expected = {name: verdict and (verdict.code, *verdict.reasons) for name, verdict in verdicts.items()}
        assert bench.filter(plugin, item) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {f"k{i}": "v" for i in range(10_000)}},
        {"affinity": node_affinity([node_term((HOSTNAME, "In", f"n{i}")) for i in range(10_000)])},
        {"affinity": node_affinity([node_term(*((f"k{i}", "NotIn", "v") for i in range(10_000)))])},
    ],
    ids=["selector", "one host name each", "labels that no node has"],
)
def test_nodes_are_looked_at_once_for_ten_thousand_requirements(spec, monkeypatch):
    looked_at = []
    for kind in (LabelTest, MembershipTest):
        mask = kind.mask
        monkeypatch.setattr(kind, "mask", lambda self, *args, mask=mask: looked_at.append(self) or mask(self, *args))
    bench = Bench(node("n1"), node("n2"))
    plugin = bench.plugin("NodeAffinity")
    codes = plugin.filter_rows(bench.pod(pod("p", **spec)).shape, bench.cluster.table, bench.cluster.table.all_rows)
    assert len(looked_at) <= 1
    assert (codes is None) == ("nodeSelector" not in spec)


@pytest.mark.parametrize("when", ["DoNotSchedule", "ScheduleAnyway"])
def test_domains_that_no_node_is_in_are_not_counted(when):
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": f"k{i}",
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": f"a{i}"}},
        }
        for i in range(1000)
    ]
    nodes = [node("n1"), node("n2")]
    bench = Bench(*nodes)
    plugin, naive = bench.plugin("PodTopologySpread"), REGISTRY["PodTopologySpread"]({})
    item, world = pod("p", labels={"app": "a3"}, topologySpreadConstraints=constraints), World(nodes)
    if when == "DoNotSchedule":
        verdicts = {n["metadata"]["name"]: naive.filter(item, n, world) for n in nodes}
        assert bench.filter(plugin, item) == {n: (v.code, *v.reasons) for n, v in verdicts.items()}
    else:
        same_scores(bench, plugin, naive, item, world, nodes)
    assert len(bench.cluster.shared(PodIndex)) == 0


def test_ten_thousand_constraints_are_not_asked_one_by_one_about_pods_that_go(monkeypatch):
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": f"a{i}"}},
        }
        for i in range(10_000)
    ]
    bench = Bench(node("n1"))
    plugin = bench.plugin("PodTopologySpread")
    waiting = bench.pod(pod("waiting", topologySpreadConstraints=constraints))
    counting = Counting(monkeypatch)
    (changed,) = (r for r in plugin.events_to_register() if r.event.resource == POD)
    for app, namespace, hint in (
        ("a9999", "default", QueueingHint.QUEUE),
        ("web", "default", QueueingHint.SKIP),
        ("a9999", "prod", QueueingHint.SKIP),
    ):
        gone = bench.pod(pod("gone", on="n1", labels={"app": app}, namespace=namespace))
        assert changed.fn(waiting, gone, None) is hint
    assert counting.evaluations == 2
