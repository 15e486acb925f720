"""Manifests as an API server would have stored them: defaults, priorities, limits, and its rejections. An embedded API
server without clients does this, so that what is simulated is what would have been created. Objects that have a uid
come from a server and are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import orjson

from koordsched.cli.objectfiles import InputError, Object, Sourced
from koordsched.fakecluster.bodies import check
from koordsched.fakecluster.clock import SystemClock
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.resources import Resource
from koordsched.plugins import KINDS

DEFAULT_NAMESPACE = "default"

_CONTEXT = {("v1", "Namespace"): 0, ("scheduling.k8s.io/v1", "PriorityClass"): 1, ("v1", "LimitRange"): 2}
"""Kinds on which the admission of other objects depends, so they come first, in this order."""


class Admission:
    """Admits objects. `strangers`: the number of objects of each kind that is unknown without a definition."""

    def __init__(self, seed: int) -> None:
        self._registry = new_cluster(SystemClock(), Random(seed))
        self._seen: dict[tuple[str, str, str], str] = {}
        self.strangers: dict[str, int] = {}

    def admit_all(self, objects: Iterable[Sourced]) -> list[Sourced]:
        """The objects as stored, custom ones first, without those of unknown kinds. Raises InputError."""
        known: list[tuple[Resource, Sourced]] = []
        custom: list[Sourced] = []
        for sourced in objects:
            resource = self._resource(sourced)
            if resource is not None:
                known.append((resource, sourced))
            elif _type(sourced) in KINDS:
                custom.append(self._admit_custom(sourced))
            else:
                kind = f"{sourced.kind} ({sourced.api_version})"
                self.strangers[kind] = self.strangers.get(kind, 0) + 1
        order = sorted(range(len(known)), key=lambda i: _CONTEXT.get(_type(known[i][1]), len(_CONTEXT)))
        self._ensure_namespaces(sourced for _, sourced in known)
        stored: dict[int, Sourced] = {index: self._admit(*known[index]) for index in order}
        return [*custom, *(stored[index] for index in range(len(known)))]

    def admit(self, sourced: Sourced) -> Sourced:
        """One more object of a known kind, made from another. Raises InputError."""
        return self._admit(self._registry.resource_for_kind(sourced.api_version, sourced.kind), sourced)

    def _resource(self, sourced: Sourced) -> Resource | None:
        try:
            resource = self._registry.resource_for_kind(sourced.api_version, sourced.kind)
        except ApiStatusError:
            return None
        if resource.namespaced:
            sourced.meta["namespace"] = sourced.namespace or DEFAULT_NAMESPACE
        return resource

    def _ensure_namespaces(self, objects: Iterable[Sourced]) -> None:
        """Dumps rarely contain the namespaces that their objects are in."""
        namespaces = self._registry.resource("", "v1", "namespaces")
        for name in dict.fromkeys(sourced.namespace for sourced in objects):
            if name and self._registry.peek(namespaces, None, name) is None:
                self._registry.restore(
                    namespaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )

    def _admit_custom(self, sourced: Sourced) -> Sourced:
        """An object of a kind that plugins read and no server knows without its definition: it is not checked."""
        if KINDS[_type(sourced)].namespaced:
            sourced.meta["namespace"] = sourced.namespace or DEFAULT_NAMESPACE
        self._note_once(_type(sourced)[1], sourced)
        return sourced

    def _note_once(self, storage: str, sourced: Sourced) -> None:
        key = (storage, sourced.namespace, sourced.name)
        if key in self._seen:
            raise InputError(f"{sourced.where}: {sourced.kind} {sourced.name} is also in {self._seen[key]}")
        self._seen[key] = sourced.where

    def _admit(self, resource: Resource, sourced: Sourced) -> Sourced:
        if sourced.name:
            self._note_once(resource.storage, sourced)
        try:
            if sourced.meta.get("uid"):
                if sourced.kind == "Pod":
                    # There may be a million: the rest is checked when the scheduler decodes them.
                    _check_parts(sourced)
                else:
                    check(orjson.dumps(sourced.obj), resource, "Ignore", [])
                if _type(sourced) in _CONTEXT:
                    self._registry.restore(resource, orjson.loads(orjson.dumps(sourced.obj)))
                return sourced
            return Sourced(sourced.where, self._create(resource, sourced))
        except ApiStatusError as error:
            raise InputError(f"{sourced.where}: {error.message}") from error

    def _create(self, resource: Resource, sourced: Sourced) -> Object:
        given: Object = {
            **sourced.obj,
            "metadata": {k: v for k, v in sourced.meta.items() if k not in ("resourceVersion", "managedFields")},
        }
        obj = check(orjson.dumps(given), resource, "Strict", [])
        status: Any = obj.get("status")
        if sourced.name and self._registry.peek(resource, sourced.namespace or None, sourced.name) is not None:
            # What every cluster has from the start: the default namespaces and the system's priority classes.
            return self._registry.get(resource, sourced.namespace or None, sourced.name)
        stored = self._registry.create(resource, sourced.namespace or None, obj)
        if isinstance(status, dict) and resource.kind != "Node":
            # A server leaves the status to controllers; here it is what happened so far.
            stored["status"] = {**(stored.get("status") or {}), **status}
        return stored


def _check_parts(sourced: Sourced) -> None:
    for field in ("spec", "status"):
        if not isinstance(sourced.obj.get(field), dict | None):
            raise InputError(f"{sourced.where}: {sourced.kind} {sourced.name}: {field}: an object was expected")


def _type(sourced: Sourced) -> tuple[str, str]:
    return sourced.api_version, sourced.kind
