"""A pod that acts as a Reservation stays, with all that it has, beside those who do not take its place."""

import json

import pytest

from koordsched.plugins.interpodaffinity.plugin import REASON_ANTI_AFFINITY, REASON_EXISTING
from koordsched.plugins.nodevolumelimits.plugin import REASON as REASON_ATTACHED
from koordsched.plugins.podtopologyspread.plugin import REASON_SKEW
from koordsched.plugins.reservation.kinds import (
    EXACT_MATCH,
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_IGNORED,
)
from koordsched.plugins.volumerestrictions.plugin import REASON_DISK, REASON_SINGLE_POD
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod, pod_affinity, pod_term, spread
from tests.plugins.reservation.test_operating_mode import PROFILE, WEB, acting, beside, uses

HOST, ZONE = "kubernetes.io/hostname", "zone"
ROLE = {"role": "keeper"}


def claimed(name, mode="ReadWriteOncePod"):
    """A claim with its volume of driver d."""
    said = {"accessModes": [mode], "storageClassName": ""}
    volume = {**said, "csi": {"driver": "d", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "annotations": bound},
            "spec": {**said, "volumeName": name},
        },
    ]


def with_claim(thing, name):
    thing["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


def single_pod_claim(acts, owner):
    with_claim(acts, "alone")
    with_claim(owner, "alone")
    return claimed("alone")


def inline_disk(acts, owner):
    for thing in (acts, owner):
        thing["spec"]["volumes"] = [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]
    return []


def attach_limit(acts, owner):
    with_claim(acts, "one")
    with_claim(owner, "two")
    limits = {"drivers": [{"name": "d", "nodeID": "alder", "allocatable": {"count": 1}}]}
    meta = {"name": "alder"}
    csi = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": limits}
    return [csi, *claimed("one", "ReadWriteOnce"), *claimed("two", "ReadWriteOnce")]


def anti_affinity(acts, owner):
    acts["metadata"]["labels"] |= ROLE
    owner["spec"]["affinity"] = pod_affinity(required_anti=[pod_term(HOST, ROLE)])
    return []


def its_anti_affinity(acts, owner):
    """PreFilter says SKIP to the owner where the pod is away."""
    acts["spec"]["affinity"] = pod_affinity(required_anti=[pod_term(HOST, WEB)])
    return []


def spreading(acts, owner):
    """A second node, on which nothing can be, has none of those that are counted."""
    for thing in (acts, owner):
        thing["metadata"]["labels"] |= ROLE
    owner["spec"]["topologySpreadConstraints"] = [spread(HOST, 1, ROLE)]
    return [node("aspen", unschedulable=True)]


CONFLICTS = {
    single_pod_claim: REASON_SINGLE_POD,
    inline_disk: REASON_DISK,
    attach_limit: REASON_ATTACHED,
    anti_affinity: REASON_ANTI_AFFINITY,
    its_anti_affinity: REASON_EXISTING,
    spreading: REASON_SKEW,
}
conflicts = pytest.mark.parametrize("conflict", CONFLICTS)


def on_alder(conflict, *others, acts_cpu="3", cpu="2", annotations=None, priority=0, also=(), **spec):
    """An owner waits, and a pod acts as a Reservation for it on alder, with what is in the way of the owner."""
    acts = acting(acts_cpu)
    owner = pod("p", container(**({"cpu": cpu} if cpu else {})), labels=dict(WEB), priority=priority, **spec)
    owner["metadata"]["annotations"] = annotations or {}
    objects = conflict(acts, owner) if conflict is not None else []
    return scheduler([node("alder", cpu="8", pods="9"), *objects, acts, *others, owner], PROFILE)


@conflicts
def test_an_owner_that_takes_its_place_finds_nothing_of_it(conflict):
    offline = on_alder(conflict)
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "acts"}


