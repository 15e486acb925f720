"""Which gang a pod belongs to, and the options of a gang: from pods, or from its PodGroup (coscheduling spec 2.1, 2.2).

An illegal value has the effect of an absent one, except for the minimum: a pod without a legal minimum does not define
a gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import orjson

from koordsched.api.selectors import parse_integer
from koordsched.config.duration import Duration
from koordsched.plugins.coscheduling.args import CoschedulingArgs
from koordsched.plugins.coscheduling.kinds import (
    GANG_NAME,
    GROUPS,
    MATCH_POLICIES,
    MATCH_POLICY,
    MATCH_POLICY_ALIAS,
    MIN_AVAILABLE,
    MODE,
    NETWORK_TOPOLOGY_SPEC,
    NON_STRICT,
    POD_GROUP,
    POD_GROUP_MIN_AVAILABLE,
    POD_GROUP_NAME,
    STRICT,
    TOTAL_NUMBER,
    WAITING_TIME,
    PodGroup,
)

FROM_POD_GROUP = "GangFromPodGroupCrd"
FROM_POD = "GangFromPodAnnotation"

MOST_GANGS = 1000
"""Gangs that are placed together at most. (Ours: the annotation has room for tens of thousands.)"""


class Membership(NamedTuple):
    """The gang of a pod. `by_pod_group`: a PodGroup defines it, and annotations of the pod do not count."""

    id: str
    by_pod_group: bool


class GangOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a gang asks for.

    `groups`: the ids of the gangs that are placed together, sorted, as given: the gang itself may be missing.
    `timeout`: how long members wait in Permit, in nanoseconds. `topology_spec`: the text of the annotation, "" if there
    is none. `too_many`: how many gangs it names, if those are more than `MOST_GANGS`: then it is in a group of its own,
    and not tried.
    """

    min: int
    total: int
    mode: str
    timeout: int
    groups: tuple[str, ...]
    match_policy: str
    topology_spec: str
    origin: str
    too_many: int = 0

    @property
    def waiting_time(self) -> float:
        """`timeout` in seconds."""
        return Duration(self.timeout).seconds

    @property
    def group_id(self) -> str:
        """The id of the group of gangs."""
        return ",".join(self.groups)

    @property
    def strict(self) -> bool:
        """Whether members that wait are rejected as soon as one cannot be placed."""
        return self.mode == STRICT


def membership(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Membership | None:
    """The gang of a pod with these labels and annotations; None for most pods."""
    by_pod_group = labels.get(POD_GROUP, "")
    name = by_pod_group or labels.get(POD_GROUP_NAME) or annotations.get(GANG_NAME)
    return Membership(f"{namespace}/{name}", bool(by_pod_group)) if name else None


def from_pod(
    gang: str, labels: Mapping[str, str], annotations: Mapping[str, str], args: CoschedulingArgs
) -> GangOptions | None:
    """The options by a pod of the gang; None if its minimum is missing or illegal, so that it does not define one."""
    given = labels.get(POD_GROUP_MIN_AVAILABLE) or annotations.get(MIN_AVAILABLE, "")
    minimum = _int32(given)
    if minimum is None:
        return None
    return _options(gang, minimum, _waiting_time(annotations.get(WAITING_TIME, "")), annotations, args, FROM_POD)


def from_pod_group(group: PodGroup, args: CoschedulingArgs) -> GangOptions:
    """The options by a PodGroup."""
    seconds = group.spec.schedule_timeout_seconds
    timeout = Duration.of(seconds) if seconds is not None and seconds > 0 else None
    return _options(group.id, group.spec.min_member, timeout, group.metadata.annotations, args, FROM_POD_GROUP)


def _options(
    gang: str,
    minimum: int,
    timeout: Duration | None,
    annotations: Mapping[str, str],
    args: CoschedulingArgs,
    origin: str,
) -> GangOptions:
    total = _int32(annotations.get(TOTAL_NUMBER, ""))
    mode = annotations.get(MODE, "")
    groups = _groups(annotations.get(GROUPS, ""))
    named = len(set(groups))
    too_many = named if named > MOST_GANGS else 0
    policy = annotations.get(MATCH_POLICY) or annotations.get(MATCH_POLICY_ALIAS, "")
    return GangOptions(
        min=minimum,
        total=max(total, minimum) if total else minimum,
        mode=NON_STRICT if mode == NON_STRICT else STRICT,
        timeout=int(args.default_timeout if timeout is None else timeout),
        groups=(gang,) if too_many or not groups else groups,
        match_policy=policy if policy in MATCH_POLICIES else args.default_match_policy,
        topology_spec=annotations.get(NETWORK_TOPOLOGY_SPEC, ""),
        origin=origin,
        too_many=too_many,
    )


def _int32(text: str) -> int | None:
    number = parse_integer(text)
    return number if number is not None and -(1 << 31) <= number < 1 << 31 else None


def _waiting_time(text: str) -> Duration | None:
    try:
        timeout = Duration.parse(text)
    except ValueError:
        return None
    return timeout if timeout > 0 else None


def _groups(text: str) -> tuple[str, ...]:
    """The ids, sorted; empty if the text is no JSON array of strings."""
    try:
        given = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return ()
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return ()
    return tuple(sorted(given))
