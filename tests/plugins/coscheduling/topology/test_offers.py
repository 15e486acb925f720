"""How many members fit each node: the same as placing them one by one on one node after the other."""

from copy import deepcopy

import numpy as np
import pytest

from koordsched.cluster import nodetable
from koordsched.framework.interface import CycleState
from koordsched.framework.serving import ServesSeveral
from koordsched.framework.status import PASS
from koordsched.plugins.coscheduling.topology.members import in_order, member_of
from koordsched.plugins.coscheduling.topology.offers import Offers
from tests.parity.fresh import fresh_seeds
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.shared.preemption.test_search import Cluster, snapshot


@pytest.fixture(autouse=True)
def columns_of_large_tables(request, monkeypatch):
    """Every other cluster keeps resources as large ones do."""
    if "seed" in request.fixturenames and request.getfixturevalue("seed") % 2:
        monkeypatch.setattr(nodetable, "SMALL_TABLE", 0)


def naive(cluster, profile, pods, row):
    """(number, reason why not more): each member is judged with those before it assumed on the node.

    They hold their devices, too, unless they may use a Reservation there.
    """
    assumed = []
    serving = [plugin for plugin in profile.reserve_plugins if isinstance(plugin, ServesSeveral)]
    try:
        for member in pods:
            cycle = CycleState(member)
            verdicts = profile.filtering.filter(cycle, all_nodes=True)
            code = int(verdicts.codes[row])
            if code != PASS:
                return len(assumed), profile.handle.reasons[code]
            cluster.assume(member, row)
            assumed.append((member, cycle))
            if cycle.reservations is None or not cycle.reservations.on(row):
                for plugin in serving:
                    assert plugin.reserve(cycle, member, row).ok
        return len(assumed), None
    finally:
        for member, cycle in reversed(assumed):
            for plugin in serving:
                plugin.unreserve(cycle, member, row)
            cluster.forget(member)


def same_as_one_by_one(offline, pods, rows):
    """Both ways on these rows; returns how many fit each."""
    (profile,) = offline.profiles.values()
    counted = Offers(profile.handle).count(pods, rows)
    nominations = [offline.nominator.withdraw(member.uid) for member in pods]
    names, reasons = offline.cluster.table.names, profile.handle.reasons
    for row in rows.tolist():
        number, reason = naive(offline.cluster, profile, pods, row)
        code = int(counted.codes[row])
        found = (int(counted.offers[row]), None if code == PASS else reasons[code])
        assert found == (number, reason), (names[row], [member.key for member in pods])
    for nomination in nominations:
        if nomination is not None:
            offline.nominator.reinstate(nomination)
    others = np.setdiff1d(np.arange(offline.cluster.table.size), rows)
    assert not counted.offers[others].any()
    return counted.offers[rows].tolist()


def roomy(seed):
    """A random cluster, in most cases with room on many nodes."""
    cluster = Cluster(seed)
    gone = cluster.rng.choice([0, 0.5, 0.8, 0.9, 1])
    for placed in [each for each in cluster.placed if cluster.rng.random() < gone]:
        cluster.placed.remove(placed)
        cluster.cluster.remove_pod(placed["metadata"]["uid"])
    return cluster


def job(cluster, number):
    """Pending members of one to three kinds."""
    rng = cluster.rng
    kinds = [cluster.preemptor(f"job-{number}-{kind}") for kind in range(rng.choice([1, 1, 1, 2, 3]))]
    if rng.random() < 0.6:
        kinds = [small(kind) for kind in kinds]
    kinds = [plain(kind) if rng.random() < 0.4 else kind for kind in kinds]
    members = []
    for at in range(rng.choice([1, 2, 4, 8, 12])):
        member = deepcopy(rng.choice(kinds) if rng.random() < 0.7 else kinds[0])
        name = f"m{number}-{at:02}"
        member["metadata"] |= {"name": name, "uid": name}
        if rng.random() < 0.8:
            member["status"].pop("nominatedNodeName", None)
        members.append(cluster.offline.add(member))
    if rng.random() < 0.5:
        members.sort(key=lambda member: member.shape.key)
    return members


def small(member):
    """So that many fit a node."""
    requests = member["spec"]["containers"][0]["resources"]["requests"]
    member["spec"]["containers"][0]["resources"]["requests"] = requests | {"cpu": "50m", "memory": "10Mi"}
    return member


def plain(member):
    """For which nothing but room matters."""
    for field in ("affinity", "topologySpreadConstraints", "volumes", "nodeSelector"):
        member["spec"].pop(field, None)
    member["spec"]["containers"][0].pop("ports", None)
    member["spec"]["containers"][0]["resources"].pop("limits")
    member["spec"]["containers"][0]["resources"]["requests"].pop("ex.com/gpu", None)
    return member


@pytest.mark.parametrize("seed", fresh_seeds("offers of nodes", 60))
def test_same_as_one_node_after_the_other(seed):
    cluster = roomy(seed)
    for number in range(4):
        for _ in range(cluster.rng.choice([0, 1, 3])):
            cluster.something_happens()
        pods = job(cluster, number)
        table = cluster.cluster.table
        rows = np.flatnonzero(table.alive.data[: table.size])
        if cluster.rng.random() < 0.2:
            rows = rows[::2]
        columns, ports = snapshot(cluster)
        Offers(cluster.profile.handle).count(pods, rows)
        after, ports_after = snapshot(cluster)
        assert (after[: len(columns)], ports_after) == (columns, ports)  # a new resource has a new column
        same_as_one_by_one(cluster.offline, pods, rows)
        for member in pods:
            cluster.offline.nominator.delete(member.uid)


