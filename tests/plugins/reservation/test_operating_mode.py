"""Pods that act as Reservations of what they request (operating mode)."""

import json

import pytest

from koordsched.cluster.resources import CPU
from koordsched.engine.transaction import Transaction
from koordsched.plugins.nodenumaresource.kinds import RESOURCE_STATUS
from koordsched.plugins.reservation.kinds import (
    CURRENT_OWNER,
    OPERATING_MODE,
    RESERVATION_ALLOCATED,
    RESERVATION_IGNORED,
    RESERVATION_OWNERS,
)
from koordsched.scheduling.snapshot import snapshot
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod

PROFILE = {"plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}}}
WITH_CPUS = {"plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}, {"name": "NodeNUMAResource"}]}}}
WEB = {"app": "web"}
OWNERS = json.dumps([{"labelSelector": {"matchLabels": WEB}}])


def acting(cpu="3", *, ready=True, owners=OWNERS, on="alder", **annotations):
    """A pod that acts as a Reservation."""
    thing = pod("acts", container(cpu=cpu), on=on, labels={OPERATING_MODE: "Reservation"})
    thing["metadata"]["annotations"] = {RESERVATION_OWNERS: owners, **annotations}
    thing["metadata"]["resourceVersion"] = "1"
    if on:
        thing["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    return thing


def on_nodes(*objects, profile=PROFILE):
    return scheduler([node("alder", cpu="4"), *objects], profile)


def used(offline):
    table = offline.cluster.table
    return table.requested[CPU].data.item(table.row_of["alder"])


def wanted(name="p", cpu="2", labels=None):
    return pod(name, container(cpu=cpu), labels=WEB if labels is None else labels)


def test_an_owner_takes_the_room_of_the_pod():
    offline = on_nodes(acting(), wanted())
    assert used(offline) == 3000
    placed = offline.schedule("default/p")
    assert placed.node == "alder"
    # What the owner uses the pod counts no more, and what is left of it is not for others.
    assert used(offline) == 3000
    (info,) = offline.profiles["default-scheduler"].plugins["Reservation"].cache
    assert [owner.name for owner in info.owners.values()] == ["p"]


def test_it_holds_what_it_requests():
    offline = on_nodes(acting("1500m"))
    (info,) = offline.profiles["default-scheduler"].plugins["Reservation"].cache
    assert info.reservation.status.allocatable == {"cpu": "1500m"}


@pytest.mark.parametrize(
    "case",
    [
        {"ready": False},
        {"owners": "not JSON"},
        {"owners": "[]"},
        {"owners": json.dumps([{"labelSelector": {"matchLabels": {"app": "db"}}}])},
        {CURRENT_OWNER: json.dumps({"namespace": "default", "name": "q", "uid": "q"})},
    ],
    ids=["not ready", "owners that cannot be read", "no owners", "owners of others", "used already"],
)
def test_others_do_not_get_it(case):
    offline = on_nodes(acting(**case), wanted())
    assert offline.schedule("default/p").node == ""
    assert used(offline) == 3000


def test_one_owner_uses_it_up():
    offline = on_nodes(acting(), wanted("p", cpu="1"), wanted("q", cpu="2"))
    assert offline.schedule("default/p").node == "alder"
    assert offline.schedule("default/q").node == ""


def test_it_is_found_again_after_a_restart_in_any_order():
    owner = wanted("p")
    owner["spec"]["nodeName"] = "alder"
    owner["metadata"]["annotations"] = {RESERVATION_ALLOCATED: json.dumps({"name": "acts", "uid": "uid-default-acts"})}
    for objects in ((acting(), owner), (owner, acting())):
        assert used(on_nodes(*objects)) == 3000


def test_a_newer_version_of_the_pod_counts_the_same():
    offline = on_nodes(acting(), wanted())
    offline.schedule("default/p")
    offline.add(acting() | {"metadata": acting()["metadata"] | {"resourceVersion": "2"}})
    assert used(offline) == 3000
    offline.cluster.remove_pod("uid-default-p")
    assert used(offline) == 3000
    offline.cluster.remove_pod("uid-default-acts")
    assert used(offline) == 0


PLAIN = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "uid": "r", "resourceVersion": "1"},
    "spec": {
        "template": {"spec": {"containers": [container(cpu="1")]}},
        "owners": [{"labelSelector": {"matchLabels": WEB}}],
        "ttl": "24h",
    },
}
"""Has no policy."""


def test_it_does_not_share_a_node_with_reservations_without_a_policy():
    there = {"status": {"phase": "Available", "nodeName": "alder", "allocatable": {"cpu": "1"}}}
    offline = on_nodes(PLAIN | there, acting(cpu="1", on=None))
    assert "node(s) reservation allocate policy conflict" in offline.schedule("default/acts").message


def test_as_long_as_it_is_there_reservations_without_a_policy_do_not_get_its_node():
    offline = on_nodes(acting(cpu="1"), PLAIN)
    (reserve_pod,) = offline.pending
    assert "node(s) reservation allocate policy conflict" in offline.schedule(reserve_pod).message
    offline.cluster.remove_pod("uid-default-acts")
    assert offline.schedule(reserve_pod).node == "alder"


def test_it_may_use_a_reservation_itself():
    """What it uses is given back when it goes, and its own owner uses nothing of what it is an owner of."""
    outer = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "r", "resourceVersion": "1"},
        "spec": {
            "template": {"spec": {"containers": [container(cpu="4")]}},
            "owners": [{"labelSelector": {"matchLabels": {OPERATING_MODE: "Reservation"}}}],
            "ttl": "24h",
            "allocateOnce": False,
            "allocatePolicy": "Aligned",
        },
        "status": {"phase": "Available", "nodeName": "alder", "allocatable": {"cpu": "4"}},
    }
    for first, second in ((outer, acting), (acting, outer)):
        both = [
            acting(**{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})}) if one is acting else one
            for one in (first, second)
        ]
        offline = on_nodes(*both)
        cache = offline.profiles["default-scheduler"].plugins["Reservation"].cache
        assert used(offline) == 4000
        assert [each.name for each in cache.named("r").owners.values()] == ["acts"]
        owner = pod("p", container(cpu="2"), on="alder", labels=WEB)
        uid = "uid-default-acts"
        owner["metadata"]["annotations"] = {RESERVATION_ALLOCATED: json.dumps({"name": "acts", "uid": uid})}
        offline.add(owner)
        assert used(offline) == 4000
        assert cache.named("r").allocated == {CPU: 3000}
        offline.cluster.remove_pod("uid-default-p")
        offline.cluster.remove_pod("uid-default-acts")
        assert cache.named("r").owners == {}
        assert list(cache.used()) == []
        assert used(offline) == 4000


