"""Pods that wait for the node they are nominated to: most events on other nodes do not concern them.

Hundreds may wait for their victims to terminate, and each victim of each would wake all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hintgroups import HintGroup
from koordsched.queue.hints import HintTable, Strategy
from koordsched.queue.item import P, QueuedPod
from koordsched.queue.nominator import Nominator


def drop_waiting_nominated(
    chosen: dict[QueuedPod[P], Strategy],
    event: ClusterEvent,
    old: Any,
    new: Any,
    tables: Mapping[str, HintTable[P]],
    nominator: Nominator[P],
) -> dict[QueuedPod[P], Strategy]:
    """Of the unschedulable pods that an event concerns, those that it is worth trying; the others keep waiting.

    A pod is left out only if it was tried since it was nominated: before that, it is not known which plugins reject it.
    Hints are asked once per group, where that is enough; then each pod costs a lookup.
    """
    places = {profile: table.node_of(event, old, new) for profile, table in tables.items()}
    if event.is_wildcard or not any(places.values()):
        return chosen
    kept: dict[QueuedPod[P], Strategy] = {}
    of_groups: dict[HintGroup[P] | None, Strategy] = {}
    for queued, strategy in chosen.items():
        nominated, place = queued.waits_for_node, places[queued.profile]
        if nominated and place and nominated != place and nominator.node_of(queued.pod.uid) == nominated:
            group = queued.group
            known = of_groups.get(group)
            if known is None:
                table = tables[queued.profile]
                known = table.strategy(queued, event, old, new, own=False, nominated=nominated)
                if group is not None and table.answers_for_all(event, group.plugins):
                    of_groups[group] = known
            strategy = known
        if strategy:
            kept[queued] = strategy
    return kept
