"""Protobuf says the same as JSON: by what an API server answered in both, and by what we make of it."""

import base64
from contextlib import suppress
from functools import cache

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.api import core, podstates
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import Wire
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.fields import definition_of, messages
from koordsched.api.protobuf.layout import layouts_of
from koordsched.client.errors import NotFound, error_from_status
from koordsched.client.jsonformat import JsonFormat
from koordsched.client.protobufformat import LONGEST_FRAME, FrameSplitter, ProtobufFormat, is_protobuf
from koordsched.client.wireformat import Page, Unreadable
from koordsched.cluster.builtinkinds import CONFIG_MAPS, PODS
from koordsched.fakecluster.protobufanswers import encoded
from koordsched.plugins import KINDS
from tests.client.recorded.record import HERE
from tests.depth import examples

WATCHED = KINDS.values()
BUILT_IN = [kind for kind in WATCHED if definition_of(kind.api, kind.type.__name__)]
RECORDED = [kind for kind in BUILT_IN if kind is not CONFIG_MAPS and kind.api != "apis/resource.k8s.io/v1"]
"""Of the others there is no answer of a real API server; they go by published field numbers alone."""


@cache
def recorded():
    return {
        name: {encoding: base64.b64decode(text) for encoding, text in answers.items()}
        for name, answers in orjson.loads((HERE / "answers.json").read_bytes()).items()
    }


def formats(kind):
    definition = definition_of(kind.api, kind.type.__name__)
    return JsonFormat(Decoder(kind.type)), ProtobufFormat(ProtobufDecoder(kind.type, definition))


def both(kind):
    """The objects of a recorded list: from JSON, from protobuf."""
    found = []
    for form, encoding in zip(formats(kind), ("json", "protobuf"), strict=True):
        found.append([form.decode(item, None) for item in form.page(recorded()[kind.plural][encoding]).items])
    return found


def test_what_comes_as_json_alone_is_what_custom_resource_definitions_add():
    assert {kind.plural for kind in WATCHED} - {kind.plural for kind in BUILT_IN} == {
        "clusternetworktopologies",
        "devices",
        "devicetaintrules",  # of a version whose field numbers we do not have
        "elasticquotas",
        "elasticquotaprofiles",
        "nodemetrics",
        "noderesourcetopologies",
        "podgroups",
        "reservations",
    }


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.plural)
def test_an_api_servers_objects_are_the_same_in_both(kind):
    from_json, from_protobuf = both(kind)
    assert from_json
    assert from_protobuf == from_json
    for form, encoding in zip(formats(kind), ("json", "protobuf"), strict=True):
        page = form.page(recorded()[kind.plural][encoding])
        assert (page.version.isdecimal(), page.next_token) == (True, "")


def fields_set(value, found):
    """(type, field) of everything in an object that is not its default."""
    if isinstance(value, msgspec.Struct):
        for info in msgspec.structs.fields(type(value)):
            inner = getattr(value, info.name)
            if inner not in (info.default, () if info.default_factory is msgspec.NODEFAULT else info.default_factory()):
                found.add((type(value).__name__, info.name))
            fields_set(inner, found)
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            fields_set(item, found)


BEHIND_A_FEATURE_GATE = {
    ("CSIDriverSpec", "prevent_pod_scheduling_if_missing"),
    ("PodSpec", "scheduling_group"),
    ("PodSchedulingGroup", "pod_group_name"),
}
NOT_RECORDED = {
    ("NodeSystemInfo", "boot_id"),
    ("NodeCondition", "last_transition_time"),
    ("PodStatus", "resource_claim_statuses"),
    ("PodResourceClaimStatus", "name"),
    ("PodResourceClaimStatus", "resource_claim_name"),
    ("PodStatus", "extended_resource_claim_status"),
    ("PodExtendedResourceClaimStatus", "resource_claim_name"),
    ("PodExtendedResourceClaimStatus", "request_mappings"),
    ("ContainerExtendedResourceRequest", "container_name"),
    ("ContainerExtendedResourceRequest", "resource_name"),
    ("ContainerExtendedResourceRequest", "request_name"),
    ("PodStatus", "node_allocatable_resource_claim_statuses"),
    ("NodeAllocatableResourceClaimStatus", "resource_claim_name"),
    ("NodeAllocatableResourceClaimStatus", "containers"),
    ("NodeAllocatableResourceClaimStatus", "resources"),
    ("ResourceRequirements", "claims"),
    ("ContainerClaim", "name"),
}
"""Compared below, by published field numbers alone."""