def test_the_random_jobs_are_about_something():
    """Several members fit a node now and then, and none does."""
    counts = set()
    for seed in range(20):
        cluster = roomy(seed)
        pods = job(cluster, 0)
        rows = np.array([cluster.cluster.table.row_of[name] for name in sorted(cluster.names)])
        counts.update(same_as_one_by_one(cluster.offline, pods, np.sort(rows)))
    assert {0, 1, 2} < counts
    assert max(counts) >= 8


# --- by hand -------------------------------------------------------------------------------------------


def counted(objects, members, config=None, rows=None):
    """node -> (how many fit, the texts why not more)"""
    offline = scheduler(objects, config)
    pods = [offline.add(member) for member in members]
    table = offline.cluster.table
    rows = np.arange(table.size) if rows is None else rows
    profile = offline.profiles["default-scheduler"]
    found = Offers(profile.handle).count(pods, rows)
    reasons = profile.handle.reasons
    same_as_one_by_one(offline, pods, rows)
    return {table.names[row]: (int(found.offers[row]), reasons[int(found.codes[row])].texts) for row in rows.tolist()}


def members(number, **amounts):
    return [pod(f"m{at:03}", container(**amounts)) for at in range(number)]


CPU = ("Insufficient cpu",)


def test_as_many_as_there_is_room_for():
    nodes = [node("n1", "8"), node("n2", "3"), node("n3", "1"), node("n4", "100", unschedulable=True)]
    assert counted(nodes, members(3, cpu="2")) == {
        "n1": (3, ()),
        "n2": (1, CPU),
        "n3": (0, CPU),
        "n4": (0, ("node(s) were unschedulable",)),
    }


def test_only_the_candidates_are_asked():
    assert counted([node("n1"), node("n2")], members(1, cpu="1"), rows=np.array([1])) == {"n2": (1, ())}


def test_members_are_tried_in_order():
    large, *rest = members(3, cpu="1")
    large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    nodes = [node("n1", "5"), node("n2", "3")]
    assert counted(nodes, [large, *rest]) == {"n1": (2, CPU), "n2": (0, CPU)}
    assert counted(nodes, [*rest, large]) == {"n1": (2, CPU), "n2": (2, CPU)}


def test_members_with_a_host_port_need_a_node_each():
    made = [pod(f"m{at}", container(ports=[80], cpu="1")) for at in range(3)]
    ports = ("node(s) didn't have free ports for the requested pod ports",)
    assert counted([node("n1", "8"), node("n2", "8")], made) == {"n1": (1, ports), "n2": (1, ports)}
    made[1] = pod("m1", container(ports=[81], cpu="1"))
    assert counted([node("n1", "8"), node("n2", "1")], made) == {"n1": (2, ports), "n2": (1, CPU)}


def test_members_that_repel_each_other():
    labels = {"app": "a"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made = [pod(f"m{at}", container(cpu="1"), labels=labels, affinity=repelled) for at in range(3)]
    texts = ("node(s) didn't match pod anti-affinity rules",)
    assert counted([node("n1", "8"), node("n2", "8")], made) == {"n1": (1, texts), "n2": (1, texts)}


def test_a_member_that_repels_others_by_a_label_that_not_all_nodes_have():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "b"}}}
    repelling = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = pod("m0", container(cpu="1"), affinity=repelling)
    second = pod("m1", container(cpu="1"), labels={"app": "b"})
    texts = ("node(s) didn't satisfy existing pods anti-affinity rules",)
    nodes = [node("n1", "8"), node("n2", "8", labels={"zone": "z"}), node("n3", "8", labels={"zone": "z"})]
    assert counted(nodes, [first, second]) == {"n1": (2, ()), "n2": (1, texts), "n3": (1, texts)}


def test_the_room_of_nominated_pods_is_theirs_but_for_members():
    others = pod("other", container(cpu="3"), priority=10) | {"status": {"nominatedNodeName": "n1"}}
    lower = pod("lower", container(cpu="3"), priority=-1) | {"status": {"nominatedNodeName": "n2"}}
    own = members(4, cpu="1")
    own[3]["status"]["nominatedNodeName"] = "n2"
    assert counted([node("n1", "4"), node("n2", "4"), others, lower], own) == {"n1": (1, CPU), "n2": (4, ())}


def test_a_member_that_may_go_to_one_node_only():
    own = members(2, cpu="1")
    named = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]
    own[1]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}
    }
    texts = ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
    assert counted([node("n1"), node("n2")], own) == {"n1": (1, texts), "n2": (2, ())}


def test_a_member_that_is_rejected_before_any_node_is_looked_at():
    own = members(2, cpu="1")
    own[1]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    texts = ('persistentvolumeclaim "missing" not found',)
    assert counted([node("n1"), node("n2")], own) == {"n1": (1, texts), "n2": (1, texts)}


def test_no_candidates_and_no_members():
    offline = scheduler([node("n1")])
    offers = Offers(offline.profiles["default-scheduler"].handle)
    assert offers.count([], np.array([0])).offers.tolist() == [0]
    assert offers.count([offline.add(members(1)[0])], np.zeros(0, dtype=np.intp)).offers.tolist() == [0]


def test_members_are_ordered_by_index():
    offline = scheduler([])
    made = members(5)
    for member, index in zip(made, ("2", "x", "-1", "0", "+1"), strict=True):
        member["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/network-topology-index": index}
    found = [member_of(offline.add(member)) for member in made]
    assert [found[at].name for at in in_order(found)] == ["m003", "m004", "m000", "m001", "m002"]