@conflicts
def test_one_that_could_use_another_reservation_only(conflict):
    offline = on_alder(conflict, beside("2"), acts_cpu="0")
    attempt = offline.schedule("default/p")
    assert attempt.node == ""
    assert CONFLICTS[conflict] in attempt.message
    # Without what is in the way it could.
    offline = on_alder(None, beside("2"), acts_cpu="0")
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "r"}


@conflicts
def test_one_that_has_both_takes_the_place(conflict):
    """The other one would be fuller with it."""
    offline = on_alder(None, beside("2"))
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "r"}
    offline = on_alder(conflict, beside("2"))
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "acts"}


@conflicts
def test_one_that_uses_none(conflict):
    """It requests nothing that any Reservation gives."""
    attempt = on_alder(conflict, cpu="").schedule("default/p")
    assert attempt.node == ""
    assert CONFLICTS[conflict] in attempt.message
    offline = on_alder(None, cpu="")
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {}


@conflicts
def test_two_that_act_are_not_both_gone(conflict):
    """The other one, in whose place there would be room, stays for the one whose place is taken."""

    def both(acts, owner):
        twin["metadata"] = {**acts["metadata"], "name": "twin", "uid": "twin"}
        objects = conflict(acts, owner)
        twin["metadata"]["labels"] = acts["metadata"]["labels"]
        twin["spec"] = {**acts["spec"], "containers": [container(cpu="0")]}
        return objects

    twin = acting("0")
    attempt = on_alder(both, twin).schedule("default/p")
    assert attempt.node == ""
    assert CONFLICTS[conflict] in attempt.message


def far(acts, owner):
    """The owner keeps away from the whole zone; another node of it has more room."""
    acts["metadata"]["labels"] |= ROLE
    owner["spec"]["affinity"] = pod_affinity(required_anti=[pod_term(ZONE, ROLE)])
    return []


@pytest.mark.parametrize("conflict", [single_pod_claim, far])
@pytest.mark.parametrize("reserved", [False, True])
def test_it_stays_for_those_who_go_to_another_node(conflict, reserved):
    def on_birch(acts, owner):
        return [*far_node(acts, owner), *conflict(acts, owner)]

    def far_node(acts, owner):
        return [node("birch", cpu="16", labels={ZONE: "z"}), *([there] if reserved else [])]

    there = beside("9")
    there["status"]["nodeName"] = "birch"
    outcomes = []
    for objects in (on_birch, far_node):
        offline = on_alder(objects, cpu="9")
        labelled = node("alder", cpu="8", labels={ZONE: "z"})
        labelled["metadata"]["resourceVersion"] = "2"
        offline.add(labelled)
        outcomes.append(offline.schedule("default/p").node)
    assert outcomes == ["", "birch"]


def test_one_that_ignores_reservations_sees_none():
    offline = on_alder(its_anti_affinity)
    ignoring = pod("q", container(cpu="1"), labels={**WEB, RESERVATION_IGNORED: "true"})
    offline.add(ignoring)
    assert offline.schedule("default/q").node == "alder"


def test_one_that_ignores_reservations_has_no_place_near_it_on_another_node():
    """Only what is on its own node is away for it."""

    def keeping_away(acts, owner):
        acts["spec"]["affinity"] = pod_affinity(required_anti=[pod_term(ZONE, WEB)])
        return [node("birch", cpu="16", labels={ZONE: "z"}), node("cedar", cpu="2", labels={ZONE: "y"})]

    for cpu, place in (("9", ""), ("2", "cedar"), ("1", "alder")):
        offline = on_alder(keeping_away)
        labelled = node("alder", cpu="1" if cpu == "2" else "4", labels={ZONE: "z"})
        labelled["metadata"]["resourceVersion"] = "2"
        offline.add(labelled)
        if place == "alder":
            offline.cluster.remove_node("cedar")
        offline.add(pod("q", container(cpu=cpu), labels={**WEB, RESERVATION_IGNORED: "true"}))
        attempt = offline.schedule("default/q")
        assert attempt.node == place
        assert bool(place) or REASON_EXISTING in attempt.message