def test_every_field_that_is_read_is_among_what_was_recorded():
    read, found = set(), set()
    for kind in RECORDED:
        for layout in layouts_of(kind.type, definition_of(kind.api, kind.type.__name__)):
            read |= {(layout.struct.__name__, info.name) for info in msgspec.structs.fields(layout.struct)}
        for obj in both(kind)[1]:
            fields_set(obj, found)
    assert read - found == BEHIND_A_FEATURE_GATE | NOT_RECORDED


def test_a_recorded_watch():
    json_form, protobuf_form = formats(PODS)
    events = []
    for form, encoding in ((json_form, "json"), (protobuf_form, "protobuf")):
        frames = form.splitter().feed(recorded()["watch"][encoding])
        split = [form.event(frame) for frame in frames]
        events.append(split)
    assert [kind for kind, _ in events[0]] == [kind for kind, _ in events[1]] == ["ADDED"] * 3 + ["BOOKMARK"]
    for (_, in_json), (_, in_protobuf) in zip(events[0][:-1], events[1][:-1], strict=True):
        assert json_form.decode(in_json, None) == protobuf_form.decode(in_protobuf, None)
        assert json_form.meta(in_json).uid == protobuf_form.meta(in_protobuf).uid != ""
    bookmark = protobuf_form.meta(events[1][-1][1])
    assert bookmark.annotations == {"k8s.io/initial-events-end": "true"}
    assert bookmark.resource_version.isdecimal()


def test_a_recorded_refusal():
    refusals = [error_from_status(recorded()["missing"][encoding], 404) for encoding in ("json", "protobuf")]
    for refusal in refusals:
        assert isinstance(refusal, NotFound)
        assert (refusal.reason, str(refusal)) == ("NotFound", 'pods "none" not found')
        assert refusal.details == {"name": "none", "kind": "pods"}


def test_a_refusal_with_causes():
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Too large resource version: 9, current: 5",
        "reason": "Timeout",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "m"}], "retryAfterSeconds": 1},
        "code": 504,
    }
    error = error_from_status(encoded(orjson.dumps(status)))
    assert (error.status, error.reason, error.retry_after) == (504, "Timeout", 1.0)
    assert [error.has_cause(cause) for cause in ("ResourceVersionTooLarge", "DisruptionBudget")] == [True, False]
    assert error.details == status["details"]


# --- what one server did not say ---

STAMP = "2030-01-01T00:00:00Z"
CRASHED = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": STAMP, "finishedAt": "2030-01-01T00:00:02Z"}}
WAITS = {
    "name": "c",
    "image": "i",
    "restartCount": 4,
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}},
    "lastState": CRASHED,
}
RUNS = {"name": "d", "image": "i", "restartCount": 0, "state": {"running": {"startedAt": STAMP}}}
STATUSES = {
    podstates.Pod: {
        "startTime": STAMP,
        "initContainerStatuses": [WAITS],
        "containerStatuses": [RUNS, {**RUNS, "state": CRASHED}],
    },
    core.Node: {
        "nodeInfo": {"bootID": "b", "machineID": "m"},
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": STAMP}],
    },
}


@pytest.mark.parametrize("kind", STATUSES, ids=lambda kind: kind.__name__)
def test_states_of_containers_and_machines(kind):
    name = kind.__name__
    body = orjson.dumps({"apiVersion": "v1", "kind": name, "metadata": {"name": "x"}, "status": STATUSES[kind]})
    listed = {"apiVersion": "v1", "kind": f"{name}List", "metadata": {}, "items": [orjson.loads(body)]}
    form = ProtobufFormat(ProtobufDecoder(kind, f"io.k8s.api.core.v1.{name}"))
    [item] = form.page(encoded(orjson.dumps(listed))).items
    found = form.decode(item, None)
    assert found == Decoder(kind)(body)
    if kind is core.Node:
        assert found.status.node_info.boot_id == "b"
        assert found.status.conditions[0].last_transition_time == STAMP
    else:
        assert found.status.init_container_statuses[0].last_state.terminated.exit_code == 3
        assert found.status.container_statuses[1].state.terminated.finished_at == "2030-01-01T00:00:02Z"


