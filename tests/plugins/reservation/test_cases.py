"""The acceptance cases of the reservation specification that decide where pods go (7.1 to 7.15, 7.25 to 7.28, 7.30)."""

import json

import pytest

from koordsched.framework.status import PASS
from koordsched.plugins.reservation.fitting import utilization
from koordsched.plugins.reservation.kinds import (
    EXACT_MATCH,
    NODE_RESERVATION,
    PRE_ALLOCATABLE,
    PRE_ALLOCATABLE_PRIORITY,
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_ORDER,
)
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod

API = "scheduling.koordinator.sh/v1alpha1"
WEB = {"app": "web"}
OWNERS = [{"labelSelector": {"matchLabels": WEB}}]
GI = 1 << 30
CPU, MEMORY = 0, 1


def amounts(cpu=None, memory=None, **more):
    given = {"cpu": cpu, "memory": memory, **{key.replace("__", "/").replace("_", "-"): v for key, v in more.items()}}
    return {key: str(value) for key, value in given.items() if value is not None}


def reservation(name="r", on="n", *, holds, owners=OWNERS, labels=None, annotations=None, priority=None, **spec):
    requests = {"requests": {key: value for key, value in holds.items() if key != "pods"}}
    template = {"containers": [{"name": "c", "resources": requests}]}
    if priority is not None:
        template["priority"] = priority
    made = {
        "apiVersion": API,
        "kind": "Reservation",
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"template": {"spec": template}, "owners": owners, "ttl": "24h", "allocateOnce": False, **spec},
    }
    if on:
        made["status"] = {"phase": "Available", "nodeName": on, "allocatable": holds}
    return made


def wanting(name="p", *, affinity=None, of="", on=None, labels=WEB, ports=(), annotations=None, **requests):
    thing = pod(name, {**container(ports=ports), "resources": {"requests": amounts(**requests)}}, on=on, labels=labels)
    given = dict(annotations or {})
    if affinity is not None:
        given[RESERVATION_AFFINITY] = json.dumps(affinity)
    if of:
        given[RESERVATION_ALLOCATED] = json.dumps({"name": of, "uid": of})
    thing["metadata"]["annotations"] = given
    return thing


def plain(name="other", **requests):
    return wanting(name, on="n", labels={}, **requests)


class Played:
    """A cluster state with one profile; `alone`: without NodeResourcesFit, whose words are not asked for."""

    def __init__(self, *objects, alone=True, **args):
        plugins = {"multiPoint": {"enabled": [{"name": "Reservation"}]}}
        if alone:
            plugins["filter"] = {"disabled": [{"name": "NodeResourcesFit"}]}
        self.offline = scheduler(objects, {"plugins": plugins, "pluginConfig": [{"name": "Reservation", "args": args}]})
        self.profile = self.offline.profiles["default-scheduler"]
        self.plugin = self.profile.plugins["Reservation"]
        self.table = self.offline.cluster.table

    def attempt(self, thing):
        """What filters say of a pod, or of the pending Reservation of this name."""
        key = f"default/{thing}" if isinstance(thing, str) else f"default/{thing['metadata']['name']}"
        if not isinstance(thing, str):
            self.offline.add(thing)
        attempt = self.offline.attempt(key)
        attempt.filter(all_nodes=True)
        return attempt

    def said(self, thing, on="n"):
        """(code, plugin, *reasons) on a node, () if it passes."""
        attempt = self.attempt(thing)
        early = attempt.verdicts.pre_filtered.status
        if early.code.rejects:
            return (early.code.text, early.plugin, *early.reasons)
        code = int(attempt.verdicts.codes[self.table.row_of[on]])
        reason = self.profile.handle.reasons[code] if code != PASS else None
        return (reason.code.text, reason.plugin, *reason.texts) if reason is not None else ()

    def chosen(self, thing, on="n"):
        """The Reservation that the pod would use."""
        attempt = self.attempt(thing)
        info = attempt.cycle.reservations.chosen_info(self.table.row_of[on])
        return info.name if info is not None else None

    def info(self, name="r"):
        return self.plugin.cache.named(name)


def refused(*reasons):
    return ("Unschedulable", "Reservation", *reasons)


