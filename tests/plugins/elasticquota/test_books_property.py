"""Whatever happens in whatever order, the books say what a computation from scratch says."""

from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.elasticquota.arithmetic.amounts import parse, to_units
from koordsched.plugins.elasticquota.definitions import read
from tests.depth import examples
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.reference import DEFAULT, Counted, Declared, Reference
from tests.plugins.elasticquota.world import World

NAMES = ["a", "b", "c", "d", "e", "f"]
SMALL = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 40])
SOME = st.sampled_from([1, 2, 3, 5, 8, 13, 40])
RESOURCES = ["cpu", "memory", "x"]
BUILT_IN_MAX = {"cpu": "70", "memory": "70"}
ARGS = {"defaultQuotaGroupMax": BUILT_IN_MAX, "systemQuotaGroupMax": BUILT_IN_MAX}


def lists(values, *, at_least=0, of=RESOURCES):
    """Resource lists."""
    return st.dictionaries(st.sampled_from(of), values, min_size=at_least, max_size=3)


def every(values):
    """Lists of all resources."""
    return st.fixed_dictionaries(dict.fromkeys(RESOURCES, values))


def quotas(*, most, least, weight):
    """ElasticQuota objects."""
    return st.builds(
        lambda name, namespace, most, least, parent, weight, lent, tree, root, total, spaces: quota(
            name,
            most,
            least,
            namespace=namespace,
            parent=parent,
            weight=weight,
            created="2026-01-01T00:00:00Z",
            **({"allow_lent_resource": "false"} if not lent else {}),
            **({"tree_id": tree} if tree else {}),
            **({"is_root": "true", "total_resource": {k: str(v) for k, v in total.items()}} if root else {}),
            **({"ignore_default_tree": "true"} if root and "x" in total else {}),
            namespaces=spaces,
        ),
        name=st.sampled_from([*NAMES, "n1", DEFAULT]),
        namespace=st.sampled_from(["quotas", "n1"]),
        most=most,
        least=least,
        parent=st.sampled_from(["", "koordinator-root-quota", "missing", *NAMES, *NAMES]),
        weight=weight,
        lent=st.booleans(),
        tree=st.sampled_from(["", "", "", "t"]),
        root=st.booleans(),
        total=lists(SMALL),
        spaces=st.lists(st.sampled_from(["n1", "n2"]), max_size=2),
    )


def pods(request):
    """Pods, waiting or on a node."""
    return st.builds(
        lambda number, request, in_quota, namespace, on, preemptible: pod(
            f"p{number}", request, in_quota, namespace=namespace, on=on, preemptible=preemptible
        ),
        number=st.integers(0, 7),
        request=request,
        in_quota=st.sampled_from([None, "nowhere", "koordinator-system-quota", *NAMES, *NAMES]),
        namespace=st.just("n1"),
        on=st.sampled_from([None, None, "n-0", "n-1", "unknown-node"]),
        preemptible=st.booleans(),
    )


NODES = st.builds(
    lambda number, allocatable: node(f"n-{number}", **allocatable), number=st.integers(0, 1), allocatable=lists(SMALL)
)


def histories(of_quotas, of_pods):
    """Steps for a `History`."""
    step = st.one_of(
        st.tuples(st.just("put"), of_quotas),
        st.tuples(st.just("put"), of_pods),
        st.tuples(st.just("put"), NODES),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("look"), st.sampled_from(NAMES)),
        st.tuples(st.just("assume"), st.integers(0, 7)),
        st.tuples(st.just("forget"), st.integers(0, 7)),
    )
    return st.lists(step, max_size=30)


LEAST = lists(st.sampled_from([0, 1, 2, 3, 5]))
PART = st.sampled_from([0, 1, 2, 3, "1500m", "2500u", "7300u"])
HISTORIES = st.one_of(
    # Anything goes.
    histories(quotas(most=lists(SMALL, at_least=1), least=LEAST, weight=st.none() | lists(SMALL)), pods(lists(SMALL))),
    # Trees in which sums of requests tell who gets what, or nearly.
    histories(quotas(most=every(SOME), least=LEAST, weight=st.none() | every(SOME)), pods(lists(SMALL))),
    histories(quotas(most=lists(SMALL, at_least=2), least=LEAST, weight=every(SOME)), pods(lists(SMALL))),
    # Parts of a step.
    histories(quotas(most=every(SOME), least=LEAST, weight=every(SOME)), pods(lists(PART))),
    histories(
        quotas(most=lists(PART, at_least=1), least=lists(PART), weight=st.none() | lists(PART)), pods(lists(PART))
    ),
)
GATES = st.sampled_from([(), (), ("MultiQuotaTree",), ("ElasticQuotaGuaranteeUsage",)])