def test_the_group_of_a_pod():
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    body["spec"] = {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "g"}}
    listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [body]}
    from_json, from_protobuf = formats(PODS)
    [item] = from_protobuf.page(encoded(orjson.dumps(listed))).items
    assert from_protobuf.decode(item, None).spec == from_json.decode(orjson.dumps(body), None).spec
    assert from_protobuf.decode(item, None).spec.scheduling_group.pod_group_name == "g"


def pruned(draw, value):
    """A JSON value of which parts are left out."""
    if isinstance(value, dict):
        return {key: pruned(draw, inner) for key, inner in value.items() if draw(st.integers(0, 9))}
    if isinstance(value, list):
        return [pruned(draw, inner) for inner in value if draw(st.integers(0, 9))]
    return value


@st.composite
def partial_objects(draw):
    kind = draw(st.sampled_from(RECORDED))
    whole = draw(st.sampled_from(orjson.loads(recorded()[kind.plural]["json"])["items"]))
    return kind, pruned(draw, whole)


@settings(max_examples=examples(300), deadline=None)
@given(partial_objects())
def test_any_part_of_an_object_is_the_same_in_both(case):
    kind, obj = case
    in_json, in_protobuf = formats(kind)
    try:
        expected = in_json.decode(orjson.dumps(obj), None)
    except DecodeError:
        # Lacks what JSON must have; protobuf knows no such thing.
        return
    listed = {"apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": "next"}, "items": [obj]}
    listed |= {"kind": f"{kind.type.__name__}List", "apiVersion": kind.api_version}
    page = in_protobuf.page(encoded(orjson.dumps(listed)))
    assert (page.version, page.next_token) == ("7", "next")
    assert [in_protobuf.decode(item, None) for item in page.items] == [expected]


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


SCHEDULER_NAME = b"\x9a\x01\x00"


@pytest.mark.parametrize(
    "message, expected",
    [
        (b"", core.Pod()),
        # Go writes what is empty: texts, and points in time that are not.
        (field(2, SCHEDULER_NAME), core.Pod()),
        (field(1, field(8, b"")), core.Pod()),
        (field(1, field(8, b"\x08\x00\x10\x00")), "1970-01-01T00:00:00Z"),
        (field(1, field(8, b"\x08\xff\x01")), "1970-01-01T00:04:15Z"),
    ],
)
def test_what_is_empty_is_as_if_it_were_not_there(message, expected):
    pod = ProtobufDecoder(core.Pod, "io.k8s.api.core.v1.Pod")(message)
    assert (pod.metadata.creation_timestamp if isinstance(expected, str) else pod) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"\xff" * 10,
        field(1, b"\x0a\x05ab"),
        field(1, field(1, b"\xff\xfe")),
        field(1, field(8, b"\x08" + b"\xff" * 8 + b"\x7f")),
    ],
    ids=["no message", "cut off", "not UTF-8", "a time out of range"],
)
def test_what_cannot_be_read_is_an_error_with_the_kind(message):
    with pytest.raises(DecodeError, match=r"^not a Pod in protobuf: "):
        ProtobufDecoder(core.Pod, "io.k8s.api.core.v1.Pod")(message)


def test_pages_must_be_lists():
    form = formats(PODS)[1]
    for body in (b"", b"{}", b'{"items":[]}', b"k8s\x00", b"k8s\x00\xff", recorded()["missing"]["protobuf"]):
        with pytest.raises(Unreadable):
            form.page(body)
    assert form.page(encoded(b'{"kind":"PodList","apiVersion":"v1","metadata":{}}')) == Page([], "", "")


