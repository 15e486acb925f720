"""Objects of resource.k8s.io for tests."""

V1 = "/apis/resource.k8s.io/v1"
CLASSES = f"{V1}/deviceclasses"
CLAIMS = f"{V1}/namespaces/default/resourceclaims"
TEMPLATES = f"{V1}/namespaces/default/resourceclaimtemplates"
SLICES = f"{V1}/resourceslices"
TAINT_RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = "gpu.example.com"
UID = "11111111-1111-4111-8111-111111111111"
SHARE = "22222222-2222-4222-8222-222222222222"


def request(name="r", **exactly):
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def claim_spec(*requests, **devices):
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def claim(name="c", *requests, **devices):
    meta = {"name": name, "namespace": "default"}
    spec = claim_spec(*requests, **devices)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def claim_template(name="t", spec=None, **metadata):
    meta = {"name": name, "namespace": "default"}
    inner = {"spec": spec or claim_spec(), **({"metadata": metadata} if metadata else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": inner}


def result(device="gpu-0", **more):
    return {"request": "r", "driver": DRIVER, "pool": "node-0", "device": device, **more}


def allocation(*results, **more):
    return {"devices": {"results": list(results) or [result()]}, **more}


def consumer(name="p", uid=UID):
    return {"resource": "pods", "name": name, "uid": uid}


def device(name="gpu-0", **more):
    return {"name": name, **more}


def resource_slice(*devices, name="s", **spec):
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    reach = () if any(key in spec for key in ("nodeName", "nodeSelector", "perDeviceNodeSelection")) else ("allNodes",)
    body = {"driver": DRIVER, "pool": pool, **dict.fromkeys(reach, True), **spec}
    if devices:
        body["devices"] = list(devices)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": body}


def device_class(name="gpu", **spec):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
