"""Requests to extenders and their answers (kube-scheduler `extender/v1`).

Fields have their Go names. Answers are read as Go reads them: names in any case, absent and null alike, unknown fields
skipped. Objects are sent as the API server wrote them, so requests are put together from bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

MAX_REASON = 4096
"""Characters of one reason that are kept: it ends up in the status of a pod."""

_INT64 = 1 << 63


class BadReply(ValueError):
    """An answer that does not have the form it should; the message says where."""


@dataclass(frozen=True, slots=True)
class FilterReply:
    """`kept`: names of the nodes that may stay; `failed` and `unresolvable`: names of others, with reasons."""

    kept: list[str]
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """The pods (by uid) that would have to leave a node, and how many of them break a disruption budget."""

    uids: list[str]
    violations: int


# --- requests -----------------------------------------------------------------------------------


def node_arguments(pod: bytes, nodes: Iterable[bytes] | None, names: Sequence[str] | None) -> bytes:
    """ExtenderArgs: the pod and either whole nodes or their names."""
    listed = b"null" if nodes is None else b'{"metadata":{},"items":[%b]}' % b",".join(nodes)
    return b'{"Pod":%b,"Nodes":%b,"NodeNames":%b}' % (pod, listed, orjson.dumps(names))


def victim_arguments(pod: bytes, victims: Mapping[str, Any] | None, meta_victims: Mapping[str, Any] | None) -> bytes:
    """ExtenderPreemptionArgs: by node either whole victims or their uids."""
    return b'{"Pod":%b,"NodeNameToVictims":%b,"NodeNameToMetaVictims":%b}' % (
        pod,
        orjson.dumps(victims),
        orjson.dumps(meta_victims),
    )


def binding_arguments(namespace: str, name: str, uid: str, node: str) -> bytes:
    """ExtenderBindingArgs."""
    return orjson.dumps({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


# --- answers ------------------------------------------------------------------------------------


def read_filter(body: bytes, *, names: bool) -> FilterReply:
    """ExtenderFilterResult. Nodes are taken from NodeNames if `names` and there are any, else from Nodes.

    Raises BadReply.
    """
    reply = _members(_parse(body), "the answer")
    listed = reply.get("nodenames")
    if names and listed is not None:
        kept = [_text(name, "NodeNames") for name in _items(listed, "NodeNames")]
    else:
        nodes = _members(reply.get("nodes"), "Nodes")
        kept = [_name_of(node) for node in _items(nodes.get("items"), "Nodes.items")]
    return FilterReply(
        kept,
        _reasons(reply.get("failednodes"), "FailedNodes"),
        _reasons(reply.get("failedandunresolvablenodes"), "FailedAndUnresolvableNodes"),
        _text(reply.get("error"), "Error"),
    )


def read_priorities(body: bytes) -> list[tuple[str, int]]:
    """HostPriorityList: (node, score). Raises BadReply."""
    scores = []
    for item in _items(_parse(body), "the answer"):
        entry = _members(item, "HostPriority")
        scores.append((_text(entry.get("host"), "Host"), _integer(entry.get("score"), "Score")))
    return scores


def read_victims(body: bytes) -> dict[str, MetaVictims]:
    """ExtenderPreemptionResult, by node. Raises BadReply."""
    reply = _members(_parse(body), "the answer")
    by_node = reply.get("nodenametometavictims")
    if by_node is not None and not isinstance(by_node, dict):
        raise BadReply("NodeNameToMetaVictims is not an object")
    found = {}
    for node, value in (by_node or {}).items():
        victims = _members(value, "MetaVictims")
        pods = (_members(pod, "MetaVictims.Pods") for pod in _items(victims.get("pods"), "MetaVictims.Pods"))
        found[node] = MetaVictims(
            [_text(pod.get("uid"), "UID") for pod in pods],
            _integer(victims.get("numpdbviolations"), "NumPDBViolations"),
        )
    return found


def read_binding(body: bytes) -> str:
    """ExtenderBindingResult: the error, "" if there was none. Raises BadReply."""
    return _text(_members(_parse(body), "the answer").get("error"), "Error")


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadReply(f"the answer is not JSON: {error}") from error


def _members(value: Any, what: str) -> dict[str, Any]:
    """The members of an object by lower-case name; null is an empty object."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadReply(f"{what} is not an object")
    return {name.lower(): member for name, member in value.items()}


def _items(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadReply(f"{what} is not a list")
    return value


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadReply(f"{what} is not a string")
    return value


def _integer(value: Any, what: str) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise BadReply(f"{what} is not a 64-bit integer")
    return value


def _reasons(value: Any, what: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadReply(f"{what} is not an object")
    return {name: clipped(_text(reason, what), MAX_REASON) for name, reason in value.items()}


def _name_of(node: Any) -> str:
    return _text(_members(_members(node, "Nodes.items").get("metadata"), "metadata").get("name"), "metadata.name")


MAX_MESSAGE = 32_768
"""Characters of a message that goes into a pod's status (the limit of metav1.Condition)."""


def clipped(text: str, longest: int) -> str:
    """The text, cut to this many characters with a mark at the end if it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