def test_it_may_use_a_reservation_before_it_is_running():
    offline = on_nodes()
    offline.add(acting(ready=False, **{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})}))
    cache = offline.profiles["default-scheduler"].plugins["Reservation"].cache
    assert list(cache.users("r")) == ["uid-default-acts"]
    offline.cluster.remove_pod("uid-default-acts")
    assert list(cache.used()) == []


@pytest.mark.parametrize("cpu", ["2", "3"])
def test_it_counts_all_that_it_has_when_its_node_has_come_back(cpu):
    offline = on_nodes(acting(), wanted(cpu=cpu))
    assert offline.schedule("default/p").node == "alder"
    offline.cluster.remove_node("alder")
    offline.add(node("alder", cpu="4"))
    assert used(offline) == 3000
    offline.cluster.remove_pod("uid-default-p")
    assert used(offline) == 3000
    offline.cluster.remove_pod("uid-default-acts")
    assert used(offline) == 0


def with_cpus(thing, cpus):
    """The pod, with CPUs of its own."""
    thing["metadata"]["annotations"][RESOURCE_STATUS] = json.dumps({"cpuset": cpus})
    return thing


def holders(offline):
    """How many pods hold each CPU of the node."""
    columns = offline.profiles["default-scheduler"].plugins["NodeNUMAResource"].columns
    return columns.holders.data[offline.cluster.table.row_of["alder"], :3].tolist()


@pytest.fixture
def sharing_cpus():
    """A pod that acts as a Reservation of CPUs 0 to 2, and an owner that uses two of them."""
    owner = pod("p", container(cpu="2"), on="alder", labels=WEB)
    owner["metadata"]["annotations"] = {RESERVATION_ALLOCATED: json.dumps({"name": "acts", "uid": "uid-default-acts"})}
    offline = on_nodes(with_cpus(acting(), "0-2"), with_cpus(owner, "0-1"), profile=WITH_CPUS)
    assert holders(offline) == [1, 1, 1]
    return offline


def test_it_has_all_its_cpus_when_its_node_has_come_back(sharing_cpus):
    offline = sharing_cpus
    offline.cluster.remove_node("alder")
    offline.add(node("alder", cpu="4"))
    assert holders(offline) == [1, 1, 1]
    offline.cluster.remove_pod("uid-default-p")
    assert holders(offline) == [1, 1, 1]
    offline.cluster.remove_pod("uid-default-acts")
    assert holders(offline) == [0, 0, 0]


@pytest.mark.parametrize("evicted", [("acts",), ("acts", "p"), ("p", "acts")])
def test_it_has_all_its_cpus_when_its_eviction_is_taken_back(sharing_cpus, evicted):
    cluster = sharing_cpus.cluster
    with Transaction(cluster, sharing_cpus.nominator) as transaction:
        for name in evicted:
            transaction.evict(cluster.assigned[f"uid-default-{name}"])
        assert holders(sharing_cpus) == ([1, 1, 0] if evicted == ("acts",) else [0, 0, 0])
    assert holders(sharing_cpus) == [1, 1, 1]
    cluster.remove_pod("uid-default-p")
    assert holders(sharing_cpus) == [1, 1, 1]