class History:
    """Steps applied to a world, and what is there in the end."""

    def __init__(self, gates):
        self.gates = gates
        self.world = World(args=ARGS, gates=gates)
        self.there = {}

    def take(self, kind, what):
        """One step."""
        if kind == "put":
            self._put(what)
        elif kind == "remove" and self.there:
            thing = self.there.pop(sorted(self.there)[what % len(self.there)])
            self.world.remove(thing)
        elif kind == "look" and self.world.quota(what) is not None:
            assert self.world.quota(what).runtime is not None
        elif kind in ("assume", "forget"):
            self._assume(f"uid-n1-p{what}", assume=kind == "assume")

    def _put(self, thing):
        metadata = thing["metadata"]
        key = (thing["kind"], metadata.get("namespace", ""), metadata["name"])
        before = self.there.get(key)
        if thing["kind"] == "Pod" and before is not None and before["spec"].get("nodeName"):
            # A pod on a node stays there, and keeps what it requests.
            thing = {**thing, "spec": before["spec"]}
        if (
            thing["kind"] == "Pod"
            and metadata["uid"] in self.world.cluster.assumed
            and not thing["spec"].get("nodeName")
        ):
            thing = {**thing, "spec": before["spec"]}
            self.there[key] = thing
            self.world.cluster.pod_seen(self.world.pod(thing))
            return
        self.there[key] = thing
        self.world.put(thing)

    def _assume(self, uid, *, assume):
        cluster = self.world.cluster
        if not assume:
            if uid in cluster.assumed:
                cluster.forget(cluster.assumed[uid])
            return
        thing = self.there.get(("Pod", "n1", uid.removeprefix("uid-n1-")))
        row = cluster.table.row_of.get("n-0")
        if thing is not None and row is not None and uid not in cluster.assigned:
            cluster.assume(self.world.pod(thing), row)

    def rebuilt(self):
        """A world that was told what is there, and nothing of how it came about."""
        fresh = World(args=ARGS, gates=self.gates)
        for _, thing in sorted(self.there.items()):
            fresh.put(thing)
        for uid, assumed in self.world.cluster.assumed.items():
            thing = self.there["Pod", "n1", assumed.name]
            assert uid == thing["metadata"]["uid"]
            fresh.books.pod_assigned(fresh.pod(thing), True)
        return fresh


NUMBERS = (
    *("max", "request", "child_request", "limited", "used", "non_preemptible_request", "non_preemptible_used"),
    *("self_request", "self_used", "self_non_preemptible_request", "self_non_preemptible_used"),
    *("allocated", "guaranteed", "runtime", "limit", "scaled_min"),
)


def numbers(world):
    """Everything the books say, exactly; what is worked out in steps is told in steps."""
    found = {}
    for each in world.books.quotas():
        found[each.name] = {attribute: nonzero(getattr(each, attribute)) for attribute in NUMBERS}
        for attribute in ("runtime", "scaled_min"):
            found[each.name][attribute] = {k: to_units(k, v) for k, v in found[each.name][attribute].items()}
        found[each.name]["parent"] = each.parent.name if each.parent is not None else None
        found[each.name]["tree"] = each.tree.id
        found[each.name]["pods"] = {m.pod.uid: m.assigned for m in world.books.members(each)}
    return found


def plain(world):
    """The same from the reference computation: quotas that are no roots, without zero entries."""
    books = world.books
    declared = []
    for each in books.quotas():
        for obj in books.objects(each.name)[:1]:
            definition = read(obj, multiple_trees=books.settings.multiple_trees).definition
            declared.append(
                Declared(
                    definition.name,
                    definition.max,
                    definition.min,
                    definition.weight,
                    definition.parent,
                    definition.tree_id,
                    definition.lent,
                    definition.is_root,
                    definition.total,
                    definition.ignore_default_tree,
                )
            )
    counted = [
        Counted(each.name, member.requested.amounts, member.assigned, member.non_preemptible)
        for each in books.quotas()
        for member in books.members(each)
    ]
    nodes = [parse(n.status.allocatable)[0] for n in world.cluster.table.nodes if n is not None]
    reference = Reference(
        nodes,
        declared,
        counted,
        built_in_max=parse(BUILT_IN_MAX)[0],
        guarantees=books.settings.guarantees,
    )
    found = {}
    for name, counts in reference.numbers.items():
        found[name] = {key: nonzero(value) for key, value in counts.items()}
        if name in reference.runtime:
            found[name]["runtime"] = nonzero(reference.runtime[name])
            found[name]["scaled_min"] = nonzero(reference.scaled_min[name])
    return found, reference


def nonzero(listed):
    return {name: amount for name, amount in listed.items() if amount}


def check(history):
    """All that must hold at any moment."""
    actual = numbers(history.world)
    assert actual == numbers(history.rebuilt())
    expected, reference = plain(history.world)
    for name, counts in expected.items():
        for key, value in counts.items():
            assert actual[name][key] == value, (name, key)
    for tree in history.world.books.trees.trees.values():
        quotas = [each for each in history.world.books.quotas() if each.tree is tree and not each.is_root]
        for parent in [tree.root, *(each for each in quotas if each.takes_part)]:
            never_more_than_there_is(parent, reference)
        over = [sum(each.child_request.get(name, 0) > bound for name, bound in each.max.items()) for each in quotas]
        assert [each.over for each in quotas] == over
        assert tree.capped == sum(number > 0 for number in over)


