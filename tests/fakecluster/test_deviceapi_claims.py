"""Claims, templates of claims and classes of devices: what the API server makes of them, and what it refuses."""

import pytest

from tests.fakecluster.apiclient import NOW, PODS, Api, pod
from tests.fakecluster.deviceobjects import (
    CLAIMS,
    CLASSES,
    DRIVER,
    SHARE,
    TEMPLATES,
    UID,
    allocation,
    claim,
    claim_spec,
    claim_template,
    consumer,
    device_class,
    request,
    result,
)

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
ADMIN_LABEL = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
REFERENCE_TEXT = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


@pytest.fixture
def api():
    return Api()


def refusals(answer):
    """(field, text) of what is wrong, in order."""
    status, body = answer
    assert (status, body["reason"]) == (422, "Invalid"), body
    return [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]


def test_a_claim_gets_its_defaults(api):
    first = {"name": "big", "deviceClassName": "gpu", "allocationMode": "All"}
    second = {"name": "small", "deviceClassName": "gpu"}
    asked = request(capacity={"requests": {"memory": "1024Mi"}}, tolerations=[{"key": "k"}])
    status, made = api.post(CLAIMS, claim("c", asked, {"name": "q", "firstAvailable": [first, second]}))
    assert status == 201
    one, other = made["spec"]["devices"]["requests"]
    assert one["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"memory": "1Gi"}},
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }
    assert other["firstAvailable"] == [first, {**second, "allocationMode": "ExactCount", "count": 1}]
    assert "generation" not in made["metadata"]
    assert made["status"] == {}


def test_a_claim_may_ask_for_nothing(api):
    assert api.post(CLAIMS, {"metadata": {"name": "c"}, "spec": {}})[0] == 201


def selector(text):
    return {"cel": {"expression": text}}


