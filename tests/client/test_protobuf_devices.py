"""Claims, slices and classes of devices say the same in protobuf as in JSON, by published field numbers alone."""

import msgspec
import orjson
import pytest

from koordsched.api import resource
from koordsched.api.decoding import Decoder
from koordsched.api.protobuf.decoding import ProtobufDecoder
from koordsched.api.protobuf.layout import layouts_of
from koordsched.client.protobufformat import ProtobufFormat
from koordsched.fakecluster.protobuf import to_json
from koordsched.fakecluster.protobufanswers import encoded
from tests.client.test_protobuf import STAMP, fields_set

TERM = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
}
SELECTOR = {"nodeSelectorTerms": [TERM]}
OPAQUE = {"driver": "gpu.example.com", "parameters": {"kind": "C", "n": [1, {"x": None}], "text": "\u00e4"}}
CEL = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
DEVICE_TOLERATION = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}
ASKED = {
    "deviceClassName": "gpu",
    "selectors": [CEL],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [DEVICE_TOLERATION],
    "capacity": {"requests": {"memory": "10Gi"}},
}
CONDITIONS = {"bindingConditions": ["example.com/a", "b"], "bindingFailureConditions": ["c"]}
RESULT = {
    "request": "r/s",
    "driver": "gpu.example.com",
    "pool": "n",
    "device": "gpu-0",
    "adminAccess": True,
    "tolerations": [DEVICE_TOLERATION],
    **CONDITIONS,
    "shareID": "22222222-2222-4222-8222-222222222222",
    "consumedCapacity": {"memory": "10Gi"},
}
REACHED = {"nodeName": "n", "nodeSelector": SELECTOR, "allNodes": True}
REQUEST_POLICY = {
    "default": "1Gi",
    "validValues": ["1Gi", "2Gi"],
    "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"},
}
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "a": {"int": 7},
        "b": {"bool": True},
        "c": {"string": "s"},
        "d": {"version": "1.2.3"},
        "e": {"ints": [1, 2]},
        "f": {"bools": [True, False]},
        "g": {"strings": ["x", "y"]},
        "h": {"versions": ["1.0.0"]},
        "none": {"int": 0},
        "no": {"bool": False},
        "empty": {"string": ""},
    },
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": REQUEST_POLICY}, "cores": {"value": "0"}},
    "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "40Gi"}}}],
    **REACHED,
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": STAMP}],
    "bindsToNode": True,
    **CONDITIONS,
    "allowMultipleAllocations": True,
    "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores", "allocationMultiplier": "2"}},
}
EVERY_FIELD = {
    resource.DeviceClass: {
        "spec": {"selectors": [CEL], "config": [{"opaque": OPAQUE}], "extendedResourceName": "example.com/gpu"},
    },
    resource.ResourceSlice: {
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "n", "generation": 3, "resourceSliceCount": 2},
            **REACHED,
            "perDeviceNodeSelection": True,
            "devices": [DEVICE, {"name": "plain", "allNodes": False, "bindsToNode": False}],
            "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}],
        },
    },
    resource.ResourceClaim: {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {**ASKED, "adminAccess": True},
                        "firstAvailable": [{"name": "s", **ASKED}],
                    },
                    {"name": "q", "exactly": {"deviceClassName": "gpu", "adminAccess": False}},
                ],
                "constraints": [{"requests": ["r"], "matchAttribute": "x.io/a", "distinctAttribute": "x.io/b"}],
                "config": [{"requests": ["r"], "opaque": OPAQUE}],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [RESULT],
                    "config": [{"source": "FromClass", "requests": ["r"], "opaque": OPAQUE}],
                },
                "nodeSelector": SELECTOR,
                "allocationTimestamp": STAMP,
            },
            "reservedFor": [{"apiGroup": "example.com", "resource": "pods", "name": "p", "uid": "u"}],
            "devices": [
                {
                    "driver": "gpu.example.com",
                    "pool": "n",
                    "device": "gpu-0",
                    "shareID": "22222222-2222-4222-8222-222222222222",
                    "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}],
                }
            ],
        },
    },
}
"""Every field that is read, set to what it is not by default, whether an API server takes that together or not."""


@pytest.mark.parametrize("kind", EVERY_FIELD, ids=lambda kind: kind.__name__)
def test_claims_slices_and_classes_are_the_same_in_both(kind):
    name, version = kind.__name__, "resource.k8s.io/v1"
    body = {"apiVersion": version, "kind": name, "metadata": {"name": "x"}, **EVERY_FIELD[kind]}
    listed = {"apiVersion": version, "kind": f"{name}List", "metadata": {}, "items": [body]}
    definition = f"io.k8s.api.resource.v1.{name}"
    form = ProtobufFormat(ProtobufDecoder(kind, definition))
    [item] = form.page(encoded(orjson.dumps(listed))).items
    found = form.decode(item, None)
    assert found == Decoder(kind)(orjson.dumps(body))
    # What both leave out would be equal, too.
    read, set_ = set(), set()
    for layout in layouts_of(kind, definition):
        if layout.struct.__module__ == resource.__name__:
            read |= {(layout.struct.__name__, info.name) for info in msgspec.structs.fields(layout.struct)}
    fields_set(found, set_)
    assert read - set_ == set()


@pytest.mark.parametrize("kind", EVERY_FIELD, ids=lambda kind: kind.__name__)
def test_what_go_clients_send_arrives(kind):
    """Drivers and schedulers in Go write in protobuf."""
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kind.__name__, "metadata": {"name": "x"}, **EVERY_FIELD[kind]}
    assert orjson.loads(to_json(encoded(orjson.dumps(body)))) == body
