"""The scheduler's own pods, which its plugins must not evict."""

from __future__ import annotations

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState


class OwnReplicas:
    """This scheduler's pod, known by the downward API, and those with the same controller.

    With an empty name the scheduler does not run in a pod, and there are none.
    """

    def __init__(self, cluster: ClusterState, namespace: str = "", name: str = "") -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._owner: str | None = None

    def __contains__(self, pod: object) -> bool:
        if not self._name or not isinstance(pod, Pod) or pod.namespace != self._namespace:
            return False
        if pod.name == self._name:
            return True
        return pod.owner is not None and pod.owner.uid == self._owner_uid()

    def _owner_uid(self) -> str:
        """uid of the controller of our own pod, "" as long as that was not seen."""
        if self._owner is None:
            for pod in self._cluster.assigned.values():
                if pod.name == self._name and pod.namespace == self._namespace:
                    self._owner = pod.owner.uid if pod.owner is not None else ""
                    break
        return self._owner or ""
