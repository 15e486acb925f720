"""Slices of devices and rules that taint them: what the API server makes of them, and what it refuses."""

import pytest

from tests.fakecluster.apiclient import NOW, Api
from tests.fakecluster.deviceobjects import DRIVER, SLICES, TAINT_RULES, device, resource_slice
from tests.fakecluster.test_deviceapi_claims import LABEL_TEXT, TABLE, refusals

REACH = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


@pytest.fixture
def api():
    return Api()


def named(count, **more):
    return [device(f"d{n}", **more) for n in range(count)]


def counters(count, name="set"):
    return {"name": name, "counters": {f"c{n}": {"value": "1"} for n in range(count)}}


def consumes(count, name="set"):
    return {"counterSet": name, "counters": counters(count)["counters"]}


def test_a_slice_is_completed(api):
    taint = {"key": "example.com/sick", "effect": "NoSchedule"}
    policy = {"default": "1024Mi", "validRange": {"min": "1024Mi", "max": "2Gi", "step": "1Gi"}}
    shared = device(
        taints=[taint],
        allowMultipleAllocations=True,
        attributes={"model": {"string": "H100"}, "example.com/nvlink": {"bool": False}, "numa": {"int": 0}},
        capacity={"memory": {"value": "2048Mi", "requestPolicy": policy}},
    )
    status, made = api.post(SLICES, resource_slice(shared))
    assert (status, made["metadata"]["generation"]) == (201, 1)
    (stored,) = made["spec"]["devices"]
    assert stored["taints"] == [{**taint, "timeAdded": NOW}]
    assert stored["attributes"] == shared["attributes"]
    assert stored["capacity"]["memory"] == {
        "value": "2Gi",
        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"}},
    }
    made["spec"]["pool"]["generation"] = 2
    assert api.put(f"{SLICES}/s", made)[1]["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    "spec",
    [
        resource_slice(*named(128)),
        resource_slice(*named(64, taints=[{"key": "a", "effect": "None"}] * 16)),
        resource_slice(sharedCounters=[counters(32, f"s{n}") for n in range(8)]),
        resource_slice(device(nodeName="n"), device("e", nodeSelector=ZONE), perDeviceNodeSelection=True),
        resource_slice(device(bindingConditions=["a/b"], bindingFailureConditions=["c"]), nodeSelector=ZONE),
        resource_slice(device(attributes={"v": {"version": "1.2.3-rc.1+build.5"}, "l": {"strings": ["a"]}})),
        resource_slice(driver="Upper.Example.com"),
    ],
)
def test_slices_that_are_accepted(api, spec):
    assert api.post(SLICES, spec)[0] == 201


def shared(value="8Gi", **policy):
    return device(allowMultipleAllocations=True, capacity={"m": {"value": value, "requestPolicy": policy}})


