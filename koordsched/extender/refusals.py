"""The reasons of extenders for the nodes they refuse, merged per node as upstream does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordsched.cluster.changelog import RowArray
from koordsched.extender.transientreasons import TransientReasons
from koordsched.extender.wire import FilterReply
from koordsched.framework.status import NO_NODE, PASS, Code, Codes, ReasonTable
from koordsched.scheduling.decisions import EXTENDER


@dataclass(slots=True)
class _Said:
    """`unresolvable`: an extender called the refusal final; `texts`: in the order they were said."""

    unresolvable: bool = False
    texts: list[str] = field(default_factory=list)


class Refusals:
    """By row, what was said. Nodes may be named that were not asked about; what is said adds to what is known.

    Source: upstream `schedule_one.go`, findNodesThatPassExtenders.
    """

    def __init__(self) -> None:
        self._said: dict[int, _Said] = {}

    def add(self, reply: FilterReply, row_of: Mapping[str, int]) -> None:
        """One extender's answer. A node in both maps counts as unresolvable; names of no node are passed over."""
        for name, text in reply.unresolvable.items():
            if (row := row_of.get(name)) is not None:
                said = self._said.setdefault(row, _Said())
                said.unresolvable = True
                said.texts.append(text)
        for name, text in reply.failed.items():
            if name not in reply.unresolvable and (row := row_of.get(name)) is not None:
                self._said.setdefault(row, _Said()).texts.append(text)

    def write(self, codes: Codes, refused: RowArray, table: ReasonTable, reasons: TransientReasons) -> None:
        """Puts the reasons into `codes`; `refused`: the feasible rows that did not come back from the extenders.

        One that no extender gave a reason for gets an unresolvable refusal without a text.
        """
        for row in refused.tolist():
            said = self._said.get(row)
            if said is None:
                codes[row] = reasons.intern(EXTENDER, Code.UNRESOLVABLE)
            else:
                code = Code.UNRESOLVABLE if said.unresolvable else Code.UNSCHEDULABLE
                codes[row] = reasons.intern(EXTENDER, code, *said.texts)
        for row, said in self._said.items():
            number = int(codes[row])
            before = table[number]
            if number in (PASS, NO_NODE) or before.plugin == EXTENDER:
                continue
            code = Code.UNRESOLVABLE if said.unresolvable else before.code
            codes[row] = reasons.intern(before.plugin, code, *before.texts, *said.texts)
