"""Kinds: where their objects are, and that each is defined once."""

import pytest

from koordsched.api import apps, core
from koordsched.cluster import kinds
from koordsched.cluster.builtinkinds import NODES, PERSISTENT_VOLUMES, REPLICA_SETS, SERVICES
from koordsched.cluster.events import PERSISTENT_VOLUME
from koordsched.cluster.kinds import Kind, kind_at, scheduled_object


@pytest.mark.parametrize(
    "kind, group, path, one",
    [
        (SERVICES, "", "/api/v1/services", "/api/v1/namespaces/a/services/b"),
        (REPLICA_SETS, "apps", "/apis/apps/v1/replicasets", "/apis/apps/v1/namespaces/a/replicasets/b"),
        (NODES, "", "/api/v1/nodes", "/api/v1/nodes/b"),
    ],
)
def test_paths(kind, group, path, one):
    assert (kind.group, kind.path, kind.object_path("a" if kind.namespaced else "", "b")) == (group, path, one)
    assert kind_at(path) is kind


def test_names():
    assert (REPLICA_SETS.api_version, REPLICA_SETS.name, REPLICA_SETS.type) == (
        "apps/v1",
        "ReplicaSet",
        apps.ReplicaSet,
    )


def test_changes_of_objects_are_events(monkeypatch):
    assert PERSISTENT_VOLUMES.event == PERSISTENT_VOLUME
    assert REPLICA_SETS.event is None
    monkeypatch.setattr(kinds, "_registered", {})
    assert Kind("example.com/v1", "volumes", apps.ReplicaSet, PERSISTENT_VOLUME).event == PERSISTENT_VOLUME


def test_a_kind_is_defined_once():
    with pytest.raises(ValueError, match="/api/v1/services is defined twice"):
        Kind("v1", "services", core.Service)
    assert kind_at("/api/v1/services") is SERVICES


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("word", ["replicaset", "ReplicaSets", "replicasets.example.com"])
def test_objects_that_are_scheduled_are_named_by_kind(monkeypatch, word, scheduled):
    monkeypatch.setattr(kinds, "_registered", {})
    made = Kind("example.com/v1", "replicasets", apps.ReplicaSet, scheduled=scheduled)
    assert scheduled_object(f"{word}/r") == ((made, "r") if scheduled else None)
    assert scheduled_object(word) is None
    assert scheduled_object("pod/r") is None
