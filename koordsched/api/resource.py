"""Dynamic resource allocation: resource.k8s.io/v1 classes of devices."""

from __future__ import annotations

from koordsched.api.meta import ObjectMeta, Wire


class DeviceClassSpec(Wire, frozen=True):
    """`extended_resource_name`: what pods may request instead of claiming a device, "" if there is nothing."""

    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    """A class of devices that drivers offer."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