@conflicts
def test_one_that_needs_a_reservation(conflict):
    needs = {RESERVATION_AFFINITY: "{}"}
    offline = on_alder(conflict, acts_cpu="3", annotations=needs)
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"p": "acts"}
    named = {RESERVATION_AFFINITY: json.dumps({"name": "r"})}
    attempt = on_alder(conflict, beside("2"), annotations=named).schedule("default/p")
    assert attempt.node == ""
    assert CONFLICTS[conflict] in attempt.message


@conflicts
@pytest.mark.parametrize(("cpu", "used"), [("3", "acts"), ("2", "")])
def test_one_that_needs_an_exact_one(conflict, cpu, used):
    exact = {EXACT_MATCH: json.dumps({"resourceNames": ["cpu"]})}
    offline = on_alder(conflict, beside("2"), cpu=cpu, annotations=exact)
    assert offline.schedule("default/p").node == ("alder" if used else "")
    assert uses(offline) == ({"p": used} if used else {})


@conflicts
@pytest.mark.parametrize("stays", [False, True])
def test_none_is_evicted_in_vain(conflict, stays):
    """There is room for the owner if another pod goes: in the place of the one that acts, but not beside it."""
    small = pod("small", container(cpu="7.5"), on="alder", labels={})
    acts_cpu = "0" if stays else "500m"
    offline = on_alder(conflict, small, acts_cpu=acts_cpu, cpu="2", priority=10)
    explained = offline.explain("default/p")
    assert explained.any_of == []
    assert explained.nominated_node == ("" if stays else "alder")
    assert explained.victims == ([] if stays else ["default/small"])
    assert on_alder(None, small, acts_cpu=acts_cpu, cpu="2", priority=10).explain("default/p").nominated_node == "alder"


@conflicts
def test_what_is_explained(conflict):
    lines = on_alder(conflict, beside("2"), acts_cpu="0").explain("default/p").notes["Reservation"]
    assert f"r: on alder: Reservation(s) {CONFLICTS[conflict]}" in "\n".join(lines)
    lines = on_alder(conflict, beside("2")).explain("default/p").notes["Reservation"]
    assert "acts: on alder: the pod may use it" in lines


def test_verdicts_of_other_rows_are_not_kept():
    """Replicas may use Reservations on many nodes; on one of these a pod acts as a Reservation for some time."""
    nodes = [node(f"n{number}", cpu="8", labels={ZONE: "z"}) for number in range(10)]
    reserved = []
    for number in range(10):
        one = beside("3")
        one["metadata"] |= {"name": f"r{number}", "uid": f"r{number}"}
        one["status"]["nodeName"] = f"n{number}"
        reserved.append(one)
    acts = acting("0", on="n3")
    acts["metadata"]["labels"] |= ROLE
    replicas = [
        pod(f"p{number}", container(cpu="3"), labels=WEB, affinity=pod_affinity(required_anti=[pod_term(ZONE, ROLE)]))
        for number in range(4)
    ]
    offline = scheduler([*nodes, *reserved, *replicas], PROFILE)
    assert offline.schedule("default/p0").node
    offline.add(acts)
    assert offline.schedule("default/p1").node == ""
    offline.cluster.remove_pod("uid-default-acts")
    assert offline.schedule("default/p2").node
    assert sorted(uses(offline)) == ["p0", "p2"]
    offline.add(acts | {"metadata": acts["metadata"] | {"uid": "again", "name": "again"}})
    assert offline.schedule("default/p3").node == ""


def test_what_it_uses_of_another_reservation_is_not_free():
    """Both would be full with the owner, of which the first by name is used."""
    outer = beside("1")
    outer["metadata"]["name"] = "a"
    acts = acting("1", **{RESERVATION_ALLOCATED: json.dumps({"name": "a", "uid": "r"})})
    owner = pod("p", container(cpu="1"), labels=dict(WEB))
    offline = scheduler([node("alder", cpu="8", pods="9"), outer, acts, owner], PROFILE)
    assert offline.schedule("default/p").node == "alder"
    assert uses(offline) == {"acts": "a", "p": "acts"}
