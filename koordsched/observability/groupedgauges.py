"""Gauges whose values are kept elsewhere, too many to render at once: read in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.samples import Sample

from koordsched.observability.instruments import Family, LabelValues, label_text

Group = Iterable[tuple[LabelValues, float]]


@dataclass(eq=False, repr=False)
class GroupedGauges(Family):
    """`read` begins a reading; each group is asked for when the one before has been written."""

    kind = "gauge"
    read: Callable[[], Iterable[Group]] = field(kw_only=True)

    def samples(self) -> Iterable[Sample]:
        for group in self.read():
            for values, value in group:
                yield Sample(self.name, dict(zip(self.label_names, values, strict=True)), value)

    def write(self) -> Iterator[str]:
        """The text exposition, a group at a time."""
        head = f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} gauge\n"
        for group in self.read():
            lines = [
                f"{self.name}{label_text(dict(zip(self.label_names, values, strict=True)))} {value!r}\n"
                for values, value in group
            ]
            if lines:
                yield head + "".join(lines)
                head = ""