def test_snapshots_show_all_that_it_has(sharing_cpus):
    shown = [*snapshot(sharing_cpus.cluster, [])]
    (acts,) = [thing for thing in shown if thing["metadata"]["name"] == "acts"]
    assert acts["metadata"]["annotations"] == acting(**{RESOURCE_STATUS: '{"cpuset":"0-2"}'})["metadata"]["annotations"]
    assert acts["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3"}
    again = scheduler(shown, WITH_CPUS)
    assert (holders(again), used(again)) == ([1, 1, 1], 3000)
    again.cluster.remove_pod("uid-default-p")
    assert (holders(again), used(again)) == ([1, 1, 1], 3000)
    # An owner finds it as it did.
    again.add(wanted(cpu="1"))
    assert again.schedule("default/p").node == "alder"
    assert used(again) == 3000


@pytest.mark.parametrize("ready", [True, False])
def test_snapshots_show_whether_it_is_ready(ready):
    again = scheduler([*snapshot(on_nodes(acting(ready=ready)).cluster, [])], PROFILE)
    (info,) = again.profiles["default-scheduler"].plugins["Reservation"].cache
    assert info.reservation.status.phase == ("Available" if ready else "Pending")


def claiming(thing):
    """The pod, which uses a claim that only one pod may use."""
    thing["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "alone"}}]
    return thing


@pytest.mark.parametrize(("labels", "goes"), [(WEB, True), ({RESERVATION_IGNORED: "true"}, True), ({}, False)])
def test_claims_of_the_pod_are_away_as_all_that_it_holds(labels, goes):
    claim = {"accessModes": ["ReadWriteOncePod"], "storageClassName": ""}
    volume = {**claim, "csi": {"driver": "d", "volumeHandle": "alone"}, "capacity": {"storage": "1Gi"}}
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    offline = on_nodes(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "alone", "namespace": "default", "annotations": bound},
            "spec": {**claim, "volumeName": "v"},
        },
        claiming(acting(cpu="1")),
        claiming(wanted(cpu="1", labels=labels)),
    )
    assert offline.schedule("default/p").node == ("alder" if goes else "")


def beside(cpu, **spec):
    """A Reservation on the node of the pod, for the same owners."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "r", "resourceVersion": "1"},
        "spec": {
            "template": {"spec": {"containers": [container(cpu=cpu)]}},
            "owners": [{"labelSelector": {"matchLabels": WEB}}],
            "ttl": "24h",
            "allocateOnce": False,
            "allocatePolicy": "Restricted",
            **spec,
        },
        "status": {"phase": "Available", "nodeName": "alder", "allocatable": {"cpu": cpu}},
    }


def with_other(*, acts_cpu, reserved_cpu, pods="3", ports=()):
    """A node with a pod that acts as a Reservation, one that does not, and a Reservation; an owner waits for either."""
    other = pod("other", container(cpu="1"), on="alder", labels={})
    acts = acting(acts_cpu)
    acts["spec"]["containers"][0]["ports"] = [{"hostPort": port, "containerPort": port} for port in ports]
    owner = pod("p", container(cpu="2", ports=ports), labels=WEB)
    return scheduler([node("alder", cpu="8", pods=pods), other, acts, beside(reserved_cpu), owner], PROFILE)


def uses(offline):
    return {
        owner.name: info.name
        for info in offline.profiles["default-scheduler"].plugins["Reservation"].cache
        for owner in info.owners.values()
    }


def test_it_takes_a_slot_of_those_who_use_another_reservation():
    offline = with_other(acts_cpu="3", reserved_cpu="2")
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "r"}
    # In the other Reservation there is no slot beside the pod that acts: it is used itself, and its slot is away.
    offline = with_other(acts_cpu="3", reserved_cpu="2", pods="2")
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "acts"}
    # It fits into the other one alone.
    offline = with_other(acts_cpu="0", reserved_cpu="2", pods="2")
    attempt = offline.schedule("default/p")
    assert attempt.node == ""
    assert "1 Insufficient pods by node" in attempt.message
    assert with_other(acts_cpu="0", reserved_cpu="2").schedule("default/p").node == "alder"


def test_it_takes_a_slot_of_an_owner_that_uses_no_reservation():
    """It requests nothing that any Reservation gives, so it goes past them."""
    for pods, node_name in (("1", ""), ("2", "alder")):
        owner = pod("p", container(), labels=WEB)
        offline = scheduler([node("alder", pods=pods), acting("1"), owner], PROFILE)
        assert offline.schedule("default/p").node == node_name
        assert uses(offline) == {}


def test_host_ports_are_its_own_for_those_who_use_another_reservation():
    offline = with_other(acts_cpu="3", reserved_cpu="2", ports=(80,))
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "acts"}
    offline = with_other(acts_cpu="0", reserved_cpu="2", ports=(80,))
    attempt = offline.schedule("default/p")
    assert attempt.node == ""
    assert "node(s) didn't have free ports for the requested pod ports" in attempt.message
