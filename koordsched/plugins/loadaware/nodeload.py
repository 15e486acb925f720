"""What is known of the load of one node."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.plugins.loadaware.columns import View
from koordsched.plugins.loadaware.contribution import Contribution
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.measurements import Measurement
from koordsched.plugins.loadaware.placementtimes import PlacementTimes
from koordsched.plugins.loadaware.thresholds import Thresholds


class NodeLoad:
    """What is known of one node. `added`: what pods add to the measured usage, by uid, as far as it counts."""

    __slots__ = (
        "added",
        "counts_all",
        "given",
        "latest",
        "measurement",
        "name",
        "problem",
        "row",
        "shown",
        "thresholds",
        "total",
        "young",
    )

    def __init__(self, name: str, row: int, thresholds: Thresholds, total: Vector) -> None:
        self.name = name
        self.row = row
        self.measurement: Measurement | None = None
        self.added: dict[str, Contribution] = {}
        self.counts_all = False
        """Whether pods count in more ways than by what they add to the measured usage."""
        self.young: dict[str, None] | None = None
        """The uids of pods that may count beside the measurement, and of some that do not; None if not known."""
        self.latest = 0.0
        """No other pod was placed later."""
        self.thresholds = thresholds
        self.total = total
        self.given: tuple[object, ...] = ()
        """What of the node `thresholds` and `total` were read from."""
        self.problem = ""
        """What is wrong with the node's annotations."""
        self.shown: tuple[Vector, tuple[View, View]] | None = None
        """What the columns hold, None if it has to be read there."""

    def meet(self, pod: Pod, times: PlacementTimes | None) -> None:
        """A pod came to the node, or has changed there."""
        if self.young is None or pod.uid in self.young:
            return
        is_old = times is not None and 0 < times.placed <= self.latest
        if not is_old or self.measurement is None or not self.measurement.reports(pod.key):
            self.young[pod.uid] = None
