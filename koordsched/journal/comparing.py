"""What another configuration would have decided, decision by decision, on the cluster as it was.

History is followed as it was recorded: each pod goes where it went, so that every decision is judged on the state in
which it was made, and a difference is one of this decision alone, not of all that a first difference would have led to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from koordsched.config.resolving import Resolved
from koordsched.framework.profile import PluginFactory
from koordsched.journal.course import Limit, Moment
from koordsched.journal.following import Follower
from koordsched.journal.header import setting_of
from koordsched.journal.reading import Stream
from koordsched.journal.records import (
    Answer,
    AnyRecord,
    Attempt,
    Chosen,
    Closed,
    Evicting,
    Header,
    Refused,
)
from koordsched.journal.repeating import text_of
from koordsched.journal.tally import Counting, Tally
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
    """How many decisions would have been which; those that differ."""

    tally: Tally
    kinds: dict[str, int]
    changed: list[Changed]


class Consideration:
    """Goes through a journal, once, asking `resolved` at every decision. To be used where an event loop runs.

    Without `resolved`, the recorded configuration is asked: where extenders took part, their word was the last.
    """

    def __init__(
        self, records: Iterable[AnyRecord], registry: Mapping[str, PluginFactory], resolved: Resolved | None
    ) -> None:
        self._counting = Counting()
        self._stream = Stream(records, self._counting.count)
        self._registry = registry
        self._resolved = replace(resolved, extenders=()) if resolved is not None else None
        self._world: Follower | None = None
        self._moment = Moment(0, "", 0.0)
        self._verdict: Verdict | None = None
        self._evicting: Evicting | None = None
        self._kinds: Counter[str] = Counter()
        self._changed: list[Changed] = []

    def run(self, limit: Limit) -> Comparison:
        """Raises ConfigError or ProfileError if a configuration cannot be used."""
        stream = self._stream
        while (record := stream.peek()) is not None and not limit.reached(record, self._counting):
            stream.take()
            self._step(record)
        return Comparison(self._counting.tally, dict(self._kinds), self._changed)

    def _step(self, record: AnyRecord) -> None:
        if isinstance(record, Header):
            if self._world is None or not record.continues:
                self._begin(record)
            return
        world = self._world
        if world is None or isinstance(record, Closed | Answer):
            return
        if isinstance(record, Attempt):
            self._moment = Moment(self._counting.tally.decisions, record.pod, self._counting.wall(record.at))
            self._verdict = world.verdict(record.uid)
            self._evicting = None
        elif world.deciding:
            self._judge(record)
        world.step(record)

    def _begin(self, header: Header) -> None:
        setting = setting_of(header)
        if self._resolved is not None:
            setting = replace(setting, resolved=self._resolved)
        self._world = Follower(setting, self._registry, header)

    def _judge(self, record: AnyRecord) -> None:
        verdict = self._verdict
        if isinstance(record, Evicting):
            self._evicting = record
        elif not isinstance(record, Chosen | Refused):
            return
        elif verdict is None:
            self._note(UNKNOWN, record, "none of its profiles is the pod's")
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
        self._changed.append(Changed(self._moment, kind, text_of(record), instead))


def _some(nodes: frozenset[str]) -> str:
    names = sorted(nodes)
    return names[0] if len(names) == 1 else f"{names[0]} or {len(names) - 1} others"
