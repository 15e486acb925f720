"""API servers of earlier releases: what they serve, which fields they know, how they behave.

Facts of the releases' own API references and feature gate tables; of gated fields, the release from which the gate is
on by default. An unknown field is dropped without complaint when it is stored, as decoding does there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
"""Keys from the root of an object; `*` stands for every element of a list."""

OLDEST, NEWEST = 30, 36

_RESOURCES_SINCE = {
    ("resource.k8s.io", "v1"): 34,
    ("resource.k8s.io", "v1beta2"): 36,
    ("storage.k8s.io", "v1", "volumeattributesclasses"): 34,
}
"""Group, version and, unless all of a version are meant, the resource."""

_POD_AFFINITY = (
    ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "*"),
    ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "*", "podAffinityTerm"),
    ("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "*"),
    ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "*", "podAffinityTerm"),
)

_FIELDS_SINCE: dict[str, dict[Path, int]] = {
    "/pods": {
        **{("spec", "affinity", *term, "matchLabelKeys"): 31 for term in _POD_AFFINITY},
        **{("spec", "affinity", *term, "mismatchLabelKeys"): 31 for term in _POD_AFFINITY},
        ("metadata", "generation"): 33,
        ("status", "observedGeneration"): 33,
        ("status", "conditions", "*", "observedGeneration"): 33,
        ("spec", "resources"): 34,
        ("spec", "hostnameOverride"): 35,
    },
    "/nodes": {("status", "declaredFeatures"): 36},
    "/persistentvolumeclaims": {("spec", "volumeAttributesClassName"): 34},
    "coordination.k8s.io/leases": {("spec", "strategy"): 31, ("spec", "preferredHolder"): 31},
    "storage.k8s.io/csidrivers": {("spec", "nodeAllocatableUpdatePeriodSeconds"): 34},
}
"""By storage key."""


class Release:
    """A minor release of Kubernetes 1."""

    def __init__(self, minor: int = NEWEST) -> None:
        self.minor = minor

    @property
    def streams_lists(self) -> bool:
        """Whether a watch may begin with the present state (WatchList: on in 1.32, off again in 1.33, on since)."""
        return self.minor == 32 or self.minor >= 34

    @property
    def clears_nominations(self) -> bool:
        """Whether a binding removes status.nominatedNodeName."""
        return self.minor >= 34

    @property
    def labels_with_bindings(self) -> bool:
        """Whether the labels of a Binding are merged into the pod, as its annotations are."""
        return self.minor >= 35

    @property
    def guards_claim_statuses(self) -> bool:
        """Whether parts of a claim's status need permissions of their own."""
        return self.minor >= 36

    def serves(self, group: str, version: str, plural: str) -> bool:
        """Whether a built-in resource exists already."""
        since = _RESOURCES_SINCE.get((group, version), _RESOURCES_SINCE.get((group, version, plural), OLDEST))
        return self.minor >= since

    @cached_property
    def unknown_fields(self) -> dict[str, list[Path]]:
        """By storage key, the fields that are not known yet."""
        found = {
            storage: [path for path, since in fields.items() if self.minor < since]
            for storage, fields in _FIELDS_SINCE.items()
        }
        return {storage: paths for storage, paths in found.items() if paths}

    def version(self) -> dict[str, str]:
        """What /version answers."""
        return {
            "major": "1",
            "minor": str(self.minor),
            "gitVersion": f"v1.{self.minor}.0-koordsched",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }


def parse_release(text: str) -> Release:
    """The release of a version such as `1.30`, `v1.30` or `1.30.4`. Raises ValueError."""
    major, _, rest = text.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    if major != "1" or not minor.isdecimal() or not OLDEST <= int(minor) <= NEWEST:
        raise ValueError(f"{text!r} is not a version from 1.{OLDEST} to 1.{NEWEST}")
    return Release(int(minor))


def without(obj: Object, paths: Iterable[Path]) -> Object:
    """The object without these fields. It is not changed: what it shares with others is copied where it differs."""
    for path in paths:
        obj = _without(obj, path)
    return obj


def _without(value: Any, path: Path) -> Any:
    key, rest = path[0], path[1:]
    if key == "*":
        return [_without(item, rest) for item in value] if isinstance(value, list) else value
    if not isinstance(value, dict) or key not in value:
        return value
    if not rest:
        return {name: item for name, item in value.items() if name != key}
    inner = _without(value[key], rest)
    return value if inner is value[key] else {**value, key: inner}
