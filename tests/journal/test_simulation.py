"""Whatever happens to a replica, its journal repeats every decision: the simulator's worlds, recorded and replayed."""

import asyncio

import pytest

from koordsched.journal.header import Setting
from koordsched.journal.records import Consulted, encode
from koordsched.scheduling.scheduler import Scheduler
from tests import depth
from tests.depth import quick_first
from tests.journal.recording import ListJournal, repeat
from tests.simulation import replica, simulation
from tests.simulation.configuration import CATALOG, PLUGINS
from tests.virtualtime import VirtualClock

CHUNKS = [(0,), *(tuple(range(first, first + 3)) for first in range(1, 150, 3))]
SECONDS_PER_SEGMENT = 20.0 if depth.quick else 7.0
"""Each segment is repeated to the end of the journal."""


def journals_of(seed, monkeypatch):
    """Runs a seed; the journals of all lives of all its replicas."""
    journals = []

    def recorded(resolved, registry, *, clock, max_unschedulable, **more):
        # Reading a clock of the simulation takes time; ours takes none, so that recording changes nothing.
        journal = ListJournal(
            Setting(resolved, max_unschedulable),
            f"{seed} {len(journals)}",
            VirtualClock(asyncio.get_running_loop(), clock.wall_offset),
            seconds_per_segment=SECONDS_PER_SEGMENT,
        )
        journals.append(journal)
        scheduler = Scheduler(
            resolved, registry, clock=clock, max_unschedulable=max_unschedulable, recorder=journal.recorder, **more
        )
        journal.attach(scheduler)
        return scheduler

    monkeypatch.setattr(replica, "Scheduler", recorded)
    outcome = simulation.run(seed)
    assert not outcome.failed, outcome.report()
    return outcome, journals


def repetitions(journal, seed):
    """What comes of a journal, from its beginning and from each of its segments on."""
    for segment in range(len(journal.segments)):
        repetition, _ = repeat(journal.records(segment), None, PLUGINS, CATALOG)
        assert repetition.divergence is None, f"seed {seed}, from segment {segment}"
        yield repetition


@pytest.mark.parametrize("seeds", quick_first(CHUNKS, 1))
def test_what_was_decided_under_faults_is_decided_again(seeds, monkeypatch):
    """From the beginning, and from the checkpoint at the beginning of every segment."""
    decisions = checkpoints = 0
    for seed in seeds:
        for journal in journals_of(seed, monkeypatch)[1]:
            for repetition in repetitions(journal, seed):
                decisions += repetition.tally.decisions
                checkpoints += repetition.tally.resumed
    assert decisions > 5 * len(seeds)
    assert checkpoints > len(seeds)


EXTENDED = [(24,), (26, 3, 15, 19, 21, 49, 60, 69, 72)]
"""Worlds with extenders that fail, answer late, and change their mind."""


@pytest.mark.parametrize("seeds", quick_first(EXTENDED, 1))
def test_what_extenders_said_is_heard_again(seeds, monkeypatch):
    consulted = decisions = 0
    for seed in seeds:
        for journal in journals_of(seed, monkeypatch)[1]:
            assert journal.records()[0].extended
            consulted += sum(isinstance(record, Consulted) for record in journal.records())
            decisions += sum(repetition.tally.decisions for repetition in repetitions(journal, seed))
    assert decisions > 50
    assert consulted > 10


GIVEN = [
    (b"resource-status", (6,)),
    (b"resource-status", (10,)),
    (b"device-allocated", (12, 22)),
    (b"resource-status", (4, 17, 26, 46, 58, 63, 68)),
    (b"device-allocated", (1, 14, 27, 47, 63, 93)),
]
"""Worlds whose nodes report CPUs and NUMA nodes, or devices, and the annotation that says what pods were given."""


@pytest.mark.parametrize("worlds", quick_first(GIVEN, 1))
def test_what_pods_were_given_is_given_again(worlds, monkeypatch):
    annotation, seeds = worlds
    given = 0
    for seed in seeds:
        for journal in journals_of(seed, monkeypatch)[1]:
            given += sum(annotation in encode(record) for record in journal.records())
            list(repetitions(journal, seed))
    assert given > 5


@pytest.mark.slow
def test_recording_changes_nothing(monkeypatch):
    unrecorded = simulation.run(4).digest
    assert journals_of(4, monkeypatch)[0].digest == unrecorded
