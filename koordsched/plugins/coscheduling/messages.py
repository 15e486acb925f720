"""The texts of the plugin, as upstream has them (coscheduling spec 3.3 to 3.9)."""

from __future__ import annotations

from collections.abc import Sequence

from koordsched.cluster.pod import Pod
from koordsched.plugins.coscheduling.gang import Gang, GangGroup

ALL_ATTEMPTED = "all pending pods is already been attempted"
NOT_FOUND = "Gang not found"


_MOST_LISTED = 1000
"""Characters of a list of gangs that texts show. (Ours: upstream shows all.)"""


def listed(gang_ids: Sequence[str], between: str = " ") -> str:
    """The gangs, or the first of many, and how many more there are."""
    length = 0
    for number, gang_id in enumerate(gang_ids):
        length += len(gang_id) + len(between)
        if length > _MOST_LISTED:
            shown = between.join(gang_ids[:number]) or gang_id[:_MOST_LISTED] + "…"
            left = len(gang_ids) - max(number, 1)
            return f"{shown} and {left} more" if left else shown
    return between.join(gang_ids)


def group_id(group: GangGroup) -> str:
    """The id of the group, which is the list of its gangs."""
    return listed(group.gang_ids, ",")


def unknown(gang_id: str, pod: Pod) -> str:
    """The gang is not known."""
    return f"can't find gang, gangName: {gang_id}, podName: {pod.key}"


def undefined(gang: Gang, pod: Pod) -> str:
    """Nothing defines the gang."""
    return f"gang has not init, gangName: {gang.id}, podName: {pod.key}"


def basic_check(group: GangGroup, problem: str, gang: Gang, pod: Pod) -> str:
    """The group cannot be tried."""
    return f"gangGroup [{listed(group.gang_ids)}] basic check: {problem}, current gang: {gang.id}, podName: {pod.key}"


def not_attempted(group: GangGroup) -> str:
    """The group is being placed, and the turn of this pod has not come."""
    return f"gangGroup {group_id(group)} is scheduling and this pod has not been attempted"


def not_pending(pod: Pod) -> str:
    """The pod waits for no node."""
    return f"pod {pod.key} is not exists in gangCache"


def represented(group: GangGroup, key: str) -> str:
    """Another pod is in the queue for the group: the one of this key."""
    return f"representative pod {key} of gangGroupID {group_id(group)} already exists"


def rejected(group: GangGroup, pod: Pod, reason: str, waiting: int) -> str:
    """A member has no place. `waiting`: how many members had one."""
    return (
        f'GangGroup "{group_id(group)}" gets rejected due to member Pod "{pod.key}" is unschedulable with reason '
        f"{go_quoted(reason)}, alreadyWaitForBound: {waiting}"
    )


def evicted_in_vain(group: GangGroup) -> str:
    """No pods are evicted for single members now. (Ours.)"""
    return f'pods have been evicted in vain for members of GangGroup "{group_id(group)}": none is for a while'


def rejected_in_unreserve(gang: Gang, pod: Pod) -> str:
    """A member that had a place has lost it."""
    return f'Gang "{gang.id}" gets rejected due to Pod "{pod.name}" in Unreserve'


_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}


def go_quoted(text: str) -> str:
    """The text as Go's `%q` prints it."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    escaped = _ESCAPES.get(character)
    if escaped is not None:
        return escaped
    if character.isprintable():
        return character
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
