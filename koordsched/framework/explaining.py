"""What plugins may add to explanations of their verdicts."""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.framework.interface import CycleState, Plugin


class ExplainsRefusals(Plugin):
    """Can say more about why it rejected a pod before any node was looked at than fits a message."""

    @abstractmethod
    def explain_refusal(self, pod: Pod) -> msgspec.Struct | None:
        """The details, for users; None if the plugin does not reject the pod now. Changes nothing."""


class ExplainsNodes(Plugin):
    """Can say more about a node than that it refuses it, or what it scores."""

    @abstractmethod
    def explain_nodes(self, shape: PodShape, rows: RowArray) -> list[list[str]]:
        """For each row the numbers that decide, in lines of text. Changes nothing."""

    @abstractmethod
    def remedy(self, shape: PodShape, row: int) -> str:
        """What would have to change on a node that it refuses. Changes nothing."""


class ExplainsVerdicts(Plugin):
    """As ExplainsNodes, where verdicts depend on more than the pod's shape."""

    @abstractmethod
    def explain_verdicts(self, cycle: CycleState, rows: RowArray) -> list[list[str]]:
        """For each row the numbers that decide about the pod of a cycle whose nodes were filtered, in lines of text.
        Changes nothing but the state of the cycle.
        """

    @abstractmethod
    def remedy_of(self, cycle: CycleState, row: int) -> str:
        """What would have to change on a node that it refuses. Changes nothing but the state of the cycle."""

    @abstractmethod
    def nearest(self, cycle: CycleState, rows: RowArray) -> int:
        """The position among rows that it refuses of the one that takes least to let the pod in. Changes nothing but
        the state of the cycle.
        """

    @abstractmethod
    def waits_for(self, cycle: CycleState, row: int) -> str:
        """What time alone may bring on a node that it refuses, "" if nothing can. Changes nothing but the state of the
        cycle.
        """


class ExplainsPods(Plugin):
    """Can say something about a pod that holds whatever the node, but is no refusal."""

    @abstractmethod
    def explain_pod(self, cycle: CycleState) -> list[str]:
        """Lines of text about the pod of a cycle whose nodes were filtered. Changes nothing."""
