"""The pod that is scheduled in place of a Reservation."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordsched.api.quantity import nano_value
from koordsched.cluster.resources import effective_requests
from koordsched.plugins.reservation.kinds import (
    AVAILABLE,
    FAILED,
    IS_PRE_ALLOCATION,
    PRIORITY,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
    SUCCEEDED,
    WAITING,
    Reservation,
    ReservationSpec,
)
from koordsched.plugins.reservation.malformed import MalformedReservation
from koordsched.plugins.reservation.reservepod import (
    FAKE_CONTAINER,
    HIGHEST_PRIORITY,
    requests_of,
    reserve_pod,
    scheduler_of,
    validate,
)
from tests.depth import examples
from tests.plugins.reservation.hostile import nested, values
from tests.plugins.reservation.objects import STATE, reservation


def container(**requests):
    return {"name": "c", "resources": {"requests": requests, "limits": requests}}


def template(*containers, init=(), metadata=None, **spec):
    return {
        "metadata": metadata or {},
        "spec": {"containers": list(containers) or [container(cpu="1")], "initContainers": list(init), **spec},
    }


def available(on="n1", **allocatable):
    return {"phase": AVAILABLE, "nodeName": on, "allocatable": allocatable}


def test_reservation_case_21_reserve_pod():
    given_ = reservation(
        "r",
        labels={"test-label": "666"},
        template=template(
            container(x="100"),
            init=[container(x="10")],
            metadata={"namespace": "test", "labels": {"test-label": "111", "other": "1"}},
            nodeName="n1",
            overhead={"x": "1"},
        ),
        status=available(x="200"),
    )
    pod = reserve_pod(given_)
    assert (pod.metadata.name, pod.metadata.uid, pod.metadata.namespace) == ("uid-r", "uid-r", "test")
    assert pod.metadata.labels == {"test-label": "666", "other": "1"}
    assert pod.metadata.annotations == {RESERVATION_NODE: "n1", RESERVE_POD: "true", RESERVATION_NAME: "r"}
    first, fake = pod.spec.containers
    assert (first.resources, pod.spec.init_containers[0].resources, pod.spec.overhead) == (None, None, {})
    assert fake.name == FAKE_CONTAINER
    assert fake.resources.requests == fake.resources.limits == {"x": "200"}
    assert pod.spec.priority == HIGHEST_PRIORITY == 2147483647
    assert pod.spec.node_name == "n1"
    labelled = reservation(labels={PRIORITY: "1000"}, template=template())
    assert reserve_pod(labelled).spec.priority == 1000


def test_a_pending_one_has_no_node():
    pod = reserve_pod(reservation(template=template(nodeName="n1")))
    assert pod.spec.node_name == ""
    assert pod.metadata.annotations[RESERVATION_NODE] == "n1"
    assert pod.metadata.namespace == "default"


def test_identity_and_times_are_those_of_the_reservation():
    times = {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "generation": 3}
    meta = reserve_pod(reservation("r", meta=times)).metadata
    assert (meta.resource_version, meta.generation) == ("7", 3)
    assert (meta.creation_timestamp, meta.deletion_timestamp) == tuple(times.values())[:2]


def test_the_reservations_labels_and_annotations_come_first():
    pod = reserve_pod(
        reservation(
            labels={"a": "r"},
            annotations={"b": "r", RESERVATION_NAME: "forged"},
            template=template(metadata={"labels": {"a": "t", "c": "t"}, "annotations": {"b": "t", "d": "t"}}),
            preAllocation=True,
        )
    )
    assert pod.metadata.labels == {"a": "r", "c": "t"}
    assert pod.metadata.annotations == {
        "b": "r",
        "d": "t",
        RESERVATION_NAME: "r",
        RESERVE_POD: "true",
        IS_PRE_ALLOCATION: "true",
    }


@pytest.mark.parametrize(
    "in_template, label, priority",
    [
        (None, None, HIGHEST_PRIORITY),
        (5, "9", 5),
        (0, "9", 0),
        (None, "-9", -9),
        (None, "+9", 9),
        (None, "", HIGHEST_PRIORITY),
        (None, "high", HIGHEST_PRIORITY),
        (None, "2147483648", HIGHEST_PRIORITY),
        (None, "-2147483648", -2147483648),
    ],
)
def test_priority(in_template, label, priority):
    given_ = reservation(labels={} if label is None else {PRIORITY: label}, template=template(priority=in_template))
    assert reserve_pod(given_).spec.priority == priority


@pytest.mark.parametrize(
    "name, profile", [(None, "default-scheduler"), ("", "default-scheduler"), ("koord-scheduler", "koord-scheduler")]
)
def test_the_profile(name, profile):
    given_ = reservation(template=template(schedulerName=name))
    assert reserve_pod(given_).spec.scheduler_name == scheduler_of(given_) == profile


@pytest.mark.parametrize("phase, shown", [("", ""), (AVAILABLE, ""), (SUCCEEDED, SUCCEEDED), (FAILED, FAILED)])
def test_the_phase(phase, shown):
    assert reserve_pod(reservation(status={"phase": phase, "nodeName": "n1"})).status.phase == shown


def test_what_was_allocated_as_requested_leaves_the_template_as_it_is():
    given_ = reservation(
        template=template(container(cpu="1", memory="1Gi"), overhead={"cpu": "500m"}),
        status=available(cpu="1500m", memory=1 << 30),
    )
    pod = reserve_pod(given_)
    assert len(pod.spec.containers) == 1
    assert pod.spec.overhead == {"cpu": "500m"}


def test_what_scheduling_added_overlays_the_requests():
    given_ = reservation(
        template=template(container(cpu="1", memory="1Gi"), resources={"requests": {"cpu": "3"}}),
        status=available(cpu="2", gpu="50"),
    )
    pod = reserve_pod(given_)
    assert effective_requests(pod.spec) == {
        name: nano_value(quantity) for name, quantity in {"cpu": "2", "memory": "1Gi", "gpu": "50"}.items()
    }


@pytest.mark.parametrize(
    "status",
    [
        {"phase": AVAILABLE, "allocatable": {"cpu": "9"}},
        {"phase": WAITING, "nodeName": "n1", "allocatable": {"cpu": "9"}},
        {"phase": SUCCEEDED, "nodeName": "n1", "allocatable": {"cpu": "9"}},
        {},
    ],
)
def test_without_being_available_the_template_says_what_it_wants(status):
    given_ = reservation(template=template(container(cpu="1")), status=status)
    assert requests_of(given_) == {"cpu": "1"}
    assert effective_requests(reserve_pod(given_).spec) == {"cpu": nano_value("1")}


def test_an_available_one_has_its_allocatable():
    given_ = reservation(template=template(container(cpu="1")), status=available(memory="1Gi"))
    assert requests_of(given_) == {"memory": "1Gi"}


@pytest.mark.parametrize(
    "of_template, requests",
    [
        (template(container(cpu="1", memory="1Gi"), container(cpu="500m", memory="512Mi")), ("1500m", "1536Mi")),
        (template(container(cpu="1", memory="1024Mi"), init=[container(cpu="3")]), ("3", "1Gi")),
        (template(container(cpu="1", memory="1G"), overhead={"cpu": "1", "memory": "24M"}), ("2", "1024M")),
        (template(container(cpu=2, memory=1 << 30)), ("2", "1073741824")),
        (template(container(cpu="1", memory="0.5Gi")), ("1", "512Mi")),
        (template(container(cpu="1", memory="0")), ("1", "0")),
    ],
)
def test_requests_are_sums_in_canonical_form(of_template, requests):
    assert tuple(requests_of(reservation(template=of_template)).values()) == requests


def test_validate():
    assert validate(reservation()) is None
    assert validate(None) == "the reservation is nil"
    template_ = {"spec": {}}
    for spec, message in [
        (ReservationSpec(), "the reservation misses the template spec"),
        (ReservationSpec(template=template_), "the reservation misses the owner spec"),
        (ReservationSpec(template=template_, owners=[]), "the reservation misses the owner spec"),
        (ReservationSpec(template=template_, owners=[{}]), "the reservation misses the expiration spec"),
        (ReservationSpec(template=template_, owners=[{}], ttl="0s"), None),
        (ReservationSpec(template=template_, owners=[{}], expires="2026-01-01T00:00:00Z"), None),
    ]:
        assert validate(Reservation(spec=spec)) == message


@pytest.mark.parametrize(
    "of_template, said",
    [
        (5, "spec.template: "),
        ([], "spec.template: "),
        ({"spec": []}, "$.spec"),
        ({"metadata": {"labels": {"a": 5}}}, "$.metadata.labels"),
        ({"metadata": {"namespace": {}}}, "$.metadata.namespace"),
        ({"spec": {"containers": {}}}, "$.spec.containers"),
        ({"spec": {"nodeName": 5}}, "$.spec.nodeName"),
        (template(priority="high"), "$.spec.priority"),
        (template(priority=1 << 31), "spec.template: Expected `int` <= 2147483647 - at `$.spec.priority`"),
        (template(container(cpu="many")), "spec.template.spec.containers[0].resources.requests.cpu: quantity 'many'"),
        (template(init=[container(cpu="-1")]), "initContainers[0].resources.requests.cpu: quantity '-1' is negative"),
        (template(overhead={"cpu": "x" * 300}), "spec.template.spec.overhead.cpu: quantity"),
        (template(resources={"requests": {"cpu": "9" * 100}}), "spec.template.spec.resources.requests.cpu: quantity"),
        (
            template({"ports": [{"hostPort": 1 << 40}]}),
            "spec.template: Expected `int` <= 2147483647 - at `$.spec.containers[0].ports[0].hostPort`",
        ),
        (
            template(topologySpreadConstraints=[{"maxSkew": 1 << 70, "topologyKey": "", "whenUnsatisfiable": ""}]),
            "topologySpreadConstraints[0].maxSkew",
        ),
        (template(nodeSelector={"a": nested(5000)}), "spec.template: "),
    ],
)
def test_what_cannot_be_read_is_named(of_template, said):
    for read in (reserve_pod, requests_of, scheduler_of):
        with pytest.raises(MalformedReservation, match=re.escape(said)) as error:
            read(reservation(template=of_template))
        assert str(error.value).startswith("spec.template")


def test_a_long_grace_period_is_none_of_our_business():
    given_ = template(terminationGracePeriodSeconds=(1 << 63) - 1)
    assert reserve_pod(reservation(template=given_)).spec.termination_grace_period_seconds == (1 << 63) - 1


@pytest.mark.parametrize("quantity", ["x", "-1"])
def test_an_allocatable_that_cannot_be_read_is_named(quantity):
    given_ = reservation(template=template(), status=available(cpu=quantity))
    for read in (reserve_pod, requests_of):
        with pytest.raises(MalformedReservation, match=re.escape(f"status.allocatable.cpu: quantity '{quantity}'")):
            read(given_)


NAMES = (
    "metadata",
    "labels",
    "annotations",
    "namespace",
    "spec",
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "cpu",
    "overhead",
    "ports",
    "hostPort",
    "priority",
    "nodeName",
    "schedulerName",
    "tolerations",
    "nodeSelector",
    "affinity",
    "volumes",
    "name",
)
CONTAINERS = st.lists(values("resources", "requests", "cpu", "ports", "hostPort"), max_size=2)


@given(
    values(*NAMES) | st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": CONTAINERS})}),
    st.sampled_from([{}, available(cpu="1"), available()]),
)
@example({"spec": {"containers": [container(cpu="9" * 25)] * 30}}, available(cpu="1"))
@example({"spec": {"containers": [container(cpu="9" * 18 + ".0000000001")] * 30}}, available(cpu="1"))
@settings(max_examples=examples(600), deadline=None)
def test_any_template_gives_a_pod_or_a_message(value, status):
    given_ = reservation(template=json.loads(json.dumps(value)) or {}, status=status)
    with suppress(MalformedReservation):
        pod = STATE.pods.build(reserve_pod(given_))
        assert pod.uid == "uid-r"
        assert bool(pod.node) == bool(status)
        assert all(nano_value(quantity) >= 0 for quantity in requests_of(given_).values())
