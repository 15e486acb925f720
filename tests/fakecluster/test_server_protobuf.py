"""Request bodies in protobuf, as Go clients send them."""

import pytest

from koordsched.fakecluster.protobuf import BadProtobuf, to_json
from koordsched.fakecluster.typed import decode
from tests.fakecluster.apiclient import PODS, Api

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
    import json

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