def unresolvable(*reasons):
    return ("UnschedulableAndUnresolvable", "Reservation", *reasons)


def restored():
    return [
        node("n", cpu="32", memory="64Gi"),
        plain("a", cpu=4, memory="8Gi"),
        plain("b", cpu=8, memory="16Gi"),
        reservation("u", holds=amounts(12, "24Gi"), owners=[{"object": {"name": "uses-u"}}]),
        wanting("uses-u", of="u", on="n", cpu=4, memory="8Gi"),
        reservation("m", holds=amounts(8, "16Gi")),
    ]


def test_reservation_case_01_restore():
    """Owners and what is reserved for them count once; what the pod may use does not count for it."""
    found = Played(*restored())
    row = found.table.row_of["n"]
    requested = lambda: [int(found.table.requested[index].data[row]) for index in (CPU, MEMORY)]  # noqa: E731
    assert requested() == [32_000, 64 * GI]
    attempt = found.attempt(wanting())
    with attempt.cycle.overlay.applied(found.offline.cluster, attempt.cycle):
        assert requested() == [24_000, 48 * GI]
        there = found.offline.cluster.pods_on(row)
    assert attempt.cycle.overlay.away(row) == {"m"}
    assert "u" in there
    assert attempt.cycle.reservations.diagnosis[row].owner_matched == 1
    assert requested() == [32_000, 64 * GI]


@pytest.mark.parametrize(
    ("cpu", "labels", "said"),
    [
        (8, WEB, ()),
        (9, WEB, ("Unschedulable", "NodeResourcesFit", "Insufficient cpu")),
        ("1m", {}, ("Unschedulable", "NodeResourcesFit", "Insufficient cpu")),
    ],
)
def test_reservation_case_02_owners_and_others(cpu, labels, said):
    asked = wanting(cpu=cpu, memory="16Gi" if cpu == 8 else None, labels=labels)
    assert Played(*restored(), alone=False).said(asked) == said
    if not said:
        assert Played(*restored(), alone=False).chosen(asked) == "m"


@pytest.mark.parametrize(("others", "said"), [(24, ()), (26, refused("Insufficient cpu by node"))])
def test_reservation_case_03_aligned_takes_the_rest_from_the_node(others, said):
    state = node("n", cpu="32", memory="32Gi"), plain(cpu=others, memory="24Gi")
    found = Played(*state, reservation(holds=amounts(6), allocatePolicy="Aligned"))
    assert found.said(wanting(cpu=8, memory="8Gi", affinity={})) == said


def restricted(**more):
    state = node("n", cpu="32", memory="32Gi"), plain(cpu=24, memory="24Gi")
    return Played(*state, reservation(holds=amounts(6), allocatePolicy="Restricted", **more))


@pytest.mark.parametrize(("cpu", "said"), [(8, refused("Reservation(s) Insufficient cpu")), (6, ())])
def test_reservation_case_04_restricted(cpu, said):
    assert restricted().said(wanting(cpu=cpu, memory="8Gi", affinity={})) == said


def test_reservation_case_05_inner_reserved():
    found = restricted(annotations={NODE_RESERVATION: json.dumps({"resources": {"cpu": "2"}})})
    assert found.said(wanting(cpu=6, affinity={})) == refused("Reservation(s) Insufficient cpu")
    assert found.said(wanting("q", cpu=4, affinity={})) == ()


BATCH = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


@pytest.mark.parametrize("affinity", [{}, None])
@pytest.mark.parametrize(
    ("cpu", "said"), [("6000", ()), ("8000", refused("Insufficient kubernetes.io/batch-cpu by node"))]
)
def test_reservation_case_06_resources_that_are_not_reserved(cpu, said, affinity):
    offered = node("n", cpu="32", memory="32Gi", **dict(zip(BATCH, ("7500", "10Gi"), strict=True)))
    used = plain(**dict(zip(BATCH, ("1500", "2Gi"), strict=True)))
    found = Played(offered, used, reservation(holds=amounts(6), allocatePolicy="Restricted"))
    assert found.said(wanting(affinity=affinity, **dict(zip(BATCH, (cpu, "8Gi"), strict=True)))) == said


