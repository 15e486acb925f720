"""core/v1 Service: defaults and cluster IPs."""

from __future__ import annotations

import ipaddress
from typing import Any

from koordsched.fakecluster import names
from koordsched.fakecluster.errors import FieldError, not_supported, required
from koordsched.fakecluster.registry import ChangeView, Registry
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

Object = dict[str, Any]

_RANGE = ipaddress.ip_network("10.96.0.0/12")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_KEPT = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


class ServiceStrategy(Strategy):
    """Gives every service that wants one the lowest free address of 10.96.0.0/12."""

    returns_deleted = True

    def __init__(self, registry: Registry) -> None:
        self._used: set[int] = set()
        self._lowest = 1
        registry.subscribe_changes(registry.resource("", "v1", "services"), self._changed)

    def _changed(self, change: ChangeView) -> None:
        text = change.new.get("spec", {}).get("clusterIP")
        if not text or text == "None":
            return
        offset = int(ipaddress.ip_address(text)) - int(_RANGE.network_address)
        if change.type == "DELETED":
            self._used.discard(offset)
            self._lowest = min(self._lowest, max(offset, 1))
        else:
            self._used.add(offset)

    def _free(self) -> str:
        while self._lowest in self._used:
            self._lowest += 1
        return str(_RANGE.network_address + self._lowest)

    def name_error(self, name: str) -> str | None:
        return names.label_1035_error(name)

    def defaults(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port")
        obj.setdefault("status", {"loadBalancer": {}})

    def admit(self, registry: Registry, resource: Resource, obj: Object) -> None:
        spec = obj["spec"]
        obj["status"] = {"loadBalancer": {}}
        if spec["type"] == "ExternalName":
            return
        address = spec.get("clusterIP") or self._free()
        spec |= {"clusterIP": address, "clusterIPs": [address]}
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_update(self, registry: Registry, obj: Object, old: Object, subresource: str) -> None:
        for key in _KEPT:
            if key in (old.get("spec") or {}):
                obj["spec"].setdefault(key, old["spec"][key])

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        wrong = []
        if spec["type"] not in _TYPES:
            wrong.append(not_supported("spec.type", spec["type"], _TYPES))
        if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            wrong.append(required("spec.ports"))
        for i, port in enumerate(spec.get("ports") or ()):
            if not port.get("port"):
                wrong.append(required(f"spec.ports[{i}].port"))
        return wrong
