"""Short ways to write classes, slices and claims as JSON, and the recorded states about extended resources."""

from tests.parity.records import device_names

GATES = frozenset({"DRAExtendedResource"})


def recorded_names():
    """The records about resources that a class stands for."""
    return [name for name in device_names() if name.startswith("d-ext-")]


def device_class(name, resource=None, created=None):
    """A DeviceClass; `created` is a day of January 2030."""
    metadata = {"name": name}
    if created is not None:
        metadata["creationTimestamp"] = f"2030-01-{created:02}T00:00:00Z"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": metadata,
        "spec": {"extendedResourceName": resource} if resource else {},
    }


def resource_slice(name, devices, driver="drv", pool="p", per_device=False, **where):
    """A ResourceSlice; `devices` are names, or (name, more of it); `where`: nodeName, allNodes or nodeSelector."""
    made = [{"name": item} if isinstance(item, str) else {"name": item[0], **item[1]} for item in devices]
    spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": made,
        **where,
    }
    if per_device:
        spec["perDeviceNodeSelection"] = True
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def in_rack(*racks):
    """A node selector."""
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": list(racks)}]}]}


def allocation(*devices, driver="drv", pool="p", **more):
    """An allocation of these devices; `more` of each result."""
    results = [{"request": "r", "driver": driver, "pool": pool, "device": device, **more} for device in devices]
    return {"devices": {"results": results}}
