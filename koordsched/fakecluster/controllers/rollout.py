"""How large each ReplicaSet of a Deployment should be at this moment: arithmetic without writes.

Source of the rules: kube-controller-manager `pkg/controller/deployment` (rolling.go, sync.go, util/deployment_util.go).
"""

from __future__ import annotations

from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.percentages import scaled_value

REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


def revision_of(replica_set: Object) -> int:
    """The revision annotation, 0 when it is missing or not a number."""
    return _annotated_number(replica_set, REVISION, 0)


def rollout_strategy(deployment: Object) -> str:
    """`RollingUpdate` or `Recreate`."""
    return str((deployment["spec"].get("strategy") or {}).get("type") or "RollingUpdate")


class Rollout:
    """A Deployment, the ReplicaSet of its current template (if made) and those of earlier ones, oldest first."""

    def __init__(self, deployment: Object, new: Object | None, old: list[Object]) -> None:
        self.deployment = deployment
        self.new = new
        self.old = old
        spec = deployment["spec"]
        self.desired: int = spec.get("replicas", 1)
        self.rolling = rollout_strategy(deployment) == "RollingUpdate"
        self.max_surge = self.max_unavailable = 0
        if self.rolling:
            bounds = (spec.get("strategy") or {}).get("rollingUpdate") or {}
            self.max_surge = scaled_value(bounds.get("maxSurge", "25%"), self.desired, round_up=True)
            self.max_unavailable = scaled_value(bounds.get("maxUnavailable", "25%"), self.desired, round_up=False)
            if self.max_surge == 0 and self.max_unavailable == 0:
                # Percentages of few replicas may both come to nothing; the rollout must still be able to move.
                self.max_unavailable = 1
            self.max_unavailable = min(self.max_unavailable, self.desired)

    def sets(self) -> list[Object]:
        """Every ReplicaSet, the current one last."""
        return [*self.old, self.new] if self.new is not None else list(self.old)

    def revision(self) -> int:
        """The revision of the current template: above all others', so that a rollback gets a new number."""
        others = max((revision_of(entry) for entry in self.old), default=0)
        return max(others + 1, revision_of(self.new) if self.new is not None else 0)

    def was_scaled(self) -> bool:
        """Whether `spec.replicas` changed since the sizes were last worked out."""
        active = (entry for entry in self.sets() if size_of(entry))
        return any(_annotated_number(entry, DESIRED, self.desired) != self.desired for entry in active)

    def initial_size(self) -> int:
        """The size to create the current ReplicaSet with."""
        total = sum(map(size_of, self.old))
        if self.rolling:
            return max(0, min(self.desired, self.desired + self.max_surge - total))
        return 0 if total or any(actual_size(entry) for entry in self.old) else self.desired

    def complete(self) -> bool:
        """Whether all wanted pods are of the current template and available, and no others are left."""
        return (
            self.new is not None
            and actual_size(self.new) == self.desired == sum(map(actual_size, self.sets()))
            and available_in(self.new) == self.desired
            and size_of(self.new) == self.desired
        )


def size_of(replica_set: Object) -> int:
    """The wanted number of pods."""
    size: int = replica_set["spec"].get("replicas", 1)
    return size


def actual_size(replica_set: Object) -> int:
    """The reported number of pods."""
    size: int = (replica_set.get("status") or {}).get("replicas", 0)
    return size


def available_in(replica_set: Object) -> int:
    """The reported number of available pods."""
    available: int = (replica_set.get("status") or {}).get("availableReplicas", 0)
    return available


def rolling_update_sizes(rollout: Rollout) -> dict[str, int]:
    """The next step of a rolling update: sizes by ReplicaSet name, for those that change."""
    new = rollout.new
    assert new is not None
    name, size = new["metadata"]["name"], size_of(new)
    if size > rollout.desired:
        return {name: rollout.desired}
    if size < rollout.desired:
        # Pods that are to go but are still there count too: the surge is a bound at every moment.
        total = sum(max(size_of(entry), actual_size(entry)) for entry in rollout.sets())
        room = rollout.desired + rollout.max_surge - total
        if room > 0:
            return {name: size + min(room, rollout.desired - size)}
    return _smaller_old_sets(rollout, new)


def _smaller_old_sets(rollout: Rollout, new: Object) -> dict[str, int]:
    sizes = {entry["metadata"]["name"]: size_of(entry) for entry in rollout.old if size_of(entry)}
    if not sizes:
        return {}
    least = rollout.desired - rollout.max_unavailable
    new_unavailable = size_of(new) - available_in(new)
    spare = sum(sizes.values()) + size_of(new) - least - new_unavailable
    if spare <= 0:
        return {}
    before = dict(sizes)
    # Pods that are not available are removed first: that makes nothing unavailable.
    for entry in rollout.old:
        name = entry["metadata"]["name"]
        unhealthy = sizes.get(name, 0) - available_in(entry)
        if unhealthy > 0 and spare > 0:
            given_up = min(spare, unhealthy)
            sizes[name] -= given_up
            spare -= given_up
    available = sum(map(available_in, rollout.sets()))
    removable = available - least
    for entry in rollout.old:
        name = entry["metadata"]["name"]
        if sizes.get(name, 0) > 0 and removable > 0:
            removed = min(sizes[name], removable)
            sizes[name] -= removed
            removable -= removed
    return {name: size for name, size in sizes.items() if size != before[name]}


def proportional_sizes(rollout: Rollout) -> dict[str, int]:
    """Sizes after `spec.replicas` changed in the middle of a rollout: each ReplicaSet keeps its share."""
    active = [entry for entry in rollout.sets() if size_of(entry)]
    if len(active) <= 1:
        only = active[0] if active else rollout.new
        return {only["metadata"]["name"]: rollout.desired} if only is not None else {}
    new = rollout.new
    if new is not None and _saturated(rollout, new):
        return {entry["metadata"]["name"]: 0 for entry in active if entry is not new}
    if not rollout.rolling:
        return {}
    allowed = rollout.desired + rollout.max_surge if rollout.desired else 0
    change = allowed - sum(map(size_of, active))
    # The larger first; among equals growth goes to the younger, shrinking to the older.
    if change > 0:
        active.reverse()
    active.sort(key=size_of, reverse=True)
    sizes: dict[str, int] = {}
    distributed = 0
    for entry in active:
        share = _share(rollout, entry, change, distributed)
        sizes[entry["metadata"]["name"]] = size_of(entry) + share
        distributed += share
    first = active[0]["metadata"]["name"]
    sizes[first] = max(0, sizes[first] + change - distributed)
    return sizes


def _share(rollout: Rollout, replica_set: Object, change: int, distributed: int) -> int:
    size = size_of(replica_set)
    if change == distributed:
        return 0
    if rollout.desired == 0:
        return -size
    reported = (rollout.deployment.get("status") or {}).get("replicas", 0)
    base = _annotated_number(replica_set, MAXIMUM, reported) or size
    # Half away from zero; sizes are never negative.
    share = (2 * size * (rollout.desired + rollout.max_surge) + base) // (2 * base) - size
    left = change - distributed
    return min(share, left) if change > 0 else max(share, left)


def _saturated(rollout: Rollout, replica_set: Object) -> bool:
    return (
        size_of(replica_set) == rollout.desired == available_in(replica_set)
        and _annotated_number(replica_set, DESIRED, -1) == rollout.desired
    )


def _annotated_number(obj: Object, name: str, default: int) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(name, "")
    return int(text) if text.isdecimal() else default
