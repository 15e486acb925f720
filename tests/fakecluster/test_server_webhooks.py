"""Devices that pods request: what the API server does in place of koord-manager's webhooks."""

import json
from pathlib import Path

import pytest

from koordsched.fakecluster.admission.devices import PodWebhook
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.fakecluster.apiclient import PODS, Api
from tests.fakecluster.devices import CORE, DEFINITION, MEMORY, RATIO, DeviceCluster, gpus, template

RECORDS = Path(__file__).parent / "golden-manager"
GPU, SHARED, NPU = "koordinator.sh/gpu", "koordinator.sh/gpu.shared", "huawei.com/npu-core"
BOTH = tuple(PodWebhook)
GATES = {
    "DisableDeviceResourceSpec=true": PodWebhook.DEVICE_RESOURCE_SPEC,
    "ValidatePodDeviceResource=true": PodWebhook.DEVICE_RESOURCE_VALIDATION,
}


def webhooks(flags):
    """The webhooks of a koord-manager with these flags."""
    gates = {gate for flag in flags for gate in flag.removeprefix("--feature-gates=").split(",")}
    assert gates <= GATES.keys()
    # The first gate switches off, the other one on.
    return {GATES[gate] for gate in gates} ^ {PodWebhook.DEVICE_RESOURCE_SPEC}


@pytest.mark.parametrize("name", ["devspec-gate-off", "devspec-validate", "devspec-validate-raw"])
def test_recorded_answers_of_koord_manager(name):
    record = json.loads((RECORDS / f"{name}.json").read_text())
    api = Api(webhooks=webhooks(record["config"]["flags"]))
    assert len(record["steps"]) == len(record["expected"]["steps"]) > 1
    for step, expected in zip(record["steps"], record["expected"]["steps"], strict=True):
        answer = expected["answer"]
        status, body = api.post(PODS, step["create"])
        if not answer["allowed"]:
            assert (status, body["message"]) == (answer["code"], answer["message"])
            continue
        assert status == 201
        ((_, shown),) = expected["objects"].items()
        spec = body["spec"]
        assert [{key: each[key] for key in ("name", "resources")} for each in spec["containers"]] == shown["containers"]
        fields = ("priority", "preemptionPolicy", "schedulerName", "terminationGracePeriodSeconds")
        assert {field: spec[field] for field in fields} == {field: shown[field] for field in fields}


def test_recorded_nodes_without_colocation():
    """Nothing is synchronized then, as without reports of devices."""
    record = json.loads((RECORDS / "devices-disabled.json").read_text())
    cluster = DeviceCluster(0, hollow={"device_reports": False})
    for obj in record["objects"]:
        obj["metadata"].setdefault("annotations", {})["koordsched.io/hollow"] = "true"
        cluster.create(obj)
    cluster.run(10)
    (shown,) = record["expected"]["objects"].values()
    status = cluster.get("nodes", "gd-1")["status"]
    assert {field: status[field] for field in ("capacity", "allocatable")} == {
        field: shown[field] for field in ("capacity", "allocatable")
    }


