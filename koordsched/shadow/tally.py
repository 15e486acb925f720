"""Counts of a trial, and the report that is made of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from koordsched.shadow.judgement import KINDS, Judgement

MOST_DIFFERENCES = 1_000
MOST_GROUPS = 200
MOST_TIMES = 10_000
MOST_WAITED = 1_000
"""What is kept: differences, reasons, times, and pods that waited; of all but the reasons the latest."""

OTHER_REASONS = "other reasons"


class Difference(Struct, rename="camel"):
    """A decision that would have been another. `time`: of the other scheduler's, seconds since the epoch."""

    pod: str
    time: float
    judgement: Judgement


class Waited(Struct, rename="camel"):
    """A pod for which we had a node while it waited.

    `since`: the pod's wait; `placeable`: when we first had a node, `node`, seconds since the epoch. `message`: what the
    other scheduler said of it then. `seconds`: the time from then until it was placed, on `placed`, or was gone (""):
    None while it waits.
    """

    pod: str
    since: float
    placeable: float
    node: str
    message: str
    seconds: float | None = None
    placed: str = ""


class Reason(Struct, rename="camel"):
    """Differences of one kind with one reason: how many, and the first one."""

    kind: str
    plugin: str
    reason: str
    pods: int
    example: Difference


class Times(Struct, rename="camel"):
    """Seconds: half of the times are at most `median`, 99 of 100 at most `most`; None if there were none."""

    median: float | None
    most: float | None


class Report(Struct, rename="camel"):
    """A trial so far. Times in seconds since the epoch; `nodes`, `waiting`: how many there are now.

    `kinds`: decisions by the kind of their judgement. `unseen`: pods that had a node when they were first seen.
    `deciding`: how long our decisions took; `binding`: how long pods that came during the trial waited for theirs.
    """

    scheduler: str
    began: float
    ended: float
    nodes: int
    waiting: int
    decisions: int
    kinds: dict[str, int]
    unseen: int
    deciding: Times
    binding: Times
    reasons: list[Reason]
    differences: list[Difference]
    waited: list[Waited]


class Tally:
    """The counts."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.unseen = 0
        self.waited: dict[str, Waited] = {}
        """By uid, of the pods that wait."""
        self._reasons: dict[tuple[str, str, str], Reason] = {}
        self._differences: deque[Difference] = deque(maxlen=MOST_DIFFERENCES)
        self._ended: deque[Waited] = deque(maxlen=MOST_WAITED)
        self._deciding: deque[float] = deque(maxlen=MOST_TIMES)
        self._binding: deque[float] = deque(maxlen=MOST_TIMES)

    @property
    def decisions(self) -> int:
        """How many decisions were judged."""
        return self.kinds.total()

    def judged(self, pod: str, time: float, judgement: Judgement, deciding: float, binding: float | None) -> None:
        """A decision on `namespace/name`; `deciding`, `binding` as in Report, in seconds."""
        self.kinds[judgement.kind] += 1
        self._deciding.append(deciding)
        if binding is not None:
            self._binding.append(binding)
        if judgement.agrees:
            return
        difference = Difference(pod, time, judgement)
        self._differences.append(difference)
        key = (judgement.kind, judgement.plugin, judgement.reason)
        if key not in self._reasons and len(self._reasons) >= MOST_GROUPS:
            key = (judgement.kind, "", OTHER_REASONS)
        reason = self._reasons.setdefault(key, Reason(*key, 0, difference))
        reason.pods += 1

    def ended(self, uid: str, node: str, time: float) -> None:
        """A pod does not wait any more: it is on this node, or gone ("")."""
        waited = self.waited.pop(uid, None)
        if waited is not None:
            waited.seconds, waited.placed = time - waited.placeable, node
            self._ended.append(waited)

    def report(self, scheduler: str, began: float, ended: float, nodes: int, waiting: int) -> Report:
        """All of it; the newest differences and waits first."""
        return Report(
            scheduler,
            began,
            ended,
            nodes,
            waiting,
            self.decisions,
            dict(self.kinds),
            self.unseen,
            _times(self._deciding),
            _times(self._binding),
            sorted(self._reasons.values(), key=lambda reason: -reason.pods),
            [*reversed(self._differences)],
            [*reversed(self.waited.values()), *reversed(self._ended)],
        )


def _times(times: Iterable[float]) -> Times:
    values = list(times)
    if not values:
        return Times(None, None)
    median, most = np.quantile(values, [0.5, 0.99], method="higher")
    return Times(float(median), float(most))