@pytest.mark.parametrize(
    ("requests", "devices", "expected"),
    [
        ([request(n) for n in ("a", "a")], {}, [("requests[1]", 'Duplicate value: "a"')]),
        ([request(f"r{n}") for n in range(33)], {}, [("requests", "Too many: 33: must have at most 32 items")]),
        ([request("A")], {}, [("requests[0].name", f'Invalid value: "A": {LABEL_TEXT}')]),
        ([{"name": "r"}], {}, [
            ("requests[0]", "Required value: exactly one of `exactly` or `firstAvailable` is required"),
        ]),
        ([{**request(), "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}], {}, [
            ("requests[0]", "Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, "
                            "but multiple fields are set"),
        ]),
        ([{"name": "r", "exactly": {}}], {}, [("requests[0].exactly.deviceClassName", "Required value")]),
        ([request(count=-1)], {}, [("requests[0].exactly.count", "Invalid value: -1: must be greater than zero")]),
        ([request(allocationMode="All", count=2)], {}, [
            ("requests[0].exactly.count", "Invalid value: 2: must not be specified when allocationMode is 'All'"),
        ]),
        ([request(allocationMode="Some")], {}, [
            ("requests[0].exactly.allocationMode",
             'Unsupported value: "Some": supported values: "All", "ExactCount"'),
        ]),
        ([request(selectors=[{}])], {}, [("requests[0].exactly.selectors[0].cel", "Required value")]),
        ([request(selectors=[selector("true")] * 33)], {}, [
            ("requests[0].exactly.selectors", "Too many: 33: must have at most 32 items"),
        ]),
        ([request(selectors=[selector("x" * 10241)])], {}, [
            ("requests[0].exactly.selectors[0].cel.expression", "Too long: may not be more than 10240 bytes"),
        ]),
        ([request(tolerations=[{"operator": "Exists", "value": "v", "effect": "Evict"}])], {}, [
            ("requests[0].exactly.tolerations[0].value", 'Invalid value: "v": must be empty for operator `Exists`'),
            ("requests[0].exactly.tolerations[0].effect",
             'Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None"'),
        ]),
        ([request(tolerations=[{"key": "k"}] * 17)], {}, [
            ("requests[0].exactly.tolerations", "Too many: 17: must have at most 16 items"),
        ]),
        ([{"name": "r", "firstAvailable": [{"name": f"s{n}", "deviceClassName": "gpu"} for n in range(9)]}], {}, [
            ("requests[0].firstAvailable", "Too many: 9: must have at most 8 items"),
        ]),
        ([request()], {"constraints": [{"requests": ["r", "x"], "matchAttribute": "numa"}]}, [
            ("constraints[0].requests[1]", f'Invalid value: "x": {REFERENCE_TEXT}'),
            ("constraints[0].matchAttribute",
             'Invalid value: "numa": a fully qualified name must be a domain and a name separated by a slash'),
        ]),
        ([request()], {"constraints": [{"requests": ["r/s"], "distinctAttribute": "x.io/a"}]}, [
            ("constraints[0].requests[0]", f'Invalid value: "r/s": {REFERENCE_TEXT}'),
        ]),
        ([request()], {"constraints": [{}]}, [
            ("constraints[0]", 'Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, '
                               "but multiple fields are set"),
        ]),
        ([request()], {"config": [{"requests": ["r"]}]}, [("config[0].opaque", "Required value")]),
        ([request()], {"config": [{"opaque": {"driver": DRIVER, "parameters": {"a": "x" * 10240}}}]}, [
            ("config[0].opaque.parameters", "Too long: may not be more than 10240 bytes"),
        ]),
        ([request()], {"config": [{"opaque": {"driver": DRIVER, "parameters": [1]}}]}, [
            ("config[0].opaque.parameters", 'Invalid value: "<value omitted>": must be a valid JSON object'),
        ]),
    ],
)  # fmt: skip
def test_claims_that_are_refused(api, requests, devices, expected):
    at_claim = refusals(api.post(CLAIMS, claim("c", *requests, **devices)))
    assert at_claim == [(f"spec.devices.{field}", text) for field, text in expected]
    at_template = refusals(api.post(TEMPLATES, claim_template(spec=claim_spec(*requests, **devices))))
    assert at_template == [(f"spec.spec.devices.{field}", text) for field, text in expected]


def test_specs_never_change(api):
    for path, made in ((CLAIMS, claim()), (TEMPLATES, claim_template("c"))):
        stored = api.post(path, made)[1]
        inner = stored["spec"]["spec"] if path == TEMPLATES else stored["spec"]
        inner["devices"]["requests"][0]["exactly"]["count"] = 2
        ((field, text),) = refusals(api.put(f"{path}/c", stored))
        assert field == "spec"
        assert text.endswith(": field is immutable")
        assert api.merge(f"{path}/c", {"metadata": {"labels": {"a": "b"}}})[0] == 200


def test_admin_access_is_for_namespaces_that_allow_it(api):
    asked = request(adminAccess=True)
    text = (
        "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
        "containing namespace"
    )
    for path, made in ((CLAIMS, claim("c", asked)), (TEMPLATES, claim_template(spec=claim_spec(asked)))):
        assert refusals(api.post(path, made)) == [("spec.devices.requests[0].adminAccess", text)]
    api.post(CLAIMS, claim())
    admin = {"status": {"allocation": allocation(result(adminAccess=True))}}
    assert refusals(api.merge(f"{CLAIMS}/c/status", admin)) == [
        ("status.allocation.devices.results[0].adminAccess", text)
    ]
    api.merge("/api/v1/namespaces/default", ADMIN_LABEL)
    assert api.post(CLAIMS, claim("admin", asked))[0] == 201
    assert api.merge(f"{CLAIMS}/c/status", admin)[0] == 200


# --- the status


@pytest.fixture
def made(api):
    api.post(CLAIMS, claim())
    return api


def write(api, **status):
    return api.merge(f"{CLAIMS}/c/status", {"status": status})


def test_status_and_spec_are_written_apart(made):
    stored = made.get(f"{CLAIMS}/c")[1]
    stored["status"] = {"allocation": allocation()}
    stored["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    stored = made.put(f"{CLAIMS}/c", stored)[1]
    assert stored["status"] == {}
    assert stored["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    stored["status"] = {"allocation": allocation(), "reservedFor": [consumer()]}
    stored["spec"] = {}
    stored["metadata"] |= {"labels": {"a": "b"}, "finalizers": []}
    stored = made.put(f"{CLAIMS}/c/status", stored)[1]
    assert stored["status"] == {"allocation": allocation(), "reservedFor": [consumer()]}
    assert stored["spec"]["devices"]["requests"][0]["name"] == "r"
    assert "labels" not in stored["metadata"]
    assert stored["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


def condition(**more):
    base = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}
    return {**base, **more}


def status_of(device="gpu-0", **more):
    return {"driver": DRIVER, "pool": "node-0", "device": device, **more}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"reservedFor": [consumer()]}, [
            ("reservedFor", "Forbidden: may not be specified when `allocated` is not set"),
        ]),
        ({"allocation": allocation(), "reservedFor": [{"resource": "pods"}]}, [
            ("reservedFor[0].name", "Required value"), ("reservedFor[0].uid", "Required value"),
        ]),
        ({"allocation": allocation(), "reservedFor": [consumer("a"), consumer("b")]}, [
            ("reservedFor[1]", f'Duplicate value: "{UID}"'),
        ]),
        ({"allocation": allocation(), "reservedFor": [consumer(uid=str(n)) for n in range(257)]}, [
            ("reservedFor", "Too many: 257: must have at most 256 items"),
        ]),
        ({"allocation": allocation(*[result(f"gpu-{n}") for n in range(33)])}, [
            ("allocation.devices.results", "Too many: 33: must have at most 32 items"),
        ]),
        ({"allocation": allocation({**result(), "request": "other"})}, [
            ("allocation.devices.results[0].request", f'Invalid value: "other": {REFERENCE_TEXT}'),
        ]),
        ({"allocation": allocation(result(pool="", device=""))}, [
            ("allocation.devices.results[0].pool", "Required value"),
            ("allocation.devices.results[0].device", f'Invalid value: "": {LABEL_TEXT}'),
        ]),
        ({"allocation": allocation(result(shareID="x"))}, [
            ("allocation.devices.results[0].shareID",
             'Invalid value: "x": error validating uid: invalid UUID length: 1'),
        ]),
        ({"allocation": allocation(result(bindingConditions=["a"]))}, [
            ("allocation.devices.results[0].bindingFailureConditions",
             "Invalid value: []: bindingFailureConditions are required to use bindingConditions"),
        ]),
        ({"allocation": allocation(nodeSelector={"nodeSelectorTerms": []})}, [
            ("allocation.nodeSelector.nodeSelectorTerms", "Required value: must have at least one node selector term"),
        ]),
        ({"allocation": {"devices": {"config": [{"source": "From"}]}}}, [
            ("allocation.devices.config[0].source",
             'Unsupported value: "From": supported values: "FromClaim", "FromClass"'),
            ("allocation.devices.config[0].opaque", "Required value"),
        ]),
        ({"allocation": allocation(), "devices": [status_of("gpu-1")]}, [
            ("devices[0]", f'Invalid value: "{DRIVER}/node-0/gpu-1": must be an allocated device in the claim'),
        ]),
        ({"allocation": allocation(), "devices": [status_of(shareID=SHARE)]}, [
            ("devices[0]", f'Invalid value: "{DRIVER}/node-0/gpu-0/{SHARE}": must be an allocated device in the claim'),
        ]),
        ({"allocation": allocation(), "devices": [status_of(), status_of()]}, [
            ("devices[1]", f'Duplicate value: "{DRIVER}/node-0/gpu-0"'),
        ]),
        ({"allocation": allocation(), "devices": [status_of(conditions=[condition(), condition(status="Maybe")])]}, [
            ("devices[0].conditions[1].status",
             'Unsupported value: "Maybe": supported values: "False", "True", "Unknown"'),
            ("devices[0].conditions[1].type", 'Duplicate value: "Ready"'),
        ]),
        ({"allocation": allocation(),
          "devices": [status_of(conditions=[condition(type=f"c{n}") for n in range(9)])]}, [
            ("devices[0].conditions", "Too many: 9: must have at most 8 items"),
        ]),
    ],
)  # fmt: skip
def test_statuses_that_are_refused(made, status, expected):
    assert refusals(write(made, **status)) == [(f"status.{field}", text) for field, text in expected]


