"""What another configuration would have decided, decision by decision, on the cluster as it was.

The recorded history is followed: each pod goes where it went, so every decision is judged on the state in which it was
made, and a difference comes from that decision alone, not from an earlier difference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import msgspec

from koordsched.config import Resolved
from koordsched.journal.following import Follower
from koordsched.journal.header import setting_of
from koordsched.journal.journalreplay import JournalReplay, Limit, Moment
from koordsched.journal.records import (
    AnyRecord,
    Attempt,
    Chosen,
    Evicting,
    Header,
    Member,
    Outcome,
    Refused,
    Step,
)
from koordsched.journal.repeating import text_of
from koordsched.journal.tally import Tally
from koordsched.journal.verdict import Verdict

SAME = "same"
ELSEWHERE = "elsewhere"
PLACED = "placed"
REFUSED = "refused"
OTHER_VICTIMS = "other victims"
UNKNOWN = "not ours"


class Changed(msgspec.Struct, rename="camel"):
    """A decision that would have been another. `kind`: one of the names above."""

    at: Moment
    kind: str
    recorded: str
    instead: str


class Comparison(msgspec.Struct, rename="camel"):
    """How many decisions there would have been of each kind; those that differ."""

    tally: Tally
    kinds: dict[str, int]
    changed: list[Changed]


@dataclass(eq=False)
class ComparingReplay(JournalReplay):
    """Goes through a journal, once, asking `resolved` at every decision: without it the recorded configuration."""

    resolved: Resolved | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._follower: Follower | None = None
        self._verdict: Verdict | None = None
        self._evicting: Evicting | None = None
        self._kinds: Counter[str] = Counter()
        self._changed: list[Changed] = []

    def run(self, limit: Limit) -> Comparison:
        """Raises ConfigError or ProfileError if a configuration cannot be used."""
        while self.advance(limit):
            pass
        return Comparison(self.tally, dict(self._kinds), self._changed)

    def begin(self, header: Header) -> Follower:
        """A scheduler with the other configuration."""
        setting = setting_of(header, self.catalog)
        # Extenders were asked about the nodes that the recorded configuration accepted; answers for others are unknown.
        resolved = replace(self.resolved or setting.resolved, extenders=())
        setting = replace(setting, resolved=resolved)
        self._follower = Follower(setting, self.registry, self.clock, header)
        return self._follower

    def step(self, record: Step | Outcome) -> None:
        """Follows it, and judges what was decided."""
        follower = self._follower
        if follower is None:
            return
        if isinstance(record, Attempt | Member):
            self._verdict = follower.verdict(record.uid)
            self._evicting = None
        elif follower.decides(record):
            self._judge(record)
        follower.step(record)

    def _judge(self, record: AnyRecord) -> None:
        verdict = self._verdict
        if isinstance(record, Evicting):
            self._evicting = record
        elif not isinstance(record, Chosen | Refused):
            return
        elif verdict is None:
            self._note(UNKNOWN, record, "no profile schedules the pod")
        elif isinstance(record, Chosen):
            if record.node in verdict.nodes:
                self._kinds[SAME] += 1
            elif verdict.nodes:
                self._note(ELSEWHERE, record, f"placed on {_some(verdict.nodes)}")
            else:
                self._note(REFUSED, record, verdict.message)
        elif verdict.nodes:
            self._note(PLACED, record, f"placed on {_some(verdict.nodes)}")
        else:
            self._judge_victims(verdict, record)

    def _judge_victims(self, verdict: Verdict, refused: Refused) -> None:
        evicting = self._evicting
        if frozenset(uid for uid, _ in (evicting.victims if evicting is not None else ())) == verdict.victims:
            self._kinds[SAME] += 1
        elif verdict.victims:
            instead = f"preempts {len(verdict.victims)} pod(s) on {verdict.nominated}"
            self._note(OTHER_VICTIMS, evicting or refused, instead)
        else:
            self._note(OTHER_VICTIMS, evicting or refused, verdict.message)

    def _note(self, kind: str, record: AnyRecord, instead: str) -> None:
        self._kinds[kind] += 1
        self._changed.append(Changed(self.moment, kind, text_of(record), instead))


def _some(nodes: frozenset[str]) -> str:
    names = sorted(nodes)
    if len(names) <= 2:
        return " or ".join(names)
    return f"{names[0]} or {len(names) - 1} others"
