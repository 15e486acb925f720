"""Discovery: what is served, group by group or aggregated."""

from __future__ import annotations

from typing import Any

import orjson

from koordsched.fakecluster import errors
from koordsched.fakecluster.messages import Request, Response, json_response
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Object, Resource

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "proxy": ("", "v1", "NodeProxyOptions"),
}
_SUBRESOURCE_VERBS = {
    "binding": ["create"],
    "eviction": ["create"],
    "token": ["create"],
    "log": ["get"],
    "exec": ["create", "get"],
    "attach": ["create", "get"],
    "portforward": ["create", "get"],
    "proxy": ["get"],
    "finalize": ["update"],
}
_STATUS_VERBS = ["get", "patch", "update"]


class Discovery:
    """Answers /api and /apis. Encoded answers are kept until a resource comes or goes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[tuple[str, bool], bytes] = {}
        self._epoch = -1

    def groups(self) -> dict[str, list[str]]:
        """Versions by group, preferred first, groups in order of registration; "" is the core group."""
        found: dict[str, list[str]] = {}
        for resource in self._registry.resources():
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        for versions in found.values():
            versions.sort(key=version_priority, reverse=True)
        return found

    def answer(self, request: Request, parts: list[str]) -> Response:
        """A GET of /api, /apis, /apis/{group} or a group version's resource list."""
        if self._epoch != self._registry.resource_epoch:
            self._cache.clear()
            self._epoch = self._registry.resource_epoch
        aggregated = len(parts) == 1 and "as=APIGroupDiscoveryList" in request.headers.get("accept", "")
        aggregated = aggregated and "v=v2;" in request.headers["accept"].replace(" ", "") + ";"
        key = ("/".join(parts), aggregated)
        body = self._cache.get(key)
        if body is None:
            body = self._cache[key] = orjson.dumps(self._document(parts, aggregated))
        return json_response(body, content_type=_AGGREGATED if aggregated else "application/json")

    def _document(self, parts: list[str], aggregated: bool) -> Object:
        groups = self.groups()
        if parts == ["api"]:
            if aggregated:
                return self._aggregated({"": groups[""]})
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}
            return {"kind": "APIVersions", "versions": groups[""], "serverAddressByClientCIDRs": [address]}
        if parts == ["apis"]:
            named = {g: v for g, v in groups.items() if g}
            if aggregated:
                return self._aggregated(named)
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, v) for g, v in named.items()]}
        if parts[0] == "api" and len(parts) == 2 and parts[1] in groups[""]:
            return self._resource_list("", parts[1])
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
        if parts[0] == "apis" and len(parts) == 3 and parts[2] in groups.get(parts[1], ()):
            return self._resource_list(parts[1], parts[2])
        raise errors.no_such_path()

    def _served(self, group: str, version: str) -> list[Resource]:
        found = [r for r in self._registry.resources() if r.group == group and r.version == version]
        return sorted(found, key=lambda r: r.plural)

    def _resource_list(self, group: str, version: str) -> Object:
        entries: list[Object] = []
        for resource in self._served(group, version):
            entry: Object = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            if resource.short_names:
                entry["shortNames"] = list(resource.short_names)
            if resource.categories:
                entry["categories"] = list(resource.categories)
            entries.append(entry)
            entries += [_subresource_entry(resource, s) for s in sorted(resource.subresources)]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": entries,
        }

    def _aggregated(self, groups: dict[str, list[str]]) -> Object:
        items: list[Object] = []
        for group, versions in groups.items():
            entries = []
            for version in versions:
                listed = [_aggregated_entry(r) for r in self._served(group, version)]
                entries.append({"version": version, "resources": listed, "freshness": "Current"})
            metadata: Object = {"creationTimestamp": None}
            if group:
                metadata["name"] = group
            items.append({"metadata": metadata, "versions": entries})
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Orders versions as Kubernetes does: GA before beta before alpha, higher numbers first (with reverse=True)."""
    number, stage, minor = "", 0, ""
    if version.startswith("v"):
        rest = version[1:]
        for name, level in (("alpha", 1), ("beta", 2)):
            if name in rest:
                number, _, minor = rest.partition(name)
                stage = level
                break
        else:
            number, stage = rest, 3
    if not number.isdigit() or (minor and not minor.isdigit()):
        return (0, 0, 0, version)
    return (stage, int(number), int(minor or 0), "")


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _response_kind(resource: Resource, subresource: str) -> tuple[str, str, str]:
    return _SUBRESOURCE_KINDS.get(subresource, (resource.group, resource.version, resource.kind))


def _subresource_entry(resource: Resource, subresource: str) -> Object:
    group, version, kind = _response_kind(resource, subresource)
    entry: Object = {
        "name": f"{resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": _SUBRESOURCE_VERBS.get(subresource, _STATUS_VERBS),
    }
    if (group, version) != (resource.group, resource.version):
        entry |= {"group": group, "version": version} if group else {"version": version}
    return entry


def _aggregated_entry(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below: list[dict[str, Any]] = []
    for subresource in sorted(resource.subresources):
        group, version, kind = _response_kind(resource, subresource)
        below.append(
            {
                "subresource": subresource,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": _SUBRESOURCE_VERBS.get(subresource, _STATUS_VERBS),
            }
        )
    if below:
        entry["subresources"] = below
    return entry
