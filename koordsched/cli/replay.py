"""`koordsched replay FILE`: repeats a scheduler's decisions from its journal."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import msgspec

from koordsched import config
from koordsched.cli.explanation_table import print_explanation
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import load_config
from koordsched.cli.output import STRUCTURED, console, fail, output_option, print_structured
from koordsched.cli.replay_output import print_comparison, print_repetition, when
from koordsched.cli.target import Target, target_of
from koordsched.client.clock import SystemClock
from koordsched.framework.profile import ProfileError
from koordsched.journal.comparingreplay import ComparingReplay, Comparison
from koordsched.journal.frames import NotAJournal
from koordsched.journal.header import software
from koordsched.journal.journalreplay import Limit, last_attempt
from koordsched.journal.reading import Journal
from koordsched.journal.records import BadRecord, Header
from koordsched.journal.repeatingreplay import RepeatingReplay, Repetition
from koordsched.plugins import IN_TREE
from koordsched.scheduling.advice import Advised

DIVERGED = 3
DAMAGED = 4
"""Exit codes: a decision differs; the journal is damaged."""

_EXTENDED = "note: HTTP extenders took part. How they would respond now is unknown; only plugins are evaluated here."

_EPILOG = (
    f"Exit code: 0 every decision is the same (with --config: even if some differ), {DIVERGED} one differs, "
    f"{DAMAGED} a part of FILE is damaged or missing and the rest was replayed, 1 FILE cannot be used."
)


class _LimitType(click.ParamType[Limit]):
    """A number of decisions, or a time as in RFC 3339."""

    name = "N|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Limit:
        if isinstance(value, Limit):
            return value
        if value.isdecimal():
            return Limit(decisions=int(value))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number of decisions nor a time such as 2026-03-01T12:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} lacks a time zone: append Z or +01:00", param, ctx)
        return Limit(time=moment.timestamp())


@click.command("replay", epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until", "limit", type=_LimitType(), default=Limit(), help="Stop after N decisions, or at this time.")
@click.option(
    "--pod", metavar="[NAMESPACE/]POD|reservation/NAME", help="Explain the last decision on this pod (up to --until)."
)
@click.option("--config", "config_file", help="List what this configuration would have decided differently.")
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, help="With --pod: number of feasible nodes to show."
)
@output_option
def replay(file: Path, limit: Limit, pod: str | None, config_file: str | None, top: int, output: str) -> None:
    """Repeat every decision of FILE, a journal of `koordsched run --journal`, without an API server.

    Older segments (FILE.1 and so on) are replayed first. Every decision is compared with the recorded one; the replay
    shows the first that differs, and stops.
    """
    if pod is not None and config_file is not None:
        raise click.UsageError("--pod and --config cannot be used together")
    try:
        journal = Journal(file)
        _tell_origin(_header_of(journal), asks_plugins=pod is not None or config_file is not None)
        if pod is not None:
            _explain(journal, target_of(pod, None, "default"), limit, top, output)
        elif config_file is not None:
            _compare(journal, config_file, limit, output)
        else:
            _repeat(journal, limit, output)
    except (OSError, NotAJournal, BadRecord, InputError) as error:
        fail(error)
    except (config.ConfigError, ProfileError) as error:
        fail(f"the recorded configuration cannot be used by this version: {error}")
    if _tell_damages(journal):
        raise click.exceptions.Exit(DAMAGED)


def _header_of(journal: Journal) -> Header:
    """How the journal begins. Raises InputError if there is nothing in it."""
    header = journal.header()
    if header is None:
        problems = "; ".join(f"{damage.path}: {damage.text}" for damage in journal.damages)
        raise InputError(f"nothing can be replayed: {problems}")
    return header


def _tell_origin(header: Header, *, asks_plugins: bool) -> None:
    """Prints notes on what may cause differences."""
    here = software()
    others = [f"{name} {version}" for name, version in header.software.items() if here.get(name) != version]
    if others:
        mine = ", ".join(f"{name} {version}" for name, version in here.items())
        click.echo(f"note: recorded with {', '.join(others)}; this is {mine}", err=True)
    if header.extended and asks_plugins:
        click.echo(_EXTENDED, err=True)


def _repeat(journal: Journal, limit: Limit, output: str) -> None:
    async def work() -> Repetition:
        return RepeatingReplay(journal, IN_TREE, SystemClock()).run(limit)

    began = perf_counter()
    repetition = asyncio.run(work())
    if limit == Limit() and repetition.divergence is None and not repetition.tally.closed:
        click.echo("note: the journal is incomplete: its process was killed, or is still writing", err=True)
    _print_repetition(journal, repetition, perf_counter() - began, output)


def _print_repetition(journal: Journal, repetition: Repetition, seconds: float, output: str) -> None:
    if output in STRUCTURED:
        print_structured(_report(journal, repetition, seconds), output)
    else:
        print_repetition(console(output), repetition, seconds)
    if repetition.divergence is not None:
        raise click.exceptions.Exit(DIVERGED)


def _compare(journal: Journal, config_file: str, limit: Limit, output: str) -> None:
    resolved, warnings = load_config(config_file)
    for warning in warnings:
        click.echo(f"note: {warning}", err=True)

    async def work() -> Comparison:
        return ComparingReplay(journal, IN_TREE, SystemClock(), resolved=resolved).run(limit)

    began = perf_counter()
    comparison = asyncio.run(work())
    seconds = perf_counter() - began
    if output in STRUCTURED:
        print_structured(_report(journal, comparison, seconds), output)
    else:
        print_comparison(console(output), comparison, seconds)


def _explain(journal: Journal, target: Target, limit: Limit, top: int, output: str) -> None:
    found = last_attempt(journal, target.title, limit)
    if found is None:
        what = f"{'pod ' * target.is_pod}{target.title}"
        raise InputError(f"no decision on {what} in the journal{'' if limit == Limit() else ' up to there'}")
    moment, uid = found

    async def repeat() -> tuple[Repetition, Advised | None]:
        replay = RepeatingReplay(journal, IN_TREE, SystemClock())
        return replay.run(Limit(decisions=moment.number - 1)), replay.explain(uid)

    began = perf_counter()
    repetition, answer = asyncio.run(repeat())
    if repetition.divergence is not None:
        _print_repetition(journal, repetition, perf_counter() - began, output)
        return
    if answer is None:
        raise InputError(f"no profile of the journal schedules {target.title}")
    if output in STRUCTURED:
        print_structured({"decision": moment, **_fields(answer)}, output)
        return
    out = console(output)
    out.print(f"Decision {moment.number}, {when(moment.time)}")
    print_explanation(out, answer, answer.advice, top)


def _report(journal: Journal, result: msgspec.Struct, seconds: float) -> dict[str, Any]:
    return {
        "segments": [str(path) for path in journal.paths],
        "damages": [damage.text for damage in journal.damages],
        "seconds": round(seconds, 3),
        **_fields(result),
    }


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(struct)
    return fields


def _tell_damages(journal: Journal) -> bool:
    """Says what could not be read. Returns whether that is more than the incomplete end after a crash."""
    for damage in journal.damages:
        rest = "the part before it" if damage.truncated else "the rest"
        click.echo(f"note: {damage.path}: {damage.text}; {rest} was replayed", err=True)
    return any(not damage.truncated for damage in journal.damages)
