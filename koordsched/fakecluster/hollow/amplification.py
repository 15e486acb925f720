"""CPU and memory of which a node offers more than it has: what koord-manager's webhook for nodes does."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from koordsched.api import quantity
from koordsched.fakecluster.hollow.amounts import amount, milli_text
from koordsched.fakecluster.hollow.annotationtext import decode_text

Object = dict[str, Any]

RATIO, RAW = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"
_RESOURCES = ("cpu", "memory")
_HIGHEST_RATIO = 1000
_LONGEST_TEXT = 4096


def ratio_text(node: Object) -> str:
    """The node's annotation; empty without one."""
    text: str = (node["metadata"].get("annotations") or {}).get(RATIO, "")
    return text


def amplified(node: Object) -> Object:
    """The Node with the allocatable amounts that its ratios ask for: ceil(amount * ratio), of CPU in milli-cores.

    What it has without them is kept in another annotation. Raises ValueError for an annotation that cannot be read.
    """
    metadata, status = node["metadata"], node.get("status") or {}
    annotations, allocatable = dict(metadata.get("annotations") or {}), dict(status.get("allocatable") or {})
    kept = annotations.pop(RAW, "")
    raw = {name: allocatable[name] for name in _RESOURCES if name in allocatable}
    raw |= decode_text(kept, dict[str, Any], _LONGEST_TEXT) if kept else {}
    allocatable |= raw
    if RATIO in annotations:
        annotations[RAW] = msgspec.json.encode(raw).decode()
        for name, ratio in decode_text(annotations[RATIO], dict[str, float], _LONGEST_TEXT).items():
            if not 0 <= ratio <= _HIGHEST_RATIO:
                raise ValueError(f"{name}: {ratio} is not from 0 to {_HIGHEST_RATIO}")
            if name in raw and name in _RESOURCES and ratio > 1:
                more = math.ceil(amount(name, raw[name]) * ratio)
                allocatable[name] = milli_text(more) if name == "cpu" else quantity.format_bytes(more)
    return {
        **node,
        "metadata": {**metadata, "annotations": annotations},
        "status": {**status, "allocatable": allocatable},
    }
