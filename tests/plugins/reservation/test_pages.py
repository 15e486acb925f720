"""What endpoints and the command show of Reservations."""

import json

import msgspec
import pytest

from koordsched.framework.declaration import NotFound
from koordsched.framework.display import Line
from koordsched.plugins.reservation import DECLARATION
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod

PROFILE = {"plugins": {"multiPoint": {"enabled": [{"name": "Reservation"}]}}}
OWNERS = [{"labelSelector": {"matchLabels": {"app": "web"}}}]


def reservation(name, on="", owners=OWNERS, **spec):
    holds = {"cpu": "4", "memory": "8Gi"}
    thing = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": holds}}]}},
            "owners": owners,
            "ttl": "24h",
            "allocateOnce": False,
            **spec,
        },
    }
    if on:
        thing["status"] = {"phase": "Available", "nodeName": on, "allocatable": holds}
    return thing


def owner(name, of, on="alder"):
    thing = pod(name, container(cpu="1", memory="1Gi", ports=(80,)), on=on)
    thing["metadata"]["annotations"] = {RESERVATION_ALLOCATED: json.dumps({"name": of, "uid": of})}
    return thing


def plugin_on(*objects):
    offline = scheduler([node("alder", cpu="8", memory="32Gi"), node("beech"), *objects], PROFILE)
    return offline.profiles["default-scheduler"].plugins["Reservation"]


def lines(shown):
    """What is printed: lines as they are, rows of tables as tuples."""
    return [part.text if isinstance(part, Line) else list(part.rows) for part in shown]


def test_a_line_for_each():
    plugin = plugin_on(reservation("b", "alder"), reservation("a", owners="everybody"), owner("p", "b"))
    (view,) = DECLARATION.views
    report = view.report(plugin)
    assert [line.name for line in report.reservations] == ["a", "b"]
    (rows, problem) = lines(view.show(report))
    assert rows[1] == (
        "b",
        "Available",
        "alder",
        "Default",
        "no",
        "1",
        "cpu 3/4, memory 7Gi/8Gi",
        "2030-01-02T00:00:00Z",
    )
    assert rows[0][:3] == ("a", "Pending", "-")
    assert problem.startswith("a: spec.owners")
    # What a running scheduler sends is read as the same.
    assert msgspec.json.decode(msgspec.json.encode(report), type=view.type) == report


def test_one_with_its_owners():
    plugin = plugin_on(
        reservation("b", "alder", allocatePolicy="Restricted"), owner("p", "b"), owner("q", "b", "beech")
    )
    detail = DECLARATION.views[0].detail
    report = detail.report(plugin, "b")
    (first, _, resources, _, users, elsewhere) = lines(detail.show(report))
    assert first == (
        "Reservation b, Available, on alder, policy Restricted, for several pods, expires 2030-01-02T00:00:00Z"
    )
    assert resources == [("cpu", "4", "1", "3"), ("memory", "8Gi", "1Gi", "7Gi")]
    assert users == [("default/p", "cpu 1, memory 1Gi", "80")]
    assert elsewhere == "default/q names it, but is not on its node"
    assert report.may_use == OWNERS


def test_one_that_is_unknown():
    with pytest.raises(NotFound, match="there is no Reservation x"):
        DECLARATION.views[0].detail.report(plugin_on(), "x")


def test_upstreams_page_of_the_selector_index():
    args = {"reservationSelectorIndex": {"enabled": True, "keyPrefixes": ["quota-"], "keys": ["team"]}}
    profile = {**PROFILE, "pluginConfig": [{"name": "Reservation", "args": args}]}
    state = [node("alder", cpu="16", memory="64Gi"), node("beech")]
    for name, on, labels in (
        ("a", "alder", {"quota-q": "1", "team": "red"}),
        ("b", "alder", {"team": "blue"}),
        ("c", "", {"team": "red"}),
    ):
        state.append(reservation(name, on))
        state[-1]["metadata"]["labels"] = labels
    (page,) = (page for page in DECLARATION.pages if page.path.endswith("/reservationSelectorIndex"))
    plugin = scheduler(state, profile).profiles["default-scheduler"].plugins["Reservation"]
    assert page.answer(plugin, {}) == {
        "enabled": True,
        "prefixes": ["quota-"],
        "keys": ["team"],
        "indexedReservations": 2,
        "byPrefix": {"quota-": {"nodes": 1, "reservations": 1}},
        "byKey": {"team": {"nodes": 1, "reservations": 2}},
    }
    detailed = page.answer(plugin, {"detail": "true"})
    assert detailed["byKeyValue"]["team"]["red"]["byNode"] == {"alder": ["a"]}
    assert page.answer(plugin_on(reservation("a", "alder")), {}) == {
        "enabled": False,
        "prefixes": None,
        "indexedReservations": 0,
    }
