"""Gangs, in a line each, and one of them with its members, as values."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import msgspec

from koordsched.cluster.pod import Pod
from koordsched.framework.declaration import NotFound, finished
from koordsched.plugins.coscheduling.cache import GangCache
from koordsched.plugins.coscheduling.gang import Gang
from koordsched.plugins.coscheduling.kinds import POD_GROUP
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.topology.picture import TopologyPicture
from koordsched.plugins.shared.moments import moment_text

_AT_ONCE = 200
"""Gangs between two turns of the loop."""

UNDEFINED, INCOMPLETE, PENDING, PLACED, BOUND = "Undefined", "Incomplete", "Pending", "Placed", "Bound"
"""States of a gang: nothing says what it asks for; pods are missing; it waits for room; its members are being bound; as
many as it asks for are bound."""


class GangLine(msgspec.Struct, rename="camel"):
    """One gang. `group`: the ids of all gangs that are placed together. `problem`: why it is not tried, "" if it is."""

    gang: str
    state: str
    minimum: int
    members: int
    pending: int
    placed: int
    bound: int
    mode: str
    match_policy: str
    group: list[str]
    origin: str
    created: str
    problem: str = ""


class MemberReport(msgspec.Struct, rename="camel"):
    """A member. `node`: where it is, or is placed. `reason`: what its condition says while it is pending."""

    pod: str
    state: str
    node: str
    reason: str = ""


class GangReport(msgspec.Struct, rename="camel"):
    """One gang, the others that are placed with it, and its members.

    `waits_for`: seconds that members with a node wait for the others. `satisfied`: a pod of the group was bound, from
    when on others follow one by one if the match policy says so. `network`: what the network has to offer the pending
    members of a gang that asks to be gathered.
    """

    gang: GangLine
    others: list[GangLine]
    members: list[MemberReport]
    total: int
    waits_for: float
    satisfied: bool
    topology_spec: str = ""
    network: TopologyPicture | None = None


class Overview(msgspec.Struct, rename="camel"):
    """All gangs, by id."""

    gangs: list[GangLine]


def overviewing(plugin: Coscheduling) -> Generator[None, None, Overview]:
    """All of them."""
    lines = []
    for number, gang in enumerate(list(plugin.cache.gangs.values()), 1):
        lines.append(_line(gang, plugin.cache))
        if number % _AT_ONCE == 0:
            yield
    return Overview(sorted(lines, key=lambda line: line.gang))


def overview(plugin: Coscheduling) -> Overview:
    """The same at once."""
    return finished(overviewing(plugin))


def report_on(plugin: Coscheduling, name: str) -> GangReport:
    """One of them, by `namespace/name`. Raises NotFound."""
    cache = plugin.cache
    gang = cache.gangs.get(name)
    if gang is None:
        hint = "" if "/" in name else "; a gang is named NAMESPACE/NAME"
        raise NotFound(f"cannot find gang {name}{hint}")
    options = gang.options
    others = [cache.gangs.get(gang_id) for gang_id in gang.group.gang_ids if gang_id != gang.id]
    return GangReport(
        gang=_line(gang, cache),
        others=[_line(other, cache) for other in others if other is not None],
        members=list(_members(gang)),
        total=options.total if options is not None else 0,
        waits_for=options.waiting_time if options is not None else 0.0,
        satisfied=gang.group.satisfied,
        topology_spec=options.topology_spec if options is not None else "",
        network=plugin.network_of(gang) if not cache.why_not(gang.group) else None,
    )


def state_of(gang: Gang, cache: GangCache) -> str:
    """The state of a gang."""
    return _state(gang, _is_held(gang, cache))


def _line(gang: Gang, cache: GangCache) -> GangLine:
    options = gang.options
    problem = _problem(gang, cache)
    return GangLine(
        gang=gang.id,
        state=_state(gang, bool(problem)),
        minimum=options.min if options is not None else 0,
        members=len(gang.children),
        pending=len(gang.pending),
        placed=len(gang.waiting),
        bound=len(gang.bound),
        mode=options.mode if options is not None else "",
        match_policy=options.match_policy if options is not None else "",
        group=list(gang.group.gang_ids),
        origin=gang.origin if options is not None else "",
        created=moment_text(gang.created),
        problem=problem,
    )


def _state(gang: Gang, held: bool) -> str:
    if gang.options is None:
        return UNDEFINED
    if gang.bound and len(gang.bound) >= gang.options.min:
        return BOUND
    if gang.waiting:
        return PLACED
    return INCOMPLETE if held or gang.lacks_children else PENDING


def _problem(gang: Gang, cache: GangCache) -> str:
    if gang.options is None:
        by_pod_group = any(pod.labels.labels.get(POD_GROUP) for pod in gang.children.values())
        return "there is no PodGroup of this name" if by_pod_group else "no pod has a legal min-available"
    return cache.why_not(gang.group) if _is_held(gang, cache) else ""


def _is_held(gang: Gang, cache: GangCache) -> bool:
    return bool(gang.pending) and not gang.group.admits_singly(gang) and cache.shortcomings.hold(gang.group)


def _members(gang: Gang) -> Iterator[MemberReport]:
    for state, pods in (("Bound", gang.bound), ("Placed", gang.waiting), ("Pending", gang.pending)):
        for pod in sorted(pods.values(), key=lambda pod: pod.key):
            yield MemberReport(pod.key, state, pod.node, _reason(pod) if state == "Pending" else "")


def _reason(pod: Pod) -> str:
    if pod.wire is None:
        return ""
    condition = pod.wire.status.condition("PodScheduled")
    return condition.message if condition is not None and condition.status != "True" else ""