def test_reservation_case_07_slots_and_amounts():
    kept = {NODE_RESERVATION: json.dumps({"resources": {"cpu": "1"}})}
    held = reservation(holds={"cpu": "7", "pods": "2"}, allocatePolicy="Restricted", annotations=kept)
    owners = [wanting(f"o{i}", of="r", on="n", cpu=1) for i in range(2)]
    full = Played(node("n", cpu="32", memory="32Gi"), held, *owners)
    assert full.said(wanting(cpu=3, affinity={})) == refused("Reservation(s) Too many pods")
    assert full.said(wanting("q", cpu=3, affinity={"name": "r"})) == refused(
        "Reservation(s) Too many pods, requested: 1, used: 2, capacity: 2"
    )
    full.offline.cluster.remove_pod("uid-default-o0")  # preempted: that of dry runs is compared with the model
    assert full.said(wanting("s", cpu=3, affinity={"name": "r"})) == ()
    assert full.said(wanting("t", cpu=6, affinity={"name": "r"})) == refused(
        "Reservation(s) Insufficient cpu, requested: 6000, used: 1000, capacity: 6000"
    )


def test_reservation_case_08_a_reason_for_each():
    state = [
        node("n", cpu="32", memory="32Gi"),
        reservation("a", holds=amounts(6), allocatePolicy="Restricted"),
        wanting("uses-a", of="a", on="n", cpu=6),
        reservation("b", holds=amounts(4), allocatePolicy="Restricted"),
        wanting("uses-b", of="b", on="n", cpu=1),
    ]
    text = "Reservation(s) Insufficient cpu"
    assert Played(*state).said(wanting(cpu=4, affinity={})) == refused(text, text)


@pytest.mark.parametrize("skips", [True, False])
def test_reservation_case_09_where_one_reservation_is_matched_the_node_may_be_left_to_others(skips):
    """With the gate SkipReservationFitsNode."""
    state = [
        node("n", cpu="32", memory="32Gi"),
        plain(cpu=24),
        reservation(holds=amounts(6), allocatePolicy="Aligned"),
        wanting("uses-r", of="r", on="n", cpu=6),
    ]
    found = Played(*state)
    found.plugin.fitting._skips_single = skips
    said = found.said(wanting(cpu=4, affinity={}))
    assert said == (() if skips else refused("Insufficient cpu by node"))


def nominated_outsider(*state):
    """The node that a pod which owns nothing would get by preemption; "" if it gets none."""
    asked = wanting(cpu=4, labels={})
    asked["spec"]["priority"] = 50
    found = Played(*state, alone=False)
    found.offline.add(asked)
    explained = found.offline.explain("default/p")
    assert not explained.any_of
    return explained.nominated_node or ""


@pytest.mark.parametrize(("of", "nominated"), [("", "n"), ("r", "")])
def test_reservation_case_10_outsiders_get_no_room_from_owners(of, nominated):
    """What an owner used falls back to the Reservation."""
    state = [
        node("n", cpu="32", memory="32Gi"),
        plain(cpu=26 if of else 22),
        reservation(holds=amounts(6), allocatePolicy="Aligned", owners=[{"object": {"name": "someone"}}]),
        wanting("victim", of=of, on="n", cpu=4),
    ]
    for thing in state[1:2]:
        thing["spec"]["priority"] = 100
    assert nominated_outsider(*state) == nominated


@pytest.mark.parametrize(("of", "nominated"), [("", "n"), ("r", "")])
def test_outsiders_do_not_evict_owners_for_their_slots(of, nominated):
    state = [
        node("n", cpu="32", memory="32Gi", pods="2"),
        reservation(holds=amounts(6), allocatePolicy="Aligned", owners=[{"object": {"name": "someone"}}]),
        wanting("victim", of=of, on="n", cpu=4),
    ]
    assert nominated_outsider(*state) == nominated


