"""The judge lets no leak pass, and the samples are read as they are written."""

from __future__ import annotations

import msgspec
import pytest

from tests.soak.judge import Outcome, judge, windows
from tests.soak.sampling import Readings, Sample, parse

REST = Readings(
    tasks=30,
    waiting={"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0},
    assumed=0,
    in_flight_events=0,
    writes={"binding": 0, "event": 0},
    events_waiting=0,
    events_dropped=0,
    relists=3,
    preemptions=5,
    loop_lag=0.01,
)
CLEAN = Outcome(idle_before=REST, idle_after=REST, unbound=[], silent=[], wrong=[])


def sample(seconds: float, memory: float, made: float, *, busy: bool = True) -> Sample:
    return Sample(
        seconds=seconds,
        busy=busy,
        memory=int(memory),
        server_memory=1,
        cpu=1.0,
        server_cpu=1.0,
        created=int(made),
        bound=int(made),
        pods=10,
        latency_median=0.0,
        latency_p99=0.0,
        **msgspec.structs.asdict(REST),
    )


def run(memory_per_second: float, rate: float = 10.0) -> list[Sample]:
    """A thousand seconds of which the first two hundred warm up, and a last sample at rest."""
    samples = [sample(t, 100_000 + 100 * min(t, 200) + memory_per_second * t, rate * t) for t in range(10, 1001, 10)]
    return [*samples, sample(1100.0, 1, rate * 1000, busy=False)]


def failed(samples: list[Sample], outcome: Outcome = CLEAN) -> list[str]:
    """The first words of the questions whose answer is no."""
    verdicts = judge(samples, outcome, warm_up=200.0, rate=10.0)
    return [" ".join(verdict.question.split()[:2]) for verdict in verdicts if not verdict.passed]


def resting(**changes: object) -> Outcome:
    return msgspec.structs.replace(CLEAN, idle_after=msgspec.structs.replace(REST, **changes))


@pytest.mark.parametrize(
    "samples, outcome, expected",
    [
        pytest.param(run(0), CLEAN, [], id="clean"),
        pytest.param(run(5), CLEAN, [], id="2.6% in 640 s"),
        pytest.param(run(12), CLEAN, ["memory is"], id="6%"),
        pytest.param(run(0), resting(tasks=31), ["no task"], id="a task"),
        pytest.param(run(0), resting(tasks=29), [], id="a task less"),
        pytest.param(run(0), resting(waiting={**REST.waiting, "backoff": 1}), ["queues are"], id="a pod in a queue"),
        pytest.param(run(0), resting(assumed=1), ["queues are"], id="an assumed pod"),
        pytest.param(run(0), resting(in_flight_events=1), ["queues are"], id="an event in flight"),
        pytest.param(run(0), resting(writes={"event": 1}), ["queues are"], id="a write"),
        pytest.param(run(0), resting(events_dropped=1), ["every binding"], id="an Event lost"),
        pytest.param(run(0), msgspec.structs.replace(CLEAN, silent=["a"] * 10), [], id="few without Event"),
        pytest.param(run(0), msgspec.structs.replace(CLEAN, silent=["a"] * 11), ["every binding"], id="no Events"),
        pytest.param(run(0), msgspec.structs.replace(CLEAN, unbound=["a"]), ["every pod"], id="not bound"),
        pytest.param(run(0), msgspec.structs.replace(CLEAN, wrong=["a"]), ["nothing was"], id="wrong"),
        pytest.param(run(0, rate=9.7), CLEAN, ["10 pods"], id="too slow"),
    ],
)
def test_verdicts(samples: list[Sample], outcome: Outcome, expected: list[str]) -> None:
    assert failed(samples, outcome) == expected


def test_windows_leave_out_warm_up_and_rest() -> None:
    found = windows(run(0), 200.0)
    assert [len(window) for window in found] == [16, 16, 16, 16, 17]
    assert (found[0][0].seconds, found[-1][-1].seconds) == (200, 1000)


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few samples"):
        judge(run(0)[:22], CLEAN, warm_up=200.0, rate=10.0)


METRICS = """
scheduler_pending_pods{queue="active"} 1.0
scheduler_pending_pods{queue="backoff"} 2.0
scheduler_pending_pods{queue="gated"} 4.0
scheduler_pending_pods{queue="unschedulable"} 3.0
scheduler_inflight_events{event="PodPopped"} 5.0
scheduler_cache_size{type="assumed_pods"} 6.0
scheduler_cache_size{type="nodes"} 5.0
scheduler_preemption_attempts_total 7.0
koordsched_write_lane_depth{lane="binding"} 8.0
koordsched_write_lane_depth{lane="event"} 9.0
koordsched_events_pending 10.0
koordsched_events_dropped_total{reason="full"} 1.0
koordsched_events_dropped_total{reason="rejected"} 2.0
koordsched_reflector_restarts_total{resource="/api/v1/pods"} 1.0
koordsched_reflector_restarts_total{resource="/api/v1/nodes"} 2.0
koordsched_event_loop_lag_seconds 0.25
"""


def test_readings() -> None:
    readings = parse(METRICS, "thread MainThread (1)\n...\n\n34 tasks\n\n2 x coroutine\n")
    assert readings == Readings(
        tasks=34,
        waiting={"active": 1, "backoff": 2, "unschedulable": 3, "gated": 4},
        assumed=6,
        in_flight_events=5,
        writes={"binding": 8, "event": 9},
        events_waiting=10,
        events_dropped=3,
        relists=3,
        preemptions=7,
        loop_lag=0.25,
    )
    assert readings.left == 1 + 2 + 3 + 4 + 5 + 6 + 8 + 9 + 10


def test_a_metric_that_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="koordsched_events_pending"):
        parse(METRICS.replace("koordsched_events_pending 10.0", ""), "34 tasks\n")
    with pytest.raises(ValueError, match="tasks"):
        parse(METRICS, "no stacks here\n")
