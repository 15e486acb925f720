"""What plugins answer: status codes, and reasons as small integers so that a verdict per node is an array."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt


class Code(IntEnum):
    """Status codes (core spec 3.1). UNRESOLVABLE is upstream's UnschedulableAndUnresolvable."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def rejects(self) -> bool:
        """Whether the pod cannot be placed for now, as opposed to an error."""
        return self in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)

    @property
    def text(self) -> str:
        """The name that metrics use."""
        return _TEXTS[self]


_TEXTS = ("Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending")
"""By code: asked for several times per cycle, where hashing an enum is slow."""


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of a plugin for a pod as a whole (or for one node, outside of filtering)."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    ok: bool = field(init=False, repr=False, compare=False)
    """Whether the code is SUCCESS: asked a dozen times per cycle, so it is worked out once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ok", self.code is Code.SUCCESS)

    @property
    def message(self) -> str:
        """All reasons, as they appear in messages."""
        return ", ".join(self.reasons)

    def of(self, plugin: str, step: str) -> Status:
        """The same as a plugin's answer at a step: errors name it, rejections are shown as they are."""
        reasons = self.reasons if self.code.rejects else (f"{step}: {self.message}",)
        return Status(self.code, reasons, plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node was refused: by which plugin, with which code, and the texts users see."""

    plugin: str
    code: Code
    texts: tuple[str, ...]


Codes = npt.NDArray[np.int32]
"""int32[rows]: 0 where the node passes, otherwise an index into a ReasonTable."""

PASS = 0
NO_NODE = 1
"""The code of a row without a node."""


class HeldReason:
    """The number of a reason, which is the reason's for as long as this object is referenced."""

    __slots__ = ("__weakref__", "_given_up", "number")

    def __init__(self, number: int, given_up: list[int]) -> None:
        self.number = number
        self._given_up = given_up

    def __del__(self) -> None:
        self._given_up.append(self.number)  # nothing else: this may run anywhere, even in a garbage collection


class ReasonTable:
    """Interns reasons. PASS stands for a node that passes, NO_NODE for a row without a node.

    There is no limit to texts with words of users (names of claims, of resources): a plugin with such verdicts holds
    their reasons for as long as the verdicts live, and the numbers are given out again afterwards.
    """

    __slots__ = ("_free", "_given_up", "_held", "_index", "_kept", "has_errors", "reasons")

    def __init__(self) -> None:
        self.has_errors = False
        """Whether any ERROR was ever interned: as long as not, no verdict has to be searched for one."""
        self.reasons: list[Reason] = [Reason("", Code.SUCCESS, ()), Reason("", Code.UNRESOLVABLE, ())]
        self._index: dict[Reason, int] = {}
        self._held: WeakValueDictionary[Reason, HeldReason] = WeakValueDictionary()
        self._kept: list[HeldReason] = []
        self._given_up: list[int] = []
        self._free: list[int] = []

    def intern(self, plugin: str, code: Code, *texts: str) -> int:
        """The number of this reason, which it has from now on for good; texts may be made up at any time."""
        reason = Reason(plugin, code, texts)
        number = self._index.get(reason)
        if number is None:
            kept = self.hold(plugin, code, *texts)
            self._kept.append(kept)
            number = self._index[reason] = kept.number
        return number

    def hold(self, plugin: str, code: Code, *texts: str) -> HeldReason:
        """The reason with its number, which is assigned when it is first seen."""
        reason = Reason(plugin, code, texts)
        held = self._held.get(reason)
        if held is None:
            while self._given_up:
                self._free.append(self._given_up.pop())
            if self._free:
                number = self._free.pop()
                self.reasons[number] = reason
            else:
                number = len(self.reasons)
                self.reasons.append(reason)
            self.has_errors |= code is Code.ERROR
            held = self._held[reason] = HeldReason(number, self._given_up)
        return held

    def counted(self, codes: Codes) -> list[tuple[int, int]]:
        """(code, number of rows) for every reason that occurs; PASS and NO_NODE are none."""
        counts = np.bincount(codes)
        return [(int(code), int(counts[code])) for code in np.flatnonzero(counts) if code > NO_NODE]

    def __getitem__(self, number: int) -> Reason:
        return self.reasons[number]
