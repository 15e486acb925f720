"""Gauges whose values are kept elsewhere, too many to render at once: read in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.samples import Sample

from koordsched.observability.instruments import Family, LabelValues, Stability, label_text

Group = Iterable[tuple[LabelValues, float]]


class GroupedGauges(Family):
    """`read` begins a reading; each group is asked for when the one before has been written."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[Group]],
        stability: Stability = "ALPHA",
    ) -> None:
        super().__init__(name, documentation, labels, stability)
        self._read = read

    def samples(self) -> Iterable[Sample]:
        for group in self._read():
            for values, value in group:
                yield Sample(self.name, dict(zip(self.label_names, values, strict=True)), value)

    def write(self) -> Iterator[str]:
        """The text exposition, a group at a time."""
        head = f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} gauge\n"
        for group in self._read():
            lines = [
                f"{self.name}{label_text(dict(zip(self.label_names, values, strict=True)))} {value!r}\n"
                for values, value in group
            ]
            if lines:
                yield head + "".join(lines)
                head = ""