def never_more_than_there_is(parent, reference):
    """Siblings together may use what their parent may, unless their floors alone are more."""
    children = parent.ordered_children
    names = parent.tree.resources if parent is parent.tree.root else parent.max
    for name in names:
        together = sum(to_units(name, child.runtime.get(name, 0)) for child in children)
        floors = 0
        for child in children:
            claim = max(reference.scaled_min[child.name].get(name, 0), to_units(name, child.guaranteed.get(name, 0)))
            limited = to_units(name, child.limited.get(name, 0))
            floors += min(limited, claim) if child.lent else claim
        given = parent.tree.available if parent.is_root else {k: to_units(k, v) for k, v in parent.runtime.items()}
        assert together <= max(given.get(name, 0), floors, 0)


@settings(max_examples=examples(150), deadline=None)
@given(HISTORIES, GATES)
def test_any_history_equals_a_rebuild_and_a_computation_from_scratch(steps, gates):
    history = History(gates)
    for kind, what in steps:
        history.take(kind, what)
    check(history)


@settings(max_examples=40, deadline=None)
@given(HISTORIES, GATES)
def test_equal_after_every_step(steps, gates):
    history = History(gates)
    for kind, what in steps:
        history.take(kind, what)
        check(history)


def test_equal_while_the_max_of_a_quota_that_is_asked_for_more_changes():
    history = History(())
    history.take("put", node("n-0", cpu=40))
    for most in (13, 8, 5, 13, 3):
        history.take("put", quota("a", {"cpu": most}))
        check(history)
        history.take("put", pod("p0", {"cpu": 10}, "a", namespace="n1"))
        check(history)


EVERYTHING = {"cpu": 40, "memory": 40, "x": 40}
CROWDS = {
    "regular": [
        node("n-0", cpu=20, memory=40, x=3),
        quota("a", {"cpu": 13, "memory": 40, "x": 5}, {"cpu": 3, "x": 2}, parent="", is_parent="true"),
        quota("b", EVERYTHING, {"cpu": 5, "memory": 20}, weight={"cpu": 3, "memory": 1, "x": 2}),
        quota("c", {**EVERYTHING, "cpu": 8}, {"cpu": 2}, parent="a"),
        quota("d", EVERYTHING, {"cpu": 2, "x": 1}, parent="a", allow_lent_resource="false"),
        quota("e", EVERYTHING, parent="a", weight={"cpu": 1, "memory": 2, "x": 3}, is_parent="true"),
        quota("f", {**EVERYTHING, "x": 2}, {"cpu": 1, "memory": 1}, parent="e", allow_lent_resource="false"),
    ],
    "irregular": [
        node("n-0", cpu=20, memory=40, x=3),
        quota("a", {"cpu": 13, "memory": 40, "x": 5}, {"cpu": 3, "x": 2}, parent="", is_parent="true"),
        quota("b", {"cpu": 40, "memory": 40}, {"cpu": 5, "memory": 20}, weight={"cpu": 3, "memory": 1}),
        quota("c", {"cpu": 8, "memory": 13}, {"cpu": 2}, parent="a"),
        quota("d", {"cpu": 40, "memory": 8, "x": 5}, {"cpu": 2, "x": 1}, parent="a", allow_lent_resource="false"),
        quota("e", {"cpu": 5, "memory": 40}, parent="a", weight={"cpu": 0, "memory": 2}),
        quota("f", {"cpu": 8, "memory": 5}, {"cpu": 1, "memory": 1}, allow_lent_resource="false"),
    ],
}
ARRIVALS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.builds(
                lambda number, request, name, on: pod(f"p{number}", request, name, namespace="n1", on=on),
                number=st.integers(0, 11),
                request=lists(SMALL, at_least=1),
                name=st.sampled_from(["a", "b", "c", "c", "d", "d", "e", "f", None]),
                on=st.sampled_from([None, "n-0"]),
            ),
        ),
        st.tuples(st.just("remove"), st.integers(7, 20)),
        st.tuples(st.just("assume"), st.integers(0, 11)),
        st.tuples(st.just("forget"), st.integers(0, 11)),
        st.tuples(st.just("look"), st.sampled_from(NAMES)),
    ),
    min_size=15,
    max_size=40,
)


@settings(max_examples=examples(60), deadline=None)
@given(ARRIVALS, st.sampled_from(sorted(CROWDS)), st.booleans())
def test_equal_while_pods_come_and_go_in_a_crowded_tree(steps, crowd, guarantees):
    history = History(("ElasticQuotaGuaranteeUsage",) if guarantees else ())
    for thing in CROWDS[crowd]:
        history.take("put", thing)
    for number, (kind, what) in enumerate(steps):
        history.take(kind, what)
        if number % 5 == 4:
            check(history)
    check(history)
