"""metadata: uids, generated names, and what is wrong with it."""

from __future__ import annotations

import random
from typing import Any

from koordsched.fakecluster.errors import FieldError, invalid_value, required
from koordsched.fakecluster.names import annotation_errors, label_errors, qualified_name_error
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.strategy import Strategy

#: No vowels and no look-alikes, as apimachinery `pkg/util/rand` has it.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LENGTH = 5
_NAME_LIMIT = 63


def generate_name(prefix: str, rng: random.Random) -> str:
    """`prefix` (cut to fit) with five random characters."""
    return prefix[: _NAME_LIMIT - _GENERATED_LENGTH] + "".join(rng.choices(_ALPHABET, k=_GENERATED_LENGTH))


def new_uid(rng: random.Random) -> str:
    """A random (version 4) UUID from the injected generator."""
    bits = (rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62)) | (4 << 76) | (2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def metadata_errors(meta: dict[str, Any], resource: Resource, strategy: Strategy) -> list[FieldError]:
    """What is wrong with an object's metadata."""
    wrong: list[FieldError] = []
    name = meta.get("name")
    if not name:
        wrong.append(required("metadata.name", "name or generateName is required"))
    elif not isinstance(name, str):
        wrong.append(invalid_value("metadata.name", name, "must be a string"))
    elif (text := strategy.name_error(name)) is not None:
        wrong.append(invalid_value("metadata.name", name, text))
    if meta.get("labels"):
        wrong += label_errors(meta["labels"], "metadata.labels")
    if meta.get("annotations"):
        wrong += annotation_errors(meta["annotations"], "metadata.annotations")
    for finalizer in meta.get("finalizers") or ():
        if (text := qualified_name_error(str(finalizer))) is not None:
            wrong.append(invalid_value("metadata.finalizers", finalizer, text))
    owners = meta.get("ownerReferences")
    if owners:
        controllers = 0
        for i, owner in enumerate(owners):
            for key in ("apiVersion", "kind", "name", "uid"):
                if not owner.get(key):
                    wrong.append(invalid_value(f"metadata.ownerReferences[{i}].{key}", "", "must not be empty"))
            controllers += bool(owner.get("controller"))
        if controllers > 1:
            text = "Only one reference can have Controller set to true"
            wrong.append(invalid_value("metadata.ownerReferences", None, text))
    return wrong
