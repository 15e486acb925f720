"""What a pod's annotation says about where to schedule it.

Source: koordinator `apis/extension/multi_scheduler.go`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.pod import Pod

ANNOTATIONS = ("internal.scheduling.koordinator.sh/scheduling-hint", "scheduling.koordinator.sh/scheduling-hint")
"""The first that is not empty counts; the second is deprecated."""


class HintError(ValueError):
    """The annotation cannot be read; the message is for the pod's owner."""


class SchedulingHint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`node_names`: the only nodes to be considered, unless empty; `preferred_node_names`: to be tried first, in this
    order; `extensions`: input of plugins, by their name.
    """

    node_names: tuple[str | None, ...] | None = None
    preferred_node_names: tuple[str | None, ...] | None = None
    extensions: dict[str, Any] | None = None


_decoder: msgspec.json.Decoder[SchedulingHint | None] = msgspec.json.Decoder(SchedulingHint | None)


def annotation_of(pod: Pod) -> tuple[str, str] | None:
    """The annotation of a pending pod that counts, with its text; None if it has none."""
    return _found(pod.wire.metadata) if pod.wire is not None else None


def _found(meta: ObjectMeta) -> tuple[str, str] | None:
    for key in ANNOTATIONS if meta.annotations else ():
        if text := meta.annotations.get(key):
            return key, text
    return None


def hint_of(pod: Pod) -> SchedulingHint | None:
    """The hint of a pending pod; None if it has none. Raises HintError."""
    return _hint(annotation_of(pod))


def concerns(meta: ObjectMeta, plugin: str) -> bool:
    """Whether the pod's hint has an extension for a plugin; False if it cannot be read."""
    try:
        hint = _hint(_found(meta))
    except HintError:
        return False
    return hint is not None and plugin in (hint.extensions or {})


def _hint(found: tuple[str, str] | None) -> SchedulingHint | None:
    if found is None:
        return None
    key, text = found
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HintError(f"annotation {key}: {error}") from error
