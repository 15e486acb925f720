"""Pods that wait for a node promised to them: most of what happens elsewhere is nothing to them.

Hundreds may wait for their victims to go, and each victim of each would wake all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hintgroups import HintGroup
from koordsched.queue.hints import HintTable, Strategy
from koordsched.queue.item import P, QueuedPod
from koordsched.queue.nominator import Nominator


def without_the_patient(
    chosen: dict[QueuedPod[P], Strategy],
    event: ClusterEvent,
    old: Any,
    new: Any,
    tables: Mapping[str, HintTable[P]],
    nominator: Nominator[P],
) -> dict[QueuedPod[P], Strategy]:
    """Of the unschedulable pods that an event concerns, those that need not wait for the node promised to them.

    A pod is patient only once it was tried since it has the promise: before, nobody was told what it waits for. Pods of
    one group are asked once, where that is enough; what remains for each is a lookup.
    """
    places = {profile: table.place(event, old, new) for profile, table in tables.items()}
    if event.is_wildcard or not any(places.values()):
        return chosen
    kept: dict[QueuedPod[P], Strategy] = {}
    of_groups: dict[HintGroup[P] | None, Strategy] = {}
    for queued, strategy in chosen.items():
        promised, place = queued.still_waits_for, places[queued.profile]
        if promised and place and promised != place and nominator.node_of(queued.pod.uid) == promised:
            group = queued.group
            known = of_groups.get(group)
            if known is None:
                table = tables[queued.profile]
                known = table.strategy(queued, event, old, new, own=False, promised=promised)
                if group is not None and table.answers_for_all(event, group.plugins):
                    of_groups[group] = known
            strategy = known
        if strategy:
            kept[queued] = strategy
    return kept
