"""Objects in protobuf and back: as an API server had them, and as the embedded server writes and reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordsched.api.protobuf.envelope import list_of
from koordsched.api.protobuf.fields import definition_of
from koordsched.fakecluster.protobuf import to_json
from koordsched.fakecluster.protobufencoding import ProtobufEncoder
from koordsched.fakecluster.protobufmessages import enveloped
from tests.client.test_protobuf import RECORDED, recorded


def body(api: str, kind: str, obj: dict[str, Any]) -> bytes:
    """An object without apiVersion and kind, as Go clients send it to this path of an API."""
    return enveloped(api.partition("/")[2], kind, ProtobufEncoder(definition_of(api, kind))(obj))


def without(nothing: tuple[Any, ...], value: Any) -> Any:
    """Without values that count as nothing."""
    if isinstance(value, dict):
        inner = {key: without(nothing, item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in nothing}
    return [without(nothing, item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.plural)
def test_an_api_servers_objects_there_and_back(kind: Any) -> None:
    api_version, name = kind.api_version, kind.name
    encode = ProtobufEncoder(definition_of(kind.api, name))
    in_json = orjson.loads(recorded()[kind.plural]["json"])["items"]
    in_protobuf = list_of(recorded()[kind.plural]["protobuf"]).items
    assert len(in_json) == len(in_protobuf) > 0
    for ours, theirs in zip(in_json, in_protobuf, strict=True):
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **ours}
        # Go writes zeros and empty messages, too, where JSON leaves them out; of texts, empty and absent are one.
        zeros = (None, "", 0, [], {})
        assert without(zeros, orjson.loads(to_json(enveloped(api_version, name, theirs)))) == without(zeros, whole)
        absent = (None, "")
        assert without(absent, orjson.loads(to_json(enveloped(api_version, name, encode(ours))))) == without(
            absent, whole
        )


EVENT = {
    "metadata": {"name": "web.1", "namespace": "shop"},
    "eventTime": "2030-01-01T00:00:00.001000Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "default-scheduler-host-1",
    "action": "Binding",
    "reason": "Scheduled",
    "regarding": {"kind": "Pod", "namespace": "shop", "name": "web", "uid": "u", "apiVersion": "v1"},
    "related": {"kind": "Node", "name": "node-1"},
    "note": "Zugewiesen: näher → node-1",
    "type": "Normal",
    "series": {"count": 3, "lastObservedTime": "2030-01-01T00:00:00.000001Z"},
}
LEASE_EVENT = {
    "metadata": {"name": "kube-scheduler.1", "namespace": "kube-system"},
    "involvedObject": {"kind": "Lease", "name": "kube-scheduler", "apiVersion": "coordination.k8s.io/v1"},
    "reason": "LeaderElection",
    "message": "host became leader",
    "source": {"component": "default-scheduler"},
    "firstTimestamp": "2030-01-01T00:00:00Z",
    "lastTimestamp": "1969-12-31T23:59:59Z",
    "count": 1,
    "type": "Normal",
    "reportingComponent": "default-scheduler",
}
BINDING = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "target": {"kind": "Node", "name": "n" * 253}}


@pytest.mark.parametrize(
    ("api", "kind", "obj"),
    [("api/v1", "Binding", BINDING), ("apis/events.k8s.io/v1", "Event", EVENT), ("api/v1", "Event", LEASE_EVENT)],
)
def test_what_schedulers_create(api: str, kind: str, obj: dict[str, Any]) -> None:
    whole = {"apiVersion": api.partition("/")[2], "kind": kind, **obj}
    assert orjson.loads(to_json(body(api, kind, obj))) == whole


# By hand, from generated.proto: Unknown, Binding, ObjectMeta and ObjectReference of k8s.io/api/core/v1.
WIRE = (
    b"k8s\0"
    b"\x0a\x0d" b"\x0a\x02v1" b"\x12\x07Binding"
    b"\x12\x1b" b"\x0a\x0f" b"\x0a\x03web" b"\x1a\x04shop" b"\x2a\x02u1" b"\x12\x08" b"\x0a\x04Node" b"\x1a\x00"
)  # fmt: skip


def test_a_binding_byte_by_byte() -> None:
    binding = {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "target": {"kind": "Node", "name": ""}}
    assert body("api/v1", "Binding", binding) == WIRE


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30)), st.text().filter(lambda text: "\0" not in text))
def test_times_and_texts(at: datetime, note: str) -> None:
    event = {"eventTime": at.replace(tzinfo=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")}
    found = orjson.loads(to_json(body("apis/events.k8s.io/v1", "Event", {**event, "note": note})))
    assert found.get("eventTime") == event["eventTime"]
    assert found.get("note", "") == note


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"target": {"kind": 1}}, TypeError),
        ({"target": 1}, AttributeError),
        ({"metadata": {"labels": ["x"]}}, AttributeError),
        ({"metadata": {"creationTimestamp": "yesterday"}}, ValueError),
        ({"metadata": {"name": "\ud800"}}, ValueError),
    ],
)
def test_what_is_no_such_object(broken: dict[str, Any], problem: type[Exception]) -> None:
    with pytest.raises(problem):
        body("api/v1", "Binding", broken)
