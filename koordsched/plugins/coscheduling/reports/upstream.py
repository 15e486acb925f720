"""Gangs as upstream's plugin shows them at its own paths (coscheduling spec 2.6)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from koordsched.cluster.pod import Pod
from koordsched.framework.declaration import NotFound
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.kinds import ONCE_SATISFIED, STRICT
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.shared.moments import moment_text

_AT_ONCE = 200
"""Gangs between two turns of the loop."""


def gang(plugin: Coscheduling, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One of them. Raises NotFound."""
    gang_id = f"{parameters['namespace']}/{parameters['name']}"
    found = plugin.cache.gangs.get(gang_id)
    if found is None:
        raise NotFound(f"cannot find gang {gang_id}")
    return summary(found)


def gangs(plugin: Coscheduling, parameters: Mapping[str, str]) -> Generator[None, None, dict[str, Any]]:
    """All of them by id."""
    found = {}
    for number, each in enumerate(list(plugin.cache.gangs.values()), 1):
        found[each.id] = summary(each)
        if number % _AT_ONCE == 0:
            yield
    return found


def summary(gang: Gang) -> dict[str, Any]:
    """One gang, as JSON values; one that nothing defines shows no group."""
    options, group = gang.options, gang.group
    return {
        "name": gang.id,
        "waitTime": int(options.timeout) if options is not None else 0,
        "createTime": moment_text(gang.created),
        "mode": options.mode if options is not None else STRICT,
        "gangMatchPolicy": options.match_policy if options is not None else ONCE_SATISFIED,
        "minRequiredNumber": options.min if options is not None else 0,
        "totalChildrenNum": options.total if options is not None else 0,
        "gangGroup": list(group.gang_ids),
        "children": _keys(gang.children.values()),
        "pendingChildren": _keys(gang.pending.values()),
        "waitingForBindChildren": _keys(gang.waiting.values()),
        "boundChildren": _keys(gang.bound.values()),
        "onceResourceSatisfied": group.satisfied,
        "gangGroupInfo": {
            "Initialized": options is not None,
            "GangGroupId": group.id if options is not None else "",
            "GangGroup": list(group.gang_ids) if options is not None else None,
            "OnceResourceSatisfied": group.satisfied,
            "WaitingGangIDs": {gang_id: {} for gang_id in sorted(group.waiting_gangs)},
            "RepresentativePodKey": group.representative_key,
            "BindingMemberPods": sorted(group.binding_members),
        },
        "gangFrom": gang.origin,
        "hasGangInit": options is not None,
    }


def _keys(pods: Iterable[Pod]) -> dict[str, dict[str, str]]:
    return {key: {} for key in sorted(pod.key for pod in pods)}