def pod(name="p", kind="containers", limits=True, **requests):
    """Two containers, of which the second requests these resources; `kind`: or an init container."""
    named = {"core": CORE, "memory": MEMORY, "ratio": RATIO, "gpu": GPU, "shared": SHARED, "npu": NPU, "cpu": "cpu"}
    amounts = {named[key]: amount for key, amount in requests.items()}
    resources = {"requests": amounts, **({"limits": dict(amounts)} if limits else {})}
    containers = [{"name": "first", "image": "i"}]
    spec = {"containers": containers}
    spec.setdefault("initContainers" if kind == "initContainers" else "containers", []).append(
        {"name": "second", "image": "i", "resources": resources}
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def stored(api, obj, kind="containers"):
    """The requests of the last container as stored; limits are the same."""
    status, body = api.post(PODS, obj)
    assert status == 201, body
    resources = body["spec"][kind][-1]["resources"]
    assert resources["requests"] == resources["limits"]
    return resources["requests"]


REWRITTEN = [
    ({"gpu": "200"}, {CORE: "200", RATIO: "200", SHARED: "2"}),
    ({"ratio": "50"}, {RATIO: "50", SHARED: "1"}),
    ({"gpu": "100"}, {CORE: "100", RATIO: "100", SHARED: "1"}),
    ({"gpu": "50", "cpu": "1"}, {"cpu": "1", CORE: "50", RATIO: "50", SHARED: "1"}),
    # What the GPU says goes before what else is said.
    ({"gpu": "200", "core": "50"}, {CORE: "200", RATIO: "200", SHARED: "2"}),
    ({"gpu": "200", "shared": "1"}, {CORE: "200", RATIO: "200", SHARED: "1"}),
    ({"gpu": "1k"}, {CORE: "1k", RATIO: "1k", SHARED: "10"}),
    ({"ratio": "800", "core": "100"}, {CORE: "100", RATIO: "800", SHARED: "8"}),
    ({"ratio": "100", "core": "800"}, {CORE: "800", RATIO: "100", SHARED: "1"}),
    ({"core": "300", "memory": "1Gi"}, {CORE: "300", MEMORY: "1Gi", SHARED: "3"}),
    ({"core": "250", "memory": "1Gi"}, {CORE: "250", MEMORY: "1Gi", SHARED: "1"}),
    ({"memory": "1Gi"}, {MEMORY: "1Gi", SHARED: "1"}),
    ({"npu": "5", "ratio": "100"}, {NPU: "5", RATIO: "100", SHARED: "1"}),
    ({"npu": "5"}, {NPU: "5"}),
    ({"shared": "2", "ratio": "100"}, {SHARED: "2", RATIO: "100"}),
    ({"cpu": "1"}, {"cpu": "1"}),
]


@pytest.mark.parametrize("requests, expected", REWRITTEN[:2])
def test_deviceshare_case_37_the_webhook_rewrites_requests(requests, expected):
    assert stored(Api(webhooks=BOTH), pod(**requests)) == expected


@pytest.mark.parametrize("requests, expected", REWRITTEN)
def test_requests_for_gpus_are_rewritten(requests, expected):
    api = Api(webhooks=[PodWebhook.DEVICE_RESOURCE_SPEC])
    assert stored(api, pod(**requests)) == expected
    # The second one is answered from memory.
    assert stored(api, pod("q", **requests)) == expected


@pytest.mark.parametrize("requests, expected", REWRITTEN)
def test_without_webhooks_requests_stay(requests, expected):
    amounts = pod(**requests)["spec"]["containers"][-1]["resources"]["requests"]
    assert stored(Api(), pod(**requests)) == amounts


def test_init_containers_are_left_alone():
    assert stored(Api(webhooks=BOTH), pod(kind="initContainers", gpu="200"), "initContainers") == {GPU: "200"}


def test_limits_alone_are_requests_as_well():
    obj = pod(gpu="200")
    del obj["spec"]["containers"][-1]["resources"]["requests"]
    assert stored(Api(webhooks=BOTH), obj) == {CORE: "200", RATIO: "200", SHARED: "2"}


def test_who_applies_the_same_manifest_again_changes_nothing():
    api = Api(webhooks=BOTH)
    obj = pod(gpu="200", cpu="1")
    made = api.post(PODS, obj)[1]
    # As kubectl apply does: what the manifest says is missing in the stored object.
    spec = {"containers": [made["spec"]["containers"][0], obj["spec"]["containers"][1]]}
    assert api.call("PATCH", f"{PODS}/p", {"spec": spec}, "application/strategic-merge-patch+json") == (200, made)
    # As kubectl replace does.
    replaced = {**made, "spec": {**made["spec"], "containers": made["spec"]["containers"][:1] + spec["containers"][1:]}}
    assert (
        api.put(f"{PODS}/p", json.loads(json.dumps(replaced)))[1]["spec"]["containers"][1]["resources"]
        == (made["spec"]["containers"][1]["resources"])
    )
    # Other requests are refused, and other changes of pods that were there before are not.
    spec["containers"][1] = pod(gpu="100", cpu="1")["spec"]["containers"][1]
    assert api.call("PATCH", f"{PODS}/p", {"spec": spec}, "application/strategic-merge-patch+json")[0] == 422
    api.registry.restore(api.registry.pods, Api().post(PODS, pod("old", gpu="200"))[1])
    status, changed = api.merge(f"{PODS}/old", {"metadata": {"annotations": {"a": "b"}}})
    assert (status, changed["spec"]["containers"][1]["resources"]["requests"]) == (200, {GPU: "200"})


def test_what_is_no_quantity_is_refused_as_ever():
    for wrong in ("much", "-100"):
        plain, hooked = (api.post(PODS, pod(gpu=wrong)) for api in (Api(), Api(webhooks=BOTH)))
        assert plain[0] == hooked[0] == 422


REFUSED = 'admission webhook "vpod.koordinator.sh" denied the request: '
FIELD = "pod.spec.containers[*].resources.requests: "


def test_every_container_is_checked_and_each_problem_told_once():
    api = Api(webhooks=BOTH)
    obj = pod(shared="0", core="50", ratio="50")
    status, body = api.post(PODS, obj)
    zero = f'{FIELD}Invalid value: "0": the requested GPU must be greater than zero'
    assert (status, body["reason"], body["message"]) == (400, "BadRequest", REFUSED + zero)
    obj["spec"]["containers"].append({**obj["spec"]["containers"][-1], "name": "third"})
    assert api.post(PODS, obj)[1]["message"] == REFUSED + zero
    obj["spec"]["containers"].append({**pod(shared="1")["spec"]["containers"][-1], "name": "fourth"})
    nothing = f"{FIELD}Forbidden: GPU memory and GPU memory ratio all is zero"
    assert api.post(PODS, obj)[1]["message"] == f"{REFUSED}[{zero}, {nothing}]"


def test_nodes_offer_what_rewritten_pods_ask_for():
    api = Api(webhooks=BOTH)
    HollowNodes(api.registry, HollowOptions(count=1, template=template(gpus(4)), gpu_shared=True)).start()
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    api.timers.advance(4)
    obj = pod(gpu="200")
    obj["spec"]["nodeName"] = "node-0"
    assert stored(api, obj)[SHARED] == "2"
    api.timers.advance(2)
    assert api.get(f"{PODS}/p")[1]["status"]["phase"] == "Running"
