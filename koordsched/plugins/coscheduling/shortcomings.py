"""What keeps groups of gangs from being tried (coscheduling spec 3.3, step 5), followed gang by gang.

A pod costs what changes by it, however many gangs its group has, and however many pods wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from koordsched.cluster.pod import Pod
from koordsched.plugins.coscheduling.gang import Gang, GangGroup
from koordsched.plugins.coscheduling.messages import listed
from koordsched.plugins.coscheduling.options import MOST_GANGS


class Shortcoming(IntEnum):
    """What a gang lacks: nothing, itself, what defines it, a list of gangs that is not too long, pods, pods that may
    be placed.
    """

    NONE = 0
    MISSING = 1
    UNDEFINED = 2
    EXCESSIVE = 3
    INCOMPLETE = 4
    STUCK = 5


_NONE_LACK = (0,) * len(Shortcoming)


def shortcoming_of(gang: Gang) -> Shortcoming:
    """What a gang lacks."""
    options = gang.options
    if options is None:
        return Shortcoming.UNDEFINED
    if options.too_many:
        return Shortcoming.EXCESSIVE
    if gang.lacks_children:
        return Shortcoming.INCOMPLETE
    if gang.stuck and len(gang.children) - len(gang.stuck) < options.min:
        return Shortcoming.STUCK
    return Shortcoming.NONE


class Shortcomings:
    """Of all gangs that there are, and of the groups that name them."""

    def __init__(self) -> None:
        self._of: dict[str, Shortcoming] = {}
        self._naming: dict[str, dict[GangGroup, None]] = {}
        self._reworded: dict[GangGroup, None] = {}
        self._telling: Iterator[Pod] = iter(())

    def follow(self, group: GangGroup) -> None:
        """There is a new group."""
        group.lacks = list(_NONE_LACK)
        for gang_id in group.named:
            group.lacks[self._of.get(gang_id, Shortcoming.MISSING)] += 1
            self._naming.setdefault(gang_id, {})[group] = None

    def forget(self, group: GangGroup) -> None:
        """The group is gone."""
        for gang_id in group.named:
            naming = self._naming[gang_id]
            del naming[group]
            if not naming:
                del self._naming[gang_id]
        self._reworded.pop(group, None)

    def assess(self, gang: Gang) -> None:
        """The gang is there, and may have changed."""
        before, now = self._of.get(gang.id, Shortcoming.MISSING), shortcoming_of(gang)
        if now is not before:
            self._of[gang.id] = now
            self._spread(gang.id, before, now)

    def gone(self, gang_id: str) -> None:
        """The gang is not there any more."""
        self._spread(gang_id, self._of.pop(gang_id), Shortcoming.MISSING)

    def _spread(self, gang_id: str, before: Shortcoming, now: Shortcoming) -> None:
        for group in self._naming.get(gang_id, ()):
            group.lacks[before] -= 1
            group.lacks[now] += 1
            group.shortcomings = None
            group.kept_out = False
            self._reworded[group] = None

    def hold(self, group: GangGroup) -> bool:
        """Whether the group is not to be tried."""
        return group.lacks[Shortcoming.NONE] < len(group.named)

    def why_not(self, group: GangGroup) -> str:
        """Why it is not, "" if it is."""
        if not self.hold(group):
            return ""
        if group.shortcomings is None:
            group.shortcomings = self._text(group)
        return group.shortcomings

    def _text(self, group: GangGroup) -> str:
        lacks = group.lacks
        parts = []
        for shortcoming, text in _PARTS:
            if lacks[shortcoming]:
                ids = [each for each in group.named if self._of.get(each, Shortcoming.MISSING) is shortcoming]
                parts.append(f"memberGangs [{listed(ids)}] {text}")
        if lacks[Shortcoming.INCOMPLETE]:
            parts.append(f"memberGangs [{listed(group.gang_ids)}] child pod not collect enough")
        if parts:
            return ", ".join(parts)
        stuck = next(each for each in group.named if self._of.get(each) is Shortcoming.STUCK)
        return f"pods of memberGangs [{stuck}] have scheduling gates, or are terminating"

    def reword(self, group: GangGroup) -> None:
        """Its pods may have been told something else, because they were in another group."""
        self._reworded[group] = None

    def reworded(self) -> Iterator[Pod]:
        """The pods of groups that lack something else than before, each once after a change.

        Those that nothing is taken of come the next time.
        """
        while True:
            yield from self._telling
            if not self._reworded:
                return
            group = next(iter(self._reworded))
            del self._reworded[group]
            if self.hold(group):
                self._telling = iter(list(group.pending()))


_PARTS = (
    (Shortcoming.MISSING, "doesn't exists"),
    (Shortcoming.UNDEFINED, "has not init"),
    (Shortcoming.EXCESSIVE, f"name more than {MOST_GANGS} gangs"),
)
