"""Which changes of a pod's metadata its Binding can carry.

An API server merges the annotations of a Binding into the pod with the very write that gives it its node (upstream:
registry/core/pod/storage, BindingREST): one request and one watch event instead of two, and no pod that is annotated
without being bound. Labels of a Binding count from Kubernetes 1.35 on (gate PodTopologyLabelsAdmission) and are ignored
before; nothing can be removed.

Unlike an update of the pod, a Binding is stored without validation of its annotations. A pod with illegal ones could
not be changed any more, not even by its kubelet: what may be illegal is left to a patch, which the server refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from koordsched.config.qualified_names import qualified_name_errors

LONGEST = 256 * 1024
"""Bytes of all annotations of an object, keys and values, that an API server accepts."""

_BYTES_PER_CHARACTER = 4
"""At most, in UTF-8."""


def carried(changes: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, str] | None:
    """The annotations to set if a Binding can carry these changes of the metadata (JSON), None if it cannot.

    `shown`: the annotations that the pod has.
    """
    if changes.keys() != {"annotations"}:
        return None
    annotations: dict[str, Any] = changes["annotations"]
    for key, value in annotations.items():
        if not isinstance(value, str) or not _legal(key):
            return None
    characters = _characters(annotations) + _characters(shown)
    return dict(annotations) if characters * _BYTES_PER_CHARACTER <= LONGEST else None


def _characters(annotations: Mapping[str, str]) -> int:
    return sum(map(len, annotations)) + sum(map(len, annotations.values()))


@lru_cache(maxsize=1024)
def _legal(key: str) -> bool:
    return not qualified_name_errors(key.lower())
