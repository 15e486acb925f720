"""The annotation `koordsched.io/usage`: what a pod really uses, as a JSON object.

    {"cpu": "1500m", "memory": "2Gi"}
    {"cpu": {"mean": "2", "amplitude": "1500m", "period": "1h", "phase": "15m"}}
    {"cpu": {"from": "500m", "to": "4", "after": "5m"}}
    {"trace": "web.txt", "repeat": "24h"}

Each resource is always the same, a sine of the wall clock (pods of the same period and phase peak together), or a step
some time after the containers started; a trace (traces.py) begins with the containers. A resource that is not named is
used as the trace says, or else by default: a share of the request. No pod uses more than its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from koordsched.fakecluster.hollow.amounts import amount
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.curves import Constant, Curve, Sine, Step, Steps, Usage
from koordsched.fakecluster.hollow.duration import parse_duration
from koordsched.fakecluster.hollow.traces import Traces

USAGE = "koordsched.io/usage"
"""Of pods as above; of nodes, as in node templates."""
_LONGEST_TEXT = 4096
HIGHEST_PERCENT = 1000
_LEAST_INTERVAL, _LONGEST_INTERVAL = 30, 86400
"""Seconds; koordlet's floor, and a day."""
_LEAST_HISTORY, _LONGEST_HISTORY = 15, 7200
"""Seconds: the time between two samples, and that for which they are kept."""


class _Sine(msgspec.Struct, forbid_unknown_fields=True):
    mean: Any
    amplitude: Any
    period: str
    phase: str = "0s"


class _Step(msgspec.Struct, forbid_unknown_fields=True, rename={"first": "from"}):
    first: Any
    to: Any
    after: str


def _curve(resource: str, value: Any) -> Curve:
    try:
        if not isinstance(value, Mapping):
            return Constant(amount(resource, value))
        if "from" in value:
            step = msgspec.convert(value, _Step)
            return Step(amount(resource, step.first), amount(resource, step.to), _seconds("after", step.after))
        sine = msgspec.convert(value, _Sine)
        period = _seconds("period", sine.period)
        if period <= 0:
            raise ValueError("period: must be longer than 0s")
        mean, amplitude = amount(resource, sine.mean), amount(resource, sine.amplitude)
        return Sine(mean, amplitude, period, _seconds("phase", sine.phase))
    except ValueError as error:
        raise ValueError(f"{resource}: {error}") from None


def _seconds(field: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


class UsageText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The annotation of a pod, and `system` of a node's. Raises ValueError when it makes no sense."""

    cpu: Any = None
    memory: Any = None
    trace: str = ""
    repeat: str = "0s"

    def __post_init__(self) -> None:
        if _seconds("repeat", self.repeat) and not self.trace:
            raise ValueError("repeat: only a trace can be repeated")
        for resource, value in (("cpu", self.cpu), ("memory", self.memory)):
            if value is not None:
                _curve(resource, value)

    def usage(self, otherwise: Usage, traces: Traces) -> Usage:
        """The curves, those of `otherwise` for what is not stated. Raises ValueError when the trace cannot be read."""
        if self.trace:
            ages, cpu, memory = traces.load(self.trace)
            repeat = _seconds("repeat", self.repeat)
            otherwise = Usage(Steps(ages, cpu, repeat), Steps(ages, memory, repeat))
        return Usage(
            otherwise.cpu if self.cpu is None else _curve("cpu", self.cpu),
            otherwise.memory if self.memory is None else _curve("memory", self.memory),
        )


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What pods use that state nothing, in percent of what they request. Raises ValueError when out of bounds."""

    cpu: float = 60
    memory: float = 80

    def __post_init__(self) -> None:
        if not (0 <= self.cpu <= HIGHEST_PERCENT and 0 <= self.memory <= HIGHEST_PERCENT):
            raise ValueError(f"share: percentages are from 0 to {HIGHEST_PERCENT}")

    def of(self, cpu: float, memory: float) -> Usage:
        """The usage of a pod that requests these amounts."""
        return Usage(Constant(cpu * self.cpu / 100), Constant(memory * self.memory / 100))


class NodeUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """The annotation of a node, and `usage` of node templates. Raises ValueError when it makes no sense."""

    system: UsageText = UsageText()
    """The usage of everything but pods."""
    share: Share | None = None
    """Of the pods of this node; None for the cluster's."""
    report_interval: str = ""
    """`spec.metricCollectPolicy.reportIntervalSeconds` of the NodeMetric that is made for the node, as a duration."""
    history: str = ""
    """For how long the node is taken to have been measured when it appears, as a duration: it can report at once."""

    def __post_init__(self) -> None:
        if self.report_interval:
            seconds = _seconds("reportInterval", self.report_interval)
            if not _LEAST_INTERVAL <= seconds <= _LONGEST_INTERVAL:
                raise ValueError(f"reportInterval: {self.report_interval!r} is not from 30s to 24h")
        if self.history and not _LEAST_HISTORY <= _seconds("history", self.history) <= _LONGEST_HISTORY:
            raise ValueError(f"history: {self.history!r} is not from 15s to 2h")

    def interval_seconds(self) -> int | None:
        """The interval in whole seconds, None if it is not stated."""
        return round(parse_duration(self.report_interval)) if self.report_interval else None

    def history_seconds(self) -> float:
        """The history in seconds, 0 for none."""
        return parse_duration(self.history) if self.history else 0.0


@lru_cache(maxsize=4096)
def read_usage(text: str) -> UsageText:
    """Reads a pod's annotation. Raises ValueError with what is wrong."""
    return decode_text(text, UsageText, _LONGEST_TEXT)


@lru_cache(maxsize=4096)
def read_node_usage(text: str) -> NodeUsage:
    """Reads a node's annotation. Raises ValueError with what is wrong."""
    return decode_text(text, NodeUsage, _LONGEST_TEXT)
