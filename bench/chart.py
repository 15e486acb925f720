"""Charts as SVG: amounts over time, one line per scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

Line = tuple[str, Sequence[tuple[float, float]]]
"""A name, and its points (time, amount), in the order of time."""

_WIDTH, _HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 230, 46, 48
_COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#bf8700", "#8250df", "#57606a", "#0a7ea4", "#bc4c00")


def over_time(title: str, lines: Sequence[Line], unit: str = "seconds") -> str:
    """The chart; it needs no scripts and no fonts beyond what every viewer has. `unit` is that of the times."""
    latest = max((points[-1][0] for _, points in lines if points), default=1.0) or 1.0
    most = max((amount for _, points in lines for _, amount in points), default=1)
    x_step, y_step = _step(latest), max(1.0, _step(most))
    x_end, y_end = ceil(latest / x_step) * x_step, ceil(most / y_step) * y_step
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return round(_LEFT + value / x_end * across, 1)

    def y(value: float) -> float:
        return round(_TOP + (1 - value / y_end) * down, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="26" font-size="16" font-weight="600" fill="#1f2328">{escape(title)}</text>',
    ]
    parts += [
        f'<text x="{x(at)}" y="{_HEIGHT - 26}" text-anchor="middle" fill="#57606a">{at:g}</text>'
        for at in _ticks(x_end, x_step)
    ]
    for at in _ticks(y_end, y_step):
        parts.append(f'<path d="M{_LEFT} {y(at)}H{_LEFT + across}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(at) + 4}" text-anchor="end" fill="#57606a">{at:,.0f}</text>')
    parts.append(f'<text x="{_LEFT + across / 2}" y="{_HEIGHT - 8}" text-anchor="middle" fill="#57606a">{unit}</text>')
    for number, (name, points) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(at)},{y(amount)}" for at, amount in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row = _TOP + 14 + number * 22
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 16}" y="{row - 9}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 36}" y="{row - 2}" fill="#1f2328">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _step(span: float) -> float:
    """The distance of about five round tick marks."""
    rough = span / 5
    magnitude: float = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    return next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough)


def _ticks(end: float, step: float) -> list[float]:
    return [number * step for number in range(round(end / step) + 1)]
