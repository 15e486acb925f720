"""Requests to extenders and their answers, as records and back.

A request names thousands of nodes, and nearly all of them come back. So nodes are rows of the node table here, and only
the changes of an answer are recorded: the nodes that it rejects, the reasons, the scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from koordsched.extender.client import ExtenderError
from koordsched.extender.wire import MAX_MESSAGE, FilterReply, MetaVictims, clipped
from koordsched.framework.preemption import Victims
from koordsched.journal.records import Agreed, Asked, BadRecord, Consulted, Failed, Filtered, Rows, Scored
from koordsched.scheduling.recording import Question

_FEW = 24
"""A row by itself takes up to three bytes, a bit for each row of the table an eighth of one."""

_LARGEST = (1 << 63) - 1

_NAMED = 3
"""Nodes named in a difference."""


def asked(question: Question) -> Asked:
    """The request as a record."""
    nodes = _rows(question.rows, len(question.table.names))
    victims = _digest(question.victims) if question.victims is not None else b""
    return Asked(question.verb, question.extenders, nodes, victims)


def consulted(question: Question, answer: object) -> Consulted:
    """The request and its outcome: the answer to the verb, or the ExtenderError."""
    return Consulted(asked(question), _answer(question, answer))


def _answer(question: Question, answer: object) -> Failed | Filtered | Scored | Agreed:
    if isinstance(answer, ExtenderError):
        # Messages contain no more of it.
        return Failed(clipped(str(answer), MAX_MESSAGE))
    if isinstance(answer, FilterReply):
        return _filtered(question, answer)
    if isinstance(answer, Mapping):
        return _agreed(question.victims or {}, answer)
    if isinstance(answer, Sequence):
        return _scored(question, answer)
    raise TypeError(f"{type(answer).__name__} is no answer of an extender")


def answer_to(question: Question, record: Consulted) -> Any:
    """What was answered. Raises ExtenderError if nothing was, and BadRecord if this is no answer to the question."""
    try:
        return _answered(question, record.answer)
    except (IndexError, TypeError) as error:
        raise BadRecord(f"an answer of an extender that does not fit the question: {error}") from None


def _answered(question: Question, answer: Failed | Filtered | Scored | Agreed) -> Any:
    table = question.table
    match answer:
        case Failed():
            raise ExtenderError(answer.text)
        case Filtered():
            gone = set(_listed(answer.gone))
            kept = [table.names[row] for row in question.rows if row not in gone]
            said: dict[bool, dict[str, str]] = {False: {}, True: {}}
            for text, final, rows in answer.reasons:
                said[final] |= {table.names[row]: text for row in _listed(rows)}
            strangers = [answer.stranger] if answer.stranger is not None else []
            return FilterReply(kept + strangers, said[False], said[True])
        case Scored():
            names = [table.names[row] for row in question.rows]
            return [list(zip(names, scores, strict=False)) for scores in answer.scores]
        case Agreed():
            offered = list((question.victims or {}).items())
            return dict(_agreement(entry, offered) for entry in answer.candidates)


def difference(question: Question, recorded: Consulted) -> tuple[str, str]:
    """The recorded question and this one in words, with the nodes that only one of them is about."""
    before, now = recorded.asked, asked(question)
    rows_before, rows_now = set(_listed(before.nodes)), set(_listed(now.nodes))
    other = " (other victims)" if rows_before == rows_now and before.victims != now.victims else ""
    names = question.table.names
    return (
        f"{question_text(before)}{_also(names, rows_before - rows_now)}",
        f"{question_text(now)}{_also(names, rows_now - rows_before)}{other}",
    )


def question_text(question: Asked) -> str:
    """A question in words."""
    count = len(_listed(question.nodes))
    return f"asks {' and '.join(question.extenders)} to {question.verb} {count} node{'s' * (count != 1)}"


def _also(names: Sequence[str], rows: Collection[int]) -> str:
    if not rows:
        return ""
    listed = [names[row] if row < len(names) else f"row {row}" for row in sorted(rows)[:_NAMED]]
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f", among them {', '.join(listed)}{more}"


# --- answers -----------------------------------------------------------------------------------------


def _filtered(question: Question, reply: FilterReply) -> Filtered:
    names, row_of, size = question.table.names, question.table.row_of, len(question.table.names)
    kept = set(reply.kept)
    gone = [row for row in question.rows if names[row] not in kept]
    stranger = None
    if len(kept) > len(question.rows) - len(gone):
        about = {names[row] for row in question.rows}
        stranger = next(name for name in reply.kept if name not in about)
    said: dict[tuple[str, bool], list[int]] = {}
    for final, reasons in ((True, reply.unresolvable), (False, reply.failed)):
        for name, text in reasons.items():
            if (row := row_of.get(name)) is not None:
                said.setdefault((text, final), []).append(row)
    return Filtered(
        _rows(gone, size),
        stranger,
        tuple((text, final, _rows(rows, size)) for (text, final), rows in said.items()),
    )


def _scored(question: Question, answers: Sequence[Sequence[tuple[str, int]]]) -> Scored:
    names = question.table.names
    position = {names[row]: at for at, row in enumerate(question.rows)}
    return Scored(tuple(_by_position(answer, position) for answer in answers))


def _by_position(answer: Sequence[tuple[str, int]], position: Mapping[str, int]) -> tuple[int, ...]:
    """Scores of the same node are added up; far beyond what a total can be, they are cut."""
    if not answer:
        return ()
    scores = [0] * len(position)
    for node, score in answer:
        if (at := position.get(node)) is not None:
            scores[at] += score
    return tuple(max(-_LARGEST, min(_LARGEST, score)) for score in scores)


def _agreed(offered: Mapping[str, Victims], answer: Mapping[str, MetaVictims]) -> Agreed:
    position = {node: at for at, node in enumerate(offered)}

    def entry(node: str, victims: MetaVictims) -> int | tuple[str, tuple[str, ...], int]:
        if (before := offered.get(node)) is not None and _meta(before) == victims:
            return position[node]
        return node, tuple(victims.uids), victims.violations

    return Agreed(tuple(entry(node, victims) for node, victims in answer.items()))


def _agreement(
    entry: int | tuple[str, tuple[str, ...], int], offered: Sequence[tuple[str, Victims]]
) -> tuple[str, MetaVictims]:
    if isinstance(entry, int):
        node, victims = offered[entry]
        return node, _meta(victims)
    node, uids, violations = entry
    return node, MetaVictims(list(uids), violations)


def _meta(victims: Victims) -> MetaVictims:
    return MetaVictims([pod.uid for pod in victims.pods], victims.violations)


def _digest(candidates: Mapping[str, Victims]) -> bytes:
    digest = blake2b(digest_size=8)
    for node, victims in candidates.items():
        digest.update(f"{node} {victims.violations} {' '.join(pod.uid for pod in victims.pods)}\n".encode())
    return digest.digest()


# --- sets of nodes -----------------------------------------------------------------------------------


def _rows(rows: Iterable[int], size: int) -> Rows:
    """Some rows of a table of this size."""
    listed = tuple(rows)
    if _FEW * len(listed) < size:
        return tuple(sorted(listed))
    there = np.zeros(size, dtype=np.bool_)
    there[np.array(listed, dtype=np.intp)] = True
    return np.packbits(there).tobytes()


def _listed(rows: Rows) -> list[int]:
    if isinstance(rows, bytes):
        return np.flatnonzero(np.unpackbits(np.frombuffer(rows, dtype=np.uint8))).tolist()
    return list(rows)