@pytest.mark.parametrize("policy", ["Aligned", "Restricted"])
@pytest.mark.parametrize("own", ["", "Aligned", "Restricted"])
def test_reservation_case_11_policies_on_one_node(own, policy):
    state = node("n", cpu="32", memory="32Gi"), reservation("a", holds=amounts(6), allocatePolicy=policy)
    found = Played(*state, reservation("b", "", holds=amounts(2), allocatePolicy=own))
    expected = () if own else unresolvable("node(s) reservation allocate policy conflict")
    assert found.said("b") == expected


def scored(holds, used=None, **requests):
    state = [node("n", cpu="64", memory="256Gi", **{"nvidia.com/gpu": "8"}), reservation(holds=holds)]
    if used:
        state.append(wanting("uses-r", of="r", on="n", **used))
    found = Played(*state)
    return utilization(found.offline.add(wanting(**requests)), found.info())


def test_reservation_case_12_score():
    assert scored(amounts(4, "8Gi"), cpu=2, memory="4Gi") == 50
    assert scored(amounts(2, "4Gi"), cpu=2, memory="4Gi") == 100
    assert scored(amounts(2, "4Gi"), {"cpu": 2, "memory": "3Gi"}, cpu=2, memory="4Gi") == 0
    assert scored(amounts(4, "8Gi")) == 0
    both = [reservation("large", holds=amounts(4, "8Gi")), reservation("small", holds=amounts(2, "4Gi"))]
    found = Played(node("n", cpu="32", memory="64Gi"), *both)
    asked = wanting(cpu=2, memory="4Gi")
    attempt = found.attempt(asked)
    rows = attempt.verdicts.rows
    assert attempt.cycle.reservations.chosen_info(0).name == "small"
    assert found.plugin.pre_score(attempt.cycle, attempt.pod, rows).ok
    assert found.plugin.score(attempt.cycle, attempt.pod, found.table, rows).tolist() == [100]


def test_reservation_case_13_score_with_devices():
    holds = {**amounts(8, "16Gi"), "nvidia.com/gpu": "2"}
    asked = {"cpu": 4, "memory": "4Gi", "nvidia.com__gpu": 1}
    assert scored(holds, **asked) == 41
    assert scored(holds, {"cpu": 2, "memory": "4Gi"}, **asked) == 58


def test_reservation_case_14_the_node_with_the_smallest_order():
    """Three nodes whose Reservation the pod fills, and one whose Reservation has an order."""
    state = []
    for name in ("n0", "n1", "n2", "n3"):
        labels = {RESERVATION_ORDER: "123456"} if name == "n3" else {}
        state += [node(name, cpu="8"), reservation(f"on-{name}", name, holds=amounts(2), labels=labels)]
    found = Played(*state)
    found.offline.add(wanting(cpu=2))
    explained = found.offline.explain("default/p")
    assert [each.scores["Reservation"].raw for each in explained.nodes] == [100, 100, 100, 1000]
    assert [each.scores["Reservation"].normalized for each in explained.nodes] == [10, 10, 10, 100]


def test_reservation_case_15_orders():
    orders = {"b": "0", "c": "abc", "a": "100"}
    state = [reservation(name, holds=amounts(4), labels={RESERVATION_ORDER: order}) for name, order in orders.items()]
    asked = wanting(cpu=2)
    assert Played(node("n", cpu="32"), *state).chosen(asked) == "a"
    state.append(reservation("d", holds=amounts(4), labels={RESERVATION_ORDER: "-5"}))
    assert Played(node("n", cpu="32"), *state).chosen(asked) == "d"


def candidate(name, cpu, memory, priority):
    return wanting(
        name,
        on="n",
        labels={PRE_ALLOCATABLE: "true"},
        annotations={PRE_ALLOCATABLE_PRIORITY: str(priority)},
        cpu=cpu,
        memory=memory,
    )


def taking(used, *candidates, holds, multiple=True, prefers=False):
    """(what is said on the node, pods that are taken)."""
    policy = {"mode": "Cluster", "enableMultiple": multiple}
    wanted = reservation(
        on="", holds=holds, allocatePolicy="Restricted", preAllocation=True, preAllocationPolicy=policy
    )
    config = {"enableClusterMode": True, "preferNoPreAllocatedPods": prefers}
    found = Played(node("n", cpu="16", memory="32Gi"), plain(**used), *candidates, wanted, preAllocationConfig=config)
    said = found.said("r")
    attempt = found.attempt("r")
    return said, [each.name for each in attempt.cycle.reservations.selected.get(0, ())]


