"""The samples of a soak as one SVG: a panel each for memory, tasks, pods that wait, pods bound per second, latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from tests.soak.sampling import Sample

_WIDTH, _LEFT, _RIGHT = 860, 70, 150
_PANEL, _GAP, _TOP, _BOTTOM = 110, 34, 56, 40
_COLOURS = ("#1f6feb", "#d1242f", "#bf8700")


class Panel(NamedTuple):
    """A title, and lines with their names. A value of None leaves a gap in nothing: the point is left out."""

    title: str
    lines: Sequence[tuple[str, Callable[[Sample], float | None]]]


PANELS = (
    Panel("Resident memory, MiB", [("scheduler", lambda s: s.memory / 1024 or None)]),
    Panel("Tasks of the event loop", [("tasks", lambda s: s.tasks or None)]),
    Panel(
        "Pods that wait",
        [
            ("active, backing off", lambda s: s.waiting["active"] + s.waiting["backoff"]),
            ("unschedulable", lambda s: s.waiting["unschedulable"]),
            ("Events to write", lambda s: s.events_waiting),
        ],
    ),
    Panel("Seconds until bound", [("p99", lambda s: s.latency_p99), ("median", lambda s: s.latency_median)]),
)


def chart(title: str, samples: Sequence[Sample], marks: Sequence[float]) -> str:
    """The picture; needs no scripts. `marks`: seconds at which the server was restarted."""
    across = _WIDTH - _LEFT - _RIGHT
    end = max((sample.seconds for sample in samples), default=1.0) or 1.0
    panels = [*PANELS, Panel("Pods bound per second", [("bound", _Rate(samples))])]
    height = _TOP + len(panels) * (_PANEL + _GAP) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="16" font-weight="600" fill="#1f2328">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        top = _TOP + number * (_PANEL + _GAP)
        parts += _panel(panel, samples, top, end, across)
        parts += [
            f'<path d="M{_LEFT + mark / end * across:.1f} {top}v{_PANEL}" stroke="#57606a" stroke-dasharray="2 3"/>'
            for mark in marks
        ]
    bottom = height - _BOTTOM
    parts += [
        f'<text x="{_LEFT + share * across:.1f}" y="{bottom}" text-anchor="middle" fill="#57606a">'
        f"{share * end / 60:.3g}</text>"
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts.append(
        f'<text x="{_LEFT + across / 2}" y="{bottom + 22}" text-anchor="middle" fill="#57606a">'
        "minutes; dashed: the API server was restarted</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


class _Rate:
    """Pods bound per second between a sample and the one before."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._before = dict(zip([s.seconds for s in samples[1:]], samples, strict=False))

    def __call__(self, sample: Sample) -> float | None:
        before = self._before.get(sample.seconds)
        return (sample.bound - before.bound) / (sample.seconds - before.seconds) if before is not None else None


def _panel(panel: Panel, samples: Sequence[Sample], top: float, end: float, across: float) -> list[str]:
    lines = [
        (name, [(s.seconds, value) for s in samples if (value := read(s)) is not None]) for name, read in panel.lines
    ]
    most = max((value for _, points in lines for _, value in points), default=1.0) * 1.1 or 1.0
    parts = [f'<text x="{_LEFT}" y="{top - 6}" font-weight="600" fill="#1f2328">{escape(panel.title)}</text>']
    for share in (0, 0.5, 1):
        y = top + _PANEL * (1 - share)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{across}" stroke="#d8dee4"/>')
        label = f"{most * share:.3g}"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#57606a">{label}</text>')
    for number, (name, points) in enumerate(lines):
        path = " ".join(f"{_LEFT + at / end * across:.1f},{top + _PANEL * (1 - v / most):.1f}" for at, v in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[number]}" stroke-width="1.5"/>')
        x, y = _LEFT + across + 10, top + 14 + 18 * number
        parts.append(f'<text x="{x}" y="{y}" fill="{_COLOURS[number]}">{escape(name)}</text>')
    return parts
