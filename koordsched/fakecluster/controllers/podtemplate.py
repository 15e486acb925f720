"""Pods made from the templates of workload controllers."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from koordsched.fakecluster.controllers.ownership import Object

_SAFE_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The letters and digits that the API server uses in generated names."""


def template_hash(template: Object, collisions: int = 0) -> str:
    """A short name for the content of a pod template; `collisions` makes another one for the same content."""
    content = orjson.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.blake2b(content, digest_size=5).digest(), "big")
    letters = []
    for _ in range(8):
        number, letter = divmod(number, len(_SAFE_ALPHABET))
        letters.append(_SAFE_ALPHABET[letter])
    return "".join(letters)


class PodFactory:
    """Makes pods with the labels, annotations, finalizers and spec of a template, owned by `reference`."""

    def __init__(self, template: Object, namespace: str, reference: Object) -> None:
        origin = template.get("metadata") or {}
        metadata: Object = {"namespace": namespace, "ownerReferences": [reference]}
        for field in ("labels", "annotations", "finalizers"):
            if origin.get(field):
                metadata[field] = origin[field]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}
        self._encoded = orjson.dumps(pod)

    def pod(self, **metadata: Any) -> Object:
        """A new pod, shared with nothing; `metadata` is its `name` or `generateName`."""
        pod: Object = orjson.loads(self._encoded)
        pod["metadata"].update(metadata)
        return pod