REFUSED = [
    (resource_slice(driver=""), [("driver", "Required value")]),
    (resource_slice(driver="d" * 64), [("driver", "Too long: may not be more than 63 bytes")]),
    (resource_slice(pool={"name": "", "generation": -1}), [
        ("pool.name", "Required value"),
        ("pool.resourceSliceCount", "Invalid value: 0: must be greater than zero"),
        ("pool.generation", "Invalid value: -1: must be greater than or equal to zero"),
    ]),
    (resource_slice(allNodes=False), [
        ("allNodes", "Invalid value: false: must be either unset or set to true"), ("", f"Required value: {REACH}"),
    ]),
    (resource_slice(nodeName="n", nodeSelector=ZONE, allNodes=True), [
        ("", f'Invalid value: "{{`nodeName`, `nodeSelector`, `allNodes`}}": {REACH}, but multiple fields are set'),
    ]),
    (resource_slice(nodeSelector={"nodeSelectorTerms": ZONE["nodeSelectorTerms"] * 2}), [
        ("nodeSelector.nodeSelectorTerms", None),
    ]),
    (resource_slice(nodeSelector={"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]}), [
        ("nodeSelector.nodeSelectorTerms[0].matchFields[0].values",
         "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
    ]),
    (resource_slice(*named(129)), [("devices", "Too many: 129: must have at most 128 items")]),
    (resource_slice(*named(65, consumesCounters=[consumes(1)])), [
        ("devices", "Too many: 65: must have at most 64 items"),
    ]),
    (resource_slice(*named(64), device("last", attributes={"a": {"ints": [1]}})), [
        ("devices", "Too many: 65: must have at most 64 items"),
    ]),
    (resource_slice(device("D"), device("d"), device("d")), [
        ("devices[0].name", f'Invalid value: "D": {LABEL_TEXT}'), ("devices[2]", 'Duplicate value: "d"'),
    ]),
    (resource_slice(device(), sharedCounters=[counters(1)]), [
        ("", 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed'),
    ]),
    (resource_slice(sharedCounters=[counters(1, f"s{n}") for n in range(9)]), [
        ("sharedCounters", "Too many: 9: must have at most 8 items"),
    ]),
    (resource_slice(sharedCounters=[counters(33)]), [
        ("sharedCounters[0].counters", "Too many: 33: must have at most 32 items"),
    ]),
    (resource_slice(sharedCounters=[{"name": ""}]), [
        ("sharedCounters[0].name", "Required value"), ("sharedCounters[0].counters", "Required value"),
    ]),
    (resource_slice(device(consumesCounters=[consumes(1, f"s{n}") for n in range(3)])), [
        ("devices[0].consumesCounters", "Too many: 3: must have at most 2 items"),
    ]),
    (resource_slice(device(attributes={f"a{n}": {"int": n} for n in range(33)})), [
        ("devices[0]", "Invalid value: 33: the total number of attributes and capacities must not exceed 32"),
    ]),
    (resource_slice(device(attributes={"a": {"ints": list(range(49))}})), [
        ("devices[0]", "Invalid value: 49: the total number of attribute values must not exceed 48"),
    ]),
    (resource_slice(device(attributes={"a": {}, "b": {"int": 1, "bool": True}})), [
        ("devices[0].attributes[a]", 'Invalid value: "": exactly one value must be specified'),
        ("devices[0].attributes[b]", None),
    ]),
    (resource_slice(device(attributes={"a": {"string": "x" * 65}, "b": {"version": "1.0"}})), [
        ("devices[0].attributes[a].string", "Too long: may not be more than 64 bytes"),
        ("devices[0].attributes[b].version",
         'Invalid value: "1.0": must be a string compatible with semver.org spec 2.0.0'),
    ]),
    (resource_slice(device(attributes={"a/b/c": {"int": 1}, "/b": {"int": 1}, "x.io/": {"int": 1}})), [
        ("devices[0].attributes", 'Invalid value: "a/b/c": must not contain more than one slash'),
        ("devices[0].attributes", 'Invalid value: "": the domain must not be empty'),
        ("devices[0].attributes", 'Invalid value: "": the name must not be empty'),
    ]),
    (resource_slice(device(attributes={"a" * 33: {"int": 1}})), [
        ("devices[0].attributes", "Too long: may not be more than 32 bytes"),
    ]),
    (resource_slice(device(capacity={"m": {"value": "8Gi", "requestPolicy": {"default": "1"}}})), [
        ("devices[0].capacity[m].requestPolicy", "Forbidden: allowMultipleAllocations must be true"),
    ]),
    (resource_slice(device(capacity={"m": {"value": "much"}})), [("devices[0].capacity[m].value", None)]),
    (resource_slice(shared(validValues=["1Gi"], validRange={"min": "1Gi"})), [
        ("devices[0].capacity[m].requestPolicy",
         'Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same '
         "time"),
    ]),
    (resource_slice(shared(validValues=["1Gi"])), [
        ("devices[0].capacity[m].requestPolicy.default", "Required value: required when validValues is defined"),
    ]),
    (resource_slice(shared(default="3Gi", validValues=["2Gi", "1Gi", "9Gi"])), [
        ("devices[0].capacity[m].requestPolicy.validValues[1]",
         'Invalid value: "1Gi": values must be sorted in ascending order'),
        ("devices[0].capacity[m].requestPolicy.validValues[2]",
         'Invalid value: "9Gi": option is larger than capacity value: 8Gi'),
        ("devices[0].capacity[m].requestPolicy.validValues",
         'Invalid value: "3Gi": default value is not valid according to the requestPolicy'),
    ]),
    (resource_slice(shared(default="1Gi", validValues=[f"{n}Gi" for n in range(1, 12)], value="16Gi")), [
        ("devices[0].capacity[m].requestPolicy.validValues", "Too many: 11: must have at most 10 items"),
    ]),
    (resource_slice(shared(default="5Gi", validRange={"min": "2Gi", "max": "9Gi", "step": "2Gi"})), [
        ("devices[0].capacity[m].requestPolicy.validRange.max",
         'Invalid value: "9Gi": max is larger than capacity value: 8Gi'),
        ("devices[0].capacity[m].requestPolicy.validRange.step",
         'Invalid value: "5Gi": value is not a multiple of a given step (2Gi) from (2Gi)'),
        ("devices[0].capacity[m].requestPolicy.validRange.step",
         'Invalid value: "9Gi": value is not a multiple of a given step (2Gi) from (2Gi)'),
    ]),
    (resource_slice(shared(default="1Gi", validRange={"min": "2Gi", "step": "7Gi"})), [
        ("devices[0].capacity[m].requestPolicy.validRange.default",
         'Invalid value: "1Gi": default is less than min: 2Gi'),
        ("devices[0].capacity[m].requestPolicy.validRange.step",
         'Invalid value: "7Gi": one step 9Gi is larger than capacity value: 8Gi'),
        ("devices[0].capacity[m].requestPolicy.validRange.step",
         'Invalid value: "1Gi": value is not a multiple of a given step (7Gi) from (2Gi)'),
    ]),
    (resource_slice(device(taints=[{"key": "", "effect": "NoRun"}])), [
        ("devices[0].taints[0].key", None),
        ("devices[0].taints[0].effect",
         'Unsupported value: "NoRun": supported values: "NoExecute", "NoSchedule", "None"'),
    ]),
    (resource_slice(device(taints=[{"key": "a", "effect": "None"}] * 17)), [
        ("devices[0].taints", "Too many: 17: must have at most 16 items"),
    ]),
    (resource_slice(device(bindingConditions=["a"] * 2, bindingFailureConditions=["a"])), [
        ("devices[0].bindingConditions[1]", 'Duplicate value: "a"'),
        ("devices[0].bindingFailureConditions[0]",
         'Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions'),
    ]),
    (resource_slice(device(bindingConditions=list("abcde"), bindingFailureConditions=["f"])), [
        ("devices[0].bindingConditions", "Too many: 5: must have at most 4 items"),
    ]),
    (resource_slice(device(nodeName="n")), [
        ("devices[0]", "Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
                       "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"),
    ]),
    (resource_slice(device(), perDeviceNodeSelection=True), [
        ("devices[0]", "Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
                       "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("made", "expected"), REFUSED)
def test_slices_that_are_refused(api, made, expected):
    found = refusals(api.post(SLICES, made))
    assert [field for field, _ in found] == [f"spec.{field}".rstrip(".") for field, _ in expected]
    for (_, text), (_, wanted) in zip(found, expected, strict=True):
        assert wanted in (None, text)


def test_what_a_slice_is_of_does_not_change(api):
    stored = api.post(SLICES, resource_slice(device(), nodeName="n"))[1]
    changed = resource_slice(device(), nodeName="m", driver="other.example.com", pool={**stored["spec"]["pool"]})
    changed["spec"]["pool"]["name"] = "elsewhere"
    assert refusals(api.put(f"{SLICES}/s", changed)) == [
        ("spec.pool.name", 'Invalid value: "elsewhere": field is immutable'),
        ("spec.driver", 'Invalid value: "other.example.com": field is immutable'),
        ("spec.nodeName", 'Invalid value: "m": field is immutable'),
    ]


def test_slices_are_found_by_node_and_driver(api):
    api.post(SLICES, resource_slice(device(), name="a", nodeName="n"))
    api.post(SLICES, resource_slice(device(), name="b", driver="nic.example.com"))

    def names(selector):
        return [each["metadata"]["name"] for each in api.get(f"{SLICES}?fieldSelector={selector}")[1]["items"]]

    assert names("spec.nodeName=n") == ["a"]
    assert names("spec.nodeName=") == ["b"]
    assert names(f"spec.driver={DRIVER}") == ["a"]
    assert names("spec.nodeName=n,spec.driver=nic.example.com") == []


def test_what_kubectl_prints_of_slices(api):
    api.post(SLICES, resource_slice(device(), name="a", nodeName="n"))
    api.post(SLICES, resource_slice(device(), name="b"))
    table = api.get(SLICES, headers=TABLE)[1]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert [row["cells"] for row in table["rows"]] == [
        ["a", "n", DRIVER, "node-0", "0s"],
        ["b", "<unset>", DRIVER, "node-0", "0s"],
    ]


def taint_rule(taint=None, **selector):
    taint = taint or {"key": "example.com/sick", "effect": "NoExecute"}
    return {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}


def test_a_rule_that_taints_devices(api):
    status, made = api.post(TAINT_RULES, taint_rule(driver=DRIVER, pool="a/b", device="gpu-0"))
    assert (status, made["metadata"]["generation"], made["spec"]["taint"]["timeAdded"]) == (201, 1, NOW)
    condition = {"type": "EvictionInProgress", "status": "False", "reason": "R", "message": "m"}
    wrong = {"status": {"conditions": [condition]}}
    assert refusals(api.merge(f"{TAINT_RULES}/r/status", wrong)) == [
        ("status.conditions[0].lastTransitionTime", "Required value: must be set")
    ]
    condition["lastTransitionTime"] = NOW
    status, stored = api.merge(f"{TAINT_RULES}/r/status", {"status": {"conditions": [condition]}})
    assert (status, stored["status"], stored["metadata"]["generation"]) == (200, {"conditions": [condition]}, 1)


def test_rules_that_are_refused(api):
    made = taint_rule({"key": "k"}, driver="-", pool="", device="D")
    assert [field for field, _ in refusals(api.post(TAINT_RULES, made))] == [
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.device",
        "spec.taint.effect",
    ]
