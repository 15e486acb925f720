"""What a running scheduler says about itself, and what the kernel says about it, at one moment."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

_TASKS = re.compile(r"^(\d+) tasks$", re.MULTILINE)

QUEUES = ("active", "backoff", "unschedulable", "gated")


class Sample(msgspec.Struct):
    """One moment. `seconds` since the load began; memory in KiB; CPU in seconds since the process began.

    `tasks`: of the event loop. `waiting`: pods by queue. `writes`: API writes that wait or are under way by lane.
    `created`, `bound`: pods since the beginning; `pods`: at present. Latencies, in seconds, are of the pods that were
    bound since the sample before. `busy`: pods come and go.
    """

    seconds: float
    busy: bool
    memory: int
    server_memory: int
    cpu: float
    server_cpu: float
    tasks: int
    waiting: dict[str, int]
    assumed: int
    in_flight_events: int
    writes: dict[str, int]
    events_waiting: int
    events_dropped: int
    relists: int
    preemptions: int
    loop_lag: float
    created: int
    bound: int
    pods: int
    latency_median: float
    latency_p99: float


class Readings(msgspec.Struct):
    """What the scheduler's endpoints say; fields as those of Sample."""

    tasks: int
    waiting: dict[str, int]
    assumed: int
    in_flight_events: int
    writes: dict[str, int]
    events_waiting: int
    events_dropped: int
    relists: int
    preemptions: int
    loop_lag: float

    @property
    def left(self) -> int:
        """How much is still to be done."""
        kept = self.assumed + self.in_flight_events + self.events_waiting
        return kept + sum(self.waiting.values()) + sum(self.writes.values())


def parse(exposition: str, stacks: str) -> Readings:
    """From the texts of /metrics and /debug/stacks. Raises ValueError if something is missing there."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    tasks = _TASKS.search(stacks)
    if tasks is None:
        raise ValueError("the scheduler does not show how many tasks there are")
    try:
        waiting, size = values["scheduler_pending_pods"], values["scheduler_cache_size"]
        lanes = values["koordsched_write_lane_depth"]
        return Readings(
            tasks=int(tasks[1]),
            waiting={queue: int(waiting[(queue,)]) for queue in QUEUES},
            assumed=int(size[("assumed_pods",)]),
            in_flight_events=int(sum(values.get("scheduler_inflight_events", {}).values())),
            writes={lane: int(depth) for (lane,), depth in lanes.items()},
            events_waiting=int(values["koordsched_events_pending"][()]),
            events_dropped=int(sum(values["koordsched_events_dropped_total"].values())),
            relists=int(sum(values["koordsched_reflector_restarts_total"].values())),
            preemptions=int(values["scheduler_preemption_attempts_total"][()]),
            loop_lag=values["koordsched_event_loop_lag_seconds"][()],
        )
    except KeyError as missing:
        raise ValueError(f"the scheduler does not show {missing}") from missing


class Probe:
    """Asks one scheduler."""

    def __init__(self, port: int) -> None:
        self._session = aiohttp.ClientSession(
            f"https://127.0.0.1:{port}",
            connector=aiohttp.TCPConnector(ssl=False),  # its certificate is one of its own making
            timeout=aiohttp.ClientTimeout(total=30.0),
        )

    async def read(self) -> Readings:
        """Raises aiohttp.ClientError or TimeoutError when it does not answer."""
        return parse(await self._get("/metrics"), await self._get("/debug/stacks"))

    async def close(self) -> None:
        await self._session.close()

    async def _get(self, path: str) -> str:
        async with self._session.get(path) as response:
            response.raise_for_status()
            return await response.text()


def resident(pid: int) -> int:
    """Resident memory of a process in KiB; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100