@settings(max_examples=examples(500), deadline=None)
@given(st.sampled_from(sorted(recorded())), st.data())
def test_any_bytes(name, data):
    """Damaged answers are errors that were promised, or objects."""
    body = bytearray(recorded()[name]["protobuf"])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    kind = next((kind for kind in BUILT_IN if kind.plural == name), PODS)
    form = formats(kind)[1]
    str(error_from_status(bytes(body), 500))
    items = []
    with suppress(Unreadable):
        items += form.page(bytes(body)).items
    with suppress(Unreadable):
        items += [form.event(frame)[1] for frame in form.splitter().feed(bytes(body))]
    for item in items:
        form.meta(item)
        with suppress(DecodeError):
            form.decode(item, None)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_are_the_same_however_they_arrive(frames, data):
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    splitter, found = FrameSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert found == frames


def test_a_frame_longer_than_any_object_is_none():
    with pytest.raises(Unreadable, match="an event of 1752462448 bytes"):
        FrameSplitter().feed(b"http://")
    assert FrameSplitter().feed(LONGEST_FRAME.to_bytes(4, "big") + b"...") == []


@pytest.mark.parametrize(
    "content_type, expected",
    [
        ("application/vnd.kubernetes.protobuf", True),
        ("application/vnd.kubernetes.protobuf;stream=watch", True),
        ("application/json", False),
        ("", False),
    ],
)
def test_the_content_type_decides(content_type, expected):
    assert is_protobuf({"content-type": content_type}) is expected


@pytest.mark.parametrize(
    "api, kind, expected",
    [
        ("api/v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("apis/apps/v1", "ReplicaSet", "io.k8s.api.apps.v1.ReplicaSet"),
        ("apis/storage.k8s.io/v1", "CSINode", "io.k8s.api.storage.v1.CSINode"),
        ("apis/storage.example.com/v1", "CSINode", ""),
        ("apis/apps/v9", "ReplicaSet", ""),
        ("api/v1", "Unicorn", ""),
    ],
)
def test_which_kinds_there_are_in_protobuf(api, kind, expected):
    assert definition_of(api, kind) == expected
    assert not expected or expected in messages()


def orders(value):
    """The keys of every dictionary in an object, in their order."""
    if isinstance(value, msgspec.Struct):
        return [orders(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple):
        return [orders(item) for item in value]
    return list(value) if isinstance(value, dict) else []


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: kind.plural)
def test_maps_keep_their_order(kind):
    """Whatever goes through labels or resources one by one does so in the same order after every start."""
    from_json, from_protobuf = both(kind)
    assert list(map(orders, from_protobuf)) == list(map(orders, from_json))


class Nowhere(Wire, frozen=True):
    unicorns: int = 0


class Unread(Wire, frozen=True):
    max_unavailable: int = 0


@pytest.mark.parametrize(
    "kind, definition, problem",
    [
        (Nowhere, "io.k8s.api.core.v1.PodSpec", LookupError),
        (Unread, "io.k8s.api.policy.v1.PodDisruptionBudgetSpec", TypeError),
    ],
)
def test_a_type_that_does_not_fit_is_found_by_its_first_message(kind, definition, problem):
    with pytest.raises(problem):
        ProtobufDecoder(kind, definition)(b"")


def test_the_claims_of_a_pod():
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["a/b", "c/d"]}}
    mapping = {"containerName": "c", "resourceName": "x/gpu", "requestName": "container-0-request-0"}
    body["status"] = {
        "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-1"}, {"name": "b"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-x", "requestMappings": [mapping]},
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "p-a-1", "containers": ["c"], "resources": {"cpu": "2"}}
        ],
    }
    body["spec"] = {"containers": [{"name": "c", "resources": {"claims": [{"name": "a"}]}}]}
    listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [body]}
    from_json, from_protobuf = formats(PODS)
    [item] = from_protobuf.page(encoded(orjson.dumps(listed))).items
    found = from_protobuf.decode(item, None)
    assert found == msgspec.structs.replace(from_json.decode(orjson.dumps(body), None), spec=found.spec)
    assert found.metadata.finalizers == ("a/b", "c/d")
    assert [each.resource_claim_name for each in found.status.resource_claim_statuses] == ["p-a-1", None]
    assert found.status.extended_resource_claim_status.request_mappings[0].request_name == "container-0-request-0"
    (taken,) = found.status.node_allocatable_resource_claim_statuses
    assert (taken.resource_claim_name, taken.containers, str(taken.resources["cpu"])) == ("p-a-1", ("c",), "2")
    assert [each.name for each in found.spec.containers[0].resources.claims] == ["a"]
