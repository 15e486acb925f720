"""Reads the traces: machines, tasks, and the results that were published.

Columns are those of the Alibaba cluster trace cluster-trace-gpu-v2023. Some traces have no column gpu_spec.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

NODES = "openb_node_list_gpu_node.csv"
TRACE = "openb_pod_list_{}.csv"
PUBLISHED = "published.csv"

GPU = 1000
"""Parts of GPUs are in thousandths."""


class TraceError(ValueError):
    """A file is not there, or is no such trace."""


class Machine(NamedTuple):
    """`cpu`: thousandths of a core; `memory`: MiB; `gpus`: how many, all of one model."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


class TraceTask(NamedTuple):
    """`share`: thousandths of each GPU; `models`: on which it may run, empty for any."""

    cpu: int
    memory: int
    number: int
    share: int
    models: tuple[str, ...]

    @property
    def gpu(self) -> int:
        """Thousandths of a GPU, all together."""
        return self.number * self.share


def machines(directory: Path) -> list[Machine]:
    """Those with GPUs. Raises TraceError."""
    every = (
        Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in _rows(directory / NODES)
    )
    return [machine for machine in every if machine.gpus]


def names(directory: Path) -> list[str]:
    """Of the traces that are there."""
    before, _, after = TRACE.partition("{}")
    return sorted(path.name[len(before) : -len(after)] for path in directory.glob(TRACE.format("*")))


def tasks(directory: Path, trace: str) -> list[TraceTask]:
    """In the order of the file. Raises TraceError."""
    return [
        TraceTask(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
            tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        for row in _rows(directory / TRACE.format(trace))
    ]


def published(directory: Path) -> dict[tuple[str, str], dict[int, float]]:
    """(trace, policy) -> per cent of GPUs arrived -> per cent allocated; nothing if there is no such file."""
    if not (directory / PUBLISHED).is_file():
        return {}
    prefix = "allocated_at_"
    return {
        (row["trace"], row["policy"]): {
            int(name.removeprefix(prefix)): float(value) for name, value in row.items() if name.startswith(prefix)
        }
        for row in _rows(directory / PUBLISHED)
    }


def arrivals(every: list[TraceTask], gpus: int, percent: int, rng: Random) -> list[TraceTask]:
    """The tasks in random order, then others drawn from them, until the next would exceed this percentage of `gpus`."""
    found = rng.sample(every, k=len(every))
    room = gpus * GPU * percent // 100 - sum(task.gpu for task in found)
    if room > 0 and any(task.gpu for task in every):
        while (drawn := rng.choice(every)).gpu <= room:
            found.append(drawn)
            room -= drawn.gpu
    return found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}") from error
