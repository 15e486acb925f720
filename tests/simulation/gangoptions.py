"""What gangs ask for, read naively from the objects (coscheduling spec 2.1, 2.2)."""

import json
from typing import NamedTuple

LABEL = "pod-group.scheduling.sigs.k8s.io"
GANG = "gang.scheduling.koordinator.sh/"
POLICIES = ("only-waiting", "waiting-and-running", "once-satisfied")
ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED = POLICIES


class Options(NamedTuple):
    """Of one gang. `groups`: the ids of the gangs that are placed together."""

    min: int
    policy: str
    groups: tuple[str, ...]


def gang_of(pod):
    """The id of a pod's gang; None for a pod of none."""
    meta = pod["metadata"]
    labels, annotations = _marks(meta)
    name = labels.get(LABEL) or labels.get(f"{LABEL}/name") or annotations.get(GANG + "name")
    return f"{meta['namespace']}/{name}" if name else None


def by_pod_group(pod):
    """Whether only a PodGroup defines the gang of this pod."""
    return bool(_marks(pod["metadata"])[0].get(LABEL))


def declared_by(pod, default_policy):
    """The options by a pod of a gang; None if it does not define one."""
    labels, annotations = _marks(pod["metadata"])
    text = labels.get(f"{LABEL}/min-available") or annotations.get(GANG + "min-available", "")
    try:
        return _options(int(text), gang_of(pod), annotations, default_policy)
    except ValueError:
        return None


def defined_by(group, default_policy):
    """The options by a PodGroup."""
    return _options(group["spec"].get("minMember", 0), id_of(group), _marks(group["metadata"])[1], default_policy)


def id_of(group):
    """The gang id of a PodGroup."""
    return f"{group['metadata']['namespace']}/{group['metadata']['name']}"


def _options(minimum, gang_id, annotations, default_policy):
    policy = annotations.get(GANG + "match-policy") or annotations.get(f"{LABEL}/match-policy")
    try:
        groups = json.loads(annotations.get(GANG + "groups") or "[]")
    except ValueError:
        groups = []
    listed = tuple(sorted(groups)) if isinstance(groups, list) else ()
    return Options(minimum, policy if policy in POLICIES else default_policy, listed or (gang_id,))


def _marks(meta):
    return meta.get("labels") or {}, meta.get("annotations") or {}
