"""What a preemptor needs besides a node, and its victims hold: a share of a quota."""

from __future__ import annotations

from typing import Protocol

from koordsched.cluster.pod import Pod


class Holdings(Protocol):
    """The books of one hypothetical world in which all potential victims of a node are gone."""

    @property
    def suffice(self) -> bool:
        """Whether the preemptor has what it needs in the world as it is now."""

    def spare(self, pod: Pod) -> bool:
        """Whether the preemptor would still have what it needs with this one back."""

    def put_back(self, pod: Pod) -> None:
        """This one is back."""
