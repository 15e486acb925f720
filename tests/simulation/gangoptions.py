"""What gangs ask for, read naively from the objects (coscheduling spec 2.1 to 2.3)."""

import json
from typing import NamedTuple

LABEL = "pod-group.scheduling.sigs.k8s.io"
GANG = "gang.scheduling.koordinator.sh/"
POLICIES = ("only-waiting", "waiting-and-running", "once-satisfied")
ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED = POLICIES


class Options(NamedTuple):
    """Of one gang. `groups`: the ids of the gangs that are placed together; `waiting`: seconds."""

    min: int
    policy: str
    groups: tuple[str, ...]
    strict: bool
    waiting: float


class Defaults(NamedTuple):
    """The options of gangs that name none: match policy, and waiting time in seconds."""

    policy: str
    waiting: float


def gang_of(pod):
    """The id of a pod's gang; None for a pod of none."""
    meta = pod["metadata"]
    labels, annotations = _marks(meta)
    name = labels.get(LABEL) or labels.get(f"{LABEL}/name") or annotations.get(GANG + "name")
    return f"{meta['namespace']}/{name}" if name else None


def by_pod_group(pod):
    """Whether only a PodGroup defines the gang of this pod."""
    return bool(_marks(pod["metadata"])[0].get(LABEL))


def declared_by(pod, defaults):
    """The options by a pod of a gang; None if it does not define one."""
    labels, annotations = _marks(pod["metadata"])
    text = labels.get(f"{LABEL}/min-available") or annotations.get(GANG + "min-available", "")
    try:
        return _options(int(text), gang_of(pod), annotations, _seconds(annotations), defaults)
    except ValueError:
        return None


def defined_by(group, defaults):
    """The options by a PodGroup."""
    spec, annotations = group["spec"], _marks(group["metadata"])[1]
    waiting = spec.get("scheduleTimeoutSeconds") or 0
    return _options(spec.get("minMember", 0), id_of(group), annotations, waiting, defaults)


def id_of(group):
    """The gang id of a PodGroup."""
    return f"{group['metadata']['namespace']}/{group['metadata']['name']}"


def _options(minimum, gang_id, annotations, waiting, defaults):
    policy = annotations.get(GANG + "match-policy") or annotations.get(f"{LABEL}/match-policy")
    try:
        groups = json.loads(annotations.get(GANG + "groups") or "[]")
    except ValueError:
        groups = []
    listed = tuple(sorted(groups)) if isinstance(groups, list) else ()
    return Options(
        min=minimum,
        policy=policy if policy in POLICIES else defaults.policy,
        groups=listed or (gang_id,),
        strict=annotations.get(GANG + "mode") != "NonStrict",
        waiting=waiting if waiting > 0 else defaults.waiting,
    )


def _seconds(annotations):
    """The waiting time in the annotations of a pod; 0 without a legal one."""
    number = annotations.get(GANG + "waiting-time", "").removesuffix("s")
    return int(number) if number.isdigit() else 0


def _marks(meta):
    return meta.get("labels") or {}, meta.get("annotations") or {}