def test_256_reservations_are_accepted(made):
    assert write(made, allocation=allocation(), reservedFor=[consumer(uid=str(n)) for n in range(256)])[0] == 200


def test_an_allocation_is_made_and_removed_and_never_changed(made):
    assert write(made, allocation=allocation(), devices=[status_of(conditions=[condition()])])[0] == 200
    ((field, text),) = refusals(write(made, allocation=allocation(result("gpu-1"))))
    assert field == "status.allocation"
    assert text.endswith(": field is immutable")
    status, stored = write(made, allocation=None)
    # What a driver reported goes with the device.
    assert (status, stored["status"]) == (200, {})
    assert write(made, allocation=allocation(result("gpu-1")))[0] == 200


def test_no_pod_gets_a_claim_that_is_being_deleted(made):
    made.merge(f"{CLAIMS}/c", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
    write(made, allocation=allocation(), reservedFor=[consumer()])
    assert made.delete(f"{CLAIMS}/c")[0] == 200
    assert refusals(write(made, reservedFor=[consumer(), consumer(uid="other")])) == [
        (
            "status.reservedFor",
            "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        )
    ]
    assert write(made, reservedFor=None)[0] == 200


def test_what_kubectl_prints_of_claims(made):
    made.post(CLAIMS, claim("b"))
    made.post(CLAIMS, claim("a"))
    write(made, allocation=allocation(), reservedFor=[consumer()])
    made.merge(f"{CLAIMS}/b/status", {"status": {"allocation": allocation()}})
    table = made.get(CLAIMS, headers=TABLE)[1]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    assert [row["cells"] for row in table["rows"]] == [
        ["a", "pending", "0s"],
        ["b", "allocated", "0s"],
        ["c", "allocated,reserved", "0s"],
    ]


# --- classes


def test_a_class(api):
    status, made = api.post(CLASSES, device_class(selectors=[selector("true")], extendedResourceName="example.com/gpu"))
    assert (status, made["metadata"]["generation"]) == (201, 1)
    made["spec"]["selectors"] = []
    assert api.put(f"{CLASSES}/gpu", made)[1]["metadata"]["generation"] == 2
    table = api.get(CLASSES, headers=TABLE)[1]
    assert table["rows"][0]["cells"] == ["gpu", "0s"]


@pytest.mark.parametrize("name", ["cpu", "kubernetes.io/gpu", "requests.example.com/gpu", "example.com/"])
def test_names_that_no_extended_resource_has(api, name):
    assert refusals(api.post(CLASSES, device_class(extendedResourceName=name))) == [
        ("spec.extendedResourceName", f'Invalid value: "{name}": must be a valid extended resource name')
    ]


def test_classes_that_are_refused(api):
    made = device_class(selectors=[{"cel": {"expression": ""}}], config=[{"opaque": {"driver": "-", "parameters": {}}}])
    fields = [field for field, _ in refusals(api.post(CLASSES, made))]
    assert fields == ["spec.selectors[0].cel.expression", "spec.config[0].opaque.driver"]


# --- pods


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([{"name": "a"}], [
            ("spec.resourceClaims[0]", 'Invalid value: {"name":"a"}: must specify one of: `resourceClaimName`, '
                                       "`resourceClaimTemplateName`"),
        ]),
        ([{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimTemplateName": "y"}], [
            ("spec.resourceClaims[1].name", 'Duplicate value: "a"'),
        ]),
        ([{"name": "A", "resourceClaimName": "x"}], [
            ("spec.resourceClaims[0].name", f'Invalid value: "A": {LABEL_TEXT}'),
        ]),
    ],
)  # fmt: skip
def test_claims_of_pods_that_are_refused(api, claims, expected):
    assert refusals(api.post(PODS, pod(resourceClaims=claims))) == expected


def test_containers_name_claims_of_their_pod(api):
    container = {"name": "c", "image": "app:1", "resources": {"claims": [{"name": "a"}, {"name": "b", "request": "r"}]}}
    claims = [{"name": "a", "resourceClaimName": "x"}]
    field = "spec.containers[0].resources.claims"
    assert refusals(api.post(PODS, pod(containers=[container], resourceClaims=claims))) == [
        (f"{field}[1]", 'Not found: "b": must be one of the names in pod.spec.resourceClaims: a')
    ]
    assert refusals(api.post(PODS, pod(containers=[container])))[0] == (
        f"{field}[0]",
        'Not found: "a": must be one of the names in pod.spec.resourceClaims which is empty',
    )
    container["resources"]["claims"].pop()
    assert api.post(PODS, pod(containers=[container], resourceClaims=claims))[0] == 201


def test_a_pods_status_names_its_claims(api):
    container = {"name": "c", "image": "app:1", "resources": {"limits": {"example.com/gpu": 1}}}
    api.post(PODS, pod(containers=[container], resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]))
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    status = {
        "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-x", "requestMappings": [mapping]},
    }
    wrong = {
        "resourceClaimStatuses": [{"name": "b"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-x", "requestMappings": [
            {**mapping, "containerName": "d"}, {**mapping, "resourceName": "example.com/nic"}, mapping, mapping,
        ]},
    }  # fmt: skip
    extended = "status.extendedResourceClaimStatus.requestMappings"
    assert [field for field, _ in refusals(api.merge(f"{PODS}/p/status", {"status": wrong}))] == [
        "status.resourceClaimStatuses[0].name",
        f"{extended}[0].containerName",
        f"{extended}[1].resourceName",
        f"{extended}[3].containerName",
        f"{extended}[3].resourceName",
        f"{extended}[3].requestName",
    ]
    code, stored = api.merge(f"{PODS}/p/status", {"status": status})
    assert code == 200
    assert {key: stored["status"][key] for key in status} == status
    # The spec is what it was.
    assert api.merge(f"{PODS}/p", {"spec": {"resourceClaims": []}})[0] == 422
