"""Pods that wait for the node they are nominated to.

Most events on other nodes do not concern them: hundreds may wait for their victims to terminate, and each victim of
each would wake all of them. Events on that node may concern them also where nothing else would wake them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from koordsched.cluster.events import ClusterEvent
from koordsched.queue.hintgroups import HintGroup
from koordsched.queue.hints import HintTable, Strategy
from koordsched.queue.item import P, Place, QueuedPod
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


def concerned_nominated(
    event: ClusterEvent,
    old: Any,
    new: Any,
    tables: Mapping[str, HintTable[P]],
    nominator: Nominator[P],
    find: Callable[[P], QueuedPod[P] | None],
) -> dict[QueuedPod[P], Strategy]:
    """The unschedulable pods, gated ones included, that are nominated to the node of an event, and for which that is
    worth an attempt; see `hints.NominatedTo`. `find`: the pod in the queue.
    """
    concerned: dict[QueuedPod[P], Strategy] = {}
    for profile, table in tables.items():
        for registration, node in table.for_nominated(event, old, new):
            nodes = (node,) if node is not None else tuple(nominator.nodes_with_nominated())
            for pod in (pod for each in nodes for pod in nominator.nominated_on(each)):
                queued = find(pod)
                if (
                    queued is not None
                    and queued.profile == profile
                    and queued.place in (Place.UNSCHEDULABLE, Place.GATED)
                    and registration.plugin in queued.unschedulable_plugins
                    and table.answer(registration, event, queued.pod, old, new)
                ):
                    concerned[queued] = Strategy.AFTER_BACKOFF
    return concerned
