"""What pods that stay pending are told about the Reservations of their owners (reservation spec 5.1, 5.2).

Source: koordinator `pkg/scheduler/plugins/reservation/plugin.go`, `frameworkext/eventhandlers/reservation_handler.go`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koordsched.api.selectors import parse_integer
from koordsched.plugins.reservation.fitting import PREFIX

_FIT_ERROR = re.compile(r"0/[0-9]+ nodes are available: ")
_ABOUT_RESERVATIONS = re.compile(r"[0-9]+ Reservation\(s\) .*")
_TOTAL = re.compile(r"([0-9]+) Reservation\(s\) matched owner total")
_NAMED = re.compile(r"[0-9]+ Reservation\(s\) exactly matches the requested reservation name")
_NODE_REASON = re.compile(r"[0-9]+ Reservation\(s\) for node reason that .*")


class NodeCounts(NamedTuple):
    """The Reservations of a node whose owners match the pod: how many, and how many of them it may not use and why.

    `taints`: how many have this as the first taint that keeps the pod away. `reasons`: why the filters refused the
    node, repeated as they were given.
    """

    owner_matched: int
    name_matched: int = 0
    name_unmatched: int = 0
    affinity_unmatched: int = 0
    unschedulable: int = 0
    not_exact: int = 0
    taints: Mapping[str, int] = {}
    reasons: Sequence[str] = ()

    @property
    def refused_by_node(self) -> int:
        """How many could be used but for their node: neither the pod nor a reason of their own speaks against them."""
        against = self.name_unmatched + self.affinity_unmatched + self.unschedulable + self.not_exact
        own = sum(reason.startswith(PREFIX) for reason in self.reasons)
        return max(0, self.owner_matched - against - sum(self.taints.values()) - own)


def reasons(nodes: Iterable[NodeCounts], *, required: bool) -> tuple[str, ...]:
    """What PostFilter says behind the reasons of nodes; nothing about a pod that owns none.

    `required`: the pod has to use a Reservation, so that it owns none is said, too.
    """
    total: Counter[str] = Counter()
    taints: Counter[str] = Counter()
    node_reasons: Counter[str] = Counter()
    for node in nodes:
        total.update(
            {
                "exactly matches the requested reservation name": node.name_matched,
                "didn't match the requested reservation name": node.name_unmatched,
                "didn't match affinity rules": node.affinity_unmatched,
                "is unschedulable": node.unschedulable,
                "is not exact matched": node.not_exact,
                "matched owner total": node.owner_matched,
            }
        )
        taints.update(node.taints)
        refused = node.refused_by_node
        for reason in node.reasons:
            if refused and not reason.startswith(PREFIX):
                node_reasons[reason] += refused
    owned = total.pop("matched owner total", 0)
    if not owned and not required:
        return ()
    texts = [(text, count) for text, count in total.items() if count]
    texts += [(f"had untolerated taint {taint}", count) for taint, count in sorted(taints.items())]
    texts += [(f"for node reason that {reason}", count) for reason, count in sorted(node_reasons.items())]
    return tuple(f"{count} {PREFIX}{text}" for text, count in [*texts, ("matched owner total", owned)])


def event_text(error: str) -> str:
    """The note of the event FailedScheduling-Reservation, from all that is said about a pod that could not be placed.

    "" if that says nothing about Reservations. As upstream does, it takes a text apart at commas, so amounts in
    reasons are lost.
    """
    error = error.strip()
    start = _FIT_ERROR.match(error)
    if start is None:
        return ""
    total: int | None = None
    names: list[str] = []
    others: list[str] = []
    nodes: list[str] = []
    for part in error[start.end() :].replace(". ", ", ").split(","):
        item = part.strip(". ")
        if (found := _TOTAL.fullmatch(item)) is not None:
            total = parse_integer(found[1])
            if total is None:
                return ""
        elif _NODE_REASON.fullmatch(item):
            nodes.append(item)
        elif _NAMED.fullmatch(item):
            names.append(item)
        elif _ABOUT_RESERVATIONS.fullmatch(item):
            others.append(item)
    if total is None:
        return ""
    return f"0/{total} reservations are available: {', '.join(names + others + nodes)}."
