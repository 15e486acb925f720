"""Request bodies in protobuf, as Go clients send them, and answers for those who take nothing else."""

import json

import pytest

from koordsched.api import core
from koordsched.api.decoding import DecodeError
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.envelope import event_of, list_of
from koordsched.client.errors import error_from_status
from koordsched.client.protobufformat import FrameSplitter, ProtobufFormat
from koordsched.fakecluster.messages import Request
from koordsched.fakecluster.protobuf import BadProtobuf, to_json
from koordsched.fakecluster.typed import decode
from tests.fakecluster.apiclient import CONFIG_MAPS, PODS, Api, config_map, pod
from tests.fakecluster.test_server_customresources import CRDS, WIDGETS, definition

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number):
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """A field: an integer as varint, text and messages with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*fields):
    return b"".join(field(number, value) for number, value in fields)


def envelope(api_version, kind, raw):
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw))


def entry(key, value):
    return message((1, key), (2, value))


META = message(
    (1, "p"), (2, ""), (3, "default"), (8, b""), (11, entry("app", "web")), (11, entry("empty", "")), (14, "ex.com/f")
)
PROBE = message((1, message((2, message((1, "/ok"), (2, message((1, 0), (2, 8080), (3, ""))), (3, ""))))), (2, 5))
CONTAINER = message(
    (1, "c"),
    (2, "app:1"),
    (6, message((1, ""), (2, 0), (3, 80))),
    (8, message((2, entry("cpu", message((1, "100m")))))),
    (10, PROBE),
)
VOLUME = message((1, "v"), (2, message((2, message((1, ""))))))
TOLERATION = message((1, "k"), (2, "Exists"), (4, "NoExecute"), (5, 0))
SPEC = message((1, VOLUME), (2, CONTAINER), (3, "Always"), (5, -1), (10, ""), (22, TOLERATION))
POD = envelope("v1", "Pod", message((1, META), (2, SPEC), (3, b"")))


def test_a_pod():
    obj, unknown = decode(to_json(POD), "io.k8s.api.core.v1.Pod")
    assert unknown == []
    assert obj["metadata"] == {
        "name": "p", "namespace": "default", "labels": {"app": "web", "empty": ""}, "finalizers": ["ex.com/f"],
    }  # fmt: skip
    spec = obj["spec"]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Always", -1)
    assert spec["tolerations"] == [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]
    (container,) = spec["containers"]
    assert container["resources"] == {"requests": {"cpu": "100m"}}
    assert container["ports"] == [{"hostPort": 0, "containerPort": 80}]
    assert container["livenessProbe"] == {"httpGet": {"path": "/ok", "port": 8080}, "initialDelaySeconds": 5}


TIMES = message((1, 1893456000), (2, 0))
LEASE = message((1, "me"), (2, 15), (3, message((1, 1893456000), (2, 120_000_000))))
KINDS = [
    (
        envelope("coordination.k8s.io/v1", "Lease", message((2, LEASE))),
        {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "2030-01-01T00:00:00.120000Z"}},
    ),
    (envelope("v1", "Secret", message((2, entry("k", b"\x00\xff")))), {"data": {"k": "AP8="}}),
    (
        envelope("v1", "Binding", message((1, message((1, "p"), (5, "u"))), (2, message((1, "Node"), (3, "n"))))),
        {"metadata": {"name": "p", "uid": "u"}, "target": {"kind": "Node", "name": "n"}},
    ),
    (
        envelope("v1", "DeleteOptions", message((1, 0), (4, "Background"))),
        {"gracePeriodSeconds": 0, "propagationPolicy": "Background"},
    ),
    (
        envelope("v1", "Namespace", message((1, message((8, TIMES))))),
        {"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize("body, expected", KINDS)
def test_other_kinds(body, expected):
    obj = json.loads(to_json(body))
    assert {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")} == expected


def test_over_the_api():
    api = Api()
    body = POD.replace(b"ex.com/f", b"ex.com/g")
    valid = envelope("v1", "Pod", message((1, META), (2, message((2, CONTAINER)))))
    assert api.post(PODS, body, content_type=PROTOBUF)[0] == 422
    status, made = api.post(PODS, valid, content_type=PROTOBUF)
    assert (status, made["spec"]["containers"][0]["image"]) == (201, "app:1")
    binding = envelope("v1", "Binding", message((1, message((1, "p"))), (2, message((3, "n1")))))
    assert api.post(f"{PODS}/p/binding", binding, content_type=PROTOBUF)[0] == 201
    status, refused = api.post(PODS, b"k8s\x00\xff", content_type=PROTOBUF)
    assert (status, refused["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        POD[:-3],
        envelope("v1", "Nothing", b""),
        envelope("v1", "Pod", b"\xff\xff\xff"),
        b"k8s\x00" + b"\x0b",
    ],
)
def test_broken_bodies(body):
    with pytest.raises(BadProtobuf):
        to_json(body)


# --- answers ---


ONLY = {"accept": PROTOBUF}


async def answered(api, path, headers=ONLY):
    """(status, content type, body) as whoever carries requests gets it."""
    path, _, query = path.partition("?")
    pairs = dict(p.split("=", 1) for p in query.split("&") if p)
    response = await api.server.handle(Request("GET", path, pairs, headers))
    return response.status, response.headers["content-type"], response.body


async def test_an_object_and_a_list():
    api = Api()
    api.post(PODS, pod("p"))
    status, type_, body = await answered(api, f"{PODS}/p")
    assert (status, type_) == (200, PROTOBUF)
    assert json.loads(to_json(body)) == api.get(f"{PODS}/p")[1]
    status, type_, body = await answered(api, PODS)
    items, version, token = list_of(body)
    assert (status, type_, version, token) == (200, PROTOBUF, str(api.registry.store.rv), "")
    assert [json.loads(to_json(envelope("v1", "Pod", item))) for item in items] == [api.get(f"{PODS}/p")[1]]


async def test_a_long_list_is_as_one():
    api = Api()
    for i in range(501):
        api.post(CONFIG_MAPS, config_map(f"c{i}", x=str(i)))
    _, type_, body = await answered(api, CONFIG_MAPS)
    assert (type_, len(list_of(body).items)) == (PROTOBUF, 501)


async def test_a_watch():
    api = Api()
    _, type_, body = await answered(api, f"{PODS}?watch=1")
    assert type_ == f"{PROTOBUF};stream=watch"
    api.post(PODS, pod("p"))
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    frames = FrameSplitter()
    events = []
    while len(events) < 2:
        events += map(event_of, frames.feed(await anext(body)))
    assert [kind for kind, _ in events] == ["ADDED", "DELETED"]
    assert [json.loads(to_json(obj))["metadata"]["name"] for _, obj in events] == ["p", "p"]
    assert len(api.server.hub._watchers) == 1
    await body.aclose()
    assert len(api.server.hub._watchers) == 0


@pytest.mark.parametrize(
    "path, status, reason",
    [
        (f"{PODS}/none", 404, "NotFound"),
        (f"{PODS}?continue=x", 400, "BadRequest"),
        ("/apis/example.com/v1/things", 404, "NotFound"),
    ],
)
async def test_refusals(path, status, reason):
    answer = await answered(Api(), path)
    assert answer[:2] == (status, PROTOBUF)
    refusal = error_from_status(answer[2])
    assert (refusal.status, refusal.reason) == (status, reason)


async def test_kinds_that_have_none():
    api = Api()
    assert api.post(CRDS, definition())[0] == 201
    status, type_, body = await answered(api, WIDGETS)
    assert (status, type_, json.loads(body)["reason"]) == (406, "application/json", "NotAcceptable")


@pytest.mark.parametrize("accept", ["application/json", f"{PROTOBUF},application/json", f"{PROTOBUF}, */*", "*/*", ""])
async def test_whoever_takes_json_gets_it(accept):
    status, type_, body = await answered(Api(), PODS, {"accept": accept})
    assert (status, type_, json.loads(body)["kind"]) == (200, "application/json", "PodList")


async def test_what_is_no_object_stays_as_it_is():
    assert (await answered(Api(), "/version"))[:2] == (200, "application/json")
    assert (await answered(Api(), "/healthz"))[0] == 200


@pytest.mark.parametrize(
    "broken", [{"spec": {"containers": "none"}}, {"spec": {"priority": {}}}, {"status": {"startTime": "noon"}}]
)
async def test_what_was_put_in_past_admission_is_as_unreadable_as_in_json(broken):
    api = Api()
    api.post(PODS, pod("good"))
    meta = {"name": "bad", "namespace": "default", "uid": "u"}
    api.registry.restore(
        api.registry.resource("", "v1", "pods"), {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **broken}
    )
    _, _, body = await answered(api, PODS)
    readable = ProtobufFormat(ProtobufDecoder(core.Pod, "io.k8s.api.core.v1.Pod"))
    bad, good = readable.page(body).items
    assert readable.meta(bad).name == "bad"
    with pytest.raises(DecodeError):
        readable.decode(bad, None)
    assert readable.decode(good, None).metadata.name == "good"