def test_reservation_case_25_several_pods_are_taken():
    candidates = candidate("p2", 1, "2Gi", 70), candidate("p3", 5, "10Gi", 90), candidate("p4", 1, "2Gi", 50)
    used, holds = {"cpu": 7, "memory": "14Gi"}, amounts(4, "8Gi")
    assert taking(used, *candidates, holds=holds) == ((), ["p2", "p4"])
    said, _ = taking(used, *candidates, holds=holds, multiple=False)
    assert said == refused("Insufficient cpu by node", "Insufficient memory by node")


def test_reservation_case_26_pods_are_taken_where_there_is_room_without():
    candidates = candidate("p1", 2, "4Gi", 10), candidate("p2", 2, "4Gi", 20)
    used, holds = {"cpu": 1, "memory": "2Gi"}, amounts(8, "16Gi")
    assert taking(used, *candidates, holds=holds) == ((), ["p2"])
    assert taking(used, *candidates, holds=holds, prefers=True) == ((), [])


def test_reservation_case_27_pre_allocation_needs_restricted():
    wanted = reservation(on="", holds=amounts(2), allocatePolicy="Aligned", preAllocation=True)
    found = Played(node("n"), wanting("o", on="n", cpu=1), wanted)
    assert found.said("r") == unresolvable("node(s) reservation pre allocation is unsupported with current attributes")


def test_reservation_case_28_the_end_of_a_reservation():
    """Its room is free, and the host port that its owner uses is not. That pods are tried again: `resv-15`."""
    held = reservation(holds=amounts(4))
    held["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    owner = wanting("o", of="r", on="n", cpu=1, ports=(8080,))
    found = Played(node("n", cpu="8"), held, owner, alone=False)
    outsider = wanting("out", labels={}, cpu=7, ports=(9090,))
    assert found.said(outsider) == ("Unschedulable", "NodeResourcesFit", "Insufficient cpu")
    over = {**held, "metadata": {**held["metadata"], "resourceVersion": "2"}}
    over["status"] = {**held["status"], "phase": "Succeeded"}
    found.offline.add(over)
    assert "r" not in found.offline.cluster.assigned
    assert found.said(outsider) == ()
    clash = wanting("clash", labels={}, cpu=1, ports=(8080,))
    assert found.said(clash)[1] == "NodePorts"


def test_reservation_case_30_nominated_reservations_count():
    """Those of the same priority that are nominated to a node, but for the one itself."""
    found = Played(node("n", cpu="32"), *(reservation(f"r{i}", "", holds=amounts(11)) for i in range(3)), alone=False)
    for name in ("r0", "r1"):
        nominated = found.offline.pending[f"default/{name}"]
        nominated.nominated_node = "n"
        found.offline.nominator.add(nominated)
    assert found.said("r2") == ("Unschedulable", "NodeResourcesFit", "Insufficient cpu")
    assert found.said("r1") == ()


def test_nothing_of_what_a_restricted_reservation_lists_as_zero():
    found = Played(node("n", cpu="8"), reservation(holds=amounts(0, "1Gi"), allocatePolicy="Restricted"))
    assert found.said(wanting(cpu=1, memory="1Gi", affinity={})) == refused("Reservation(s) Insufficient cpu")
    assert found.said(wanting("q", cpu=1, memory="1Gi")) == ()
    assert found.chosen(wanting("q", cpu=1, memory="1Gi")) is None
    assert found.said(wanting("s", memory="1Gi", affinity={})) == ()


def test_exact_match_of_what_is_requested_as_zero():
    """It counts as absent, and what is in neither matches."""
    exact = {EXACT_MATCH: json.dumps({"resourceNames": ["cpu"]})}
    found = Played(node("n", cpu="8"), reservation(holds=amounts(None, "1Gi")))
    assert found.chosen(wanting(cpu=0, memory="1Gi", annotations=exact)) == "r"
    assert found.chosen(wanting("q", memory="1Gi", annotations=exact)) == "r"
