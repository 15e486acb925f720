"""The selector of default constraints: from the services that select a pod, and from its controller.

Source: upstream `plugins/helper/spread.go` DefaultSelector.
"""

from __future__ import annotations

from koordsched.api.apps import ReplicaSet, StatefulSet
from koordsched.api.core import ReplicationController, Service
from koordsched.api.meta import LabelSelector, OwnerReference
from koordsched.api.selectors import Requirement
from koordsched.cluster.builtinkinds import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS
from koordsched.cluster.interning import LabelSet
from koordsched.cluster.kept import Kept, size_of
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.plugins.shared.podcounts.query import requirements_of

_BUDGET = 32 << 20
"""Bytes of labels and selectors for which the answer is known."""

Requirements = tuple[Requirement, ...]


class OwnerSelectors:
    """Finds the selector; answers are kept until a service or a controller appears, goes or selects otherwise."""

    def __init__(self, cluster: ClusterState) -> None:
        objects = cluster.objects
        self._controllers = objects.of(REPLICATION_CONTROLLERS)
        self._replica_sets = objects.of(REPLICA_SETS)
        self._stateful_sets = objects.of(STATEFUL_SETS)
        # namespace -> one (key, value) that the service asks for -> services by name
        self._services: dict[str, dict[tuple[str, str], dict[str, Service]]] = {}
        self._found: Kept[tuple[str, LabelSet, str, str, str], Requirements] = Kept(_BUDGET)
        objects.of(SERVICES).subscribe(self._on_service)
        self._controllers.subscribe(self._on_controller)
        self._replica_sets.subscribe(self._on_controller)
        self._stateful_sets.subscribe(self._on_controller)

    def requirements(self, pod: Pod) -> Requirements:
        """What pods like this one have in common; () if there is nothing. Raises SelectorError."""
        owner = pod.owner
        if owner is None and not self._services:
            return ()
        by = (owner.api_version, owner.kind, owner.name) if owner is not None else ("", "", "")
        identity = (pod.namespace, pod.labels, *by)
        found = self._found.get(identity)
        if found is None:
            found = self._requirements(pod.namespace, pod.labels.labels, owner)
            self._found.put(identity, found, pod.labels.nbytes + size_of(found))
        return found

    def _requirements(self, namespace: str, labels: dict[str, str], owner: OwnerReference | None) -> Requirements:
        merged: dict[str, str] = {}
        services = self._services.get(namespace, {})
        for pair in labels.items():
            for service in services.get(pair, {}).values():
                if service.spec.selector.items() <= labels.items():
                    merged.update(service.spec.selector)
        added: LabelSelector | None = None
        if owner is not None:
            kind = (owner.api_version, owner.kind)
            if kind == ("v1", "ReplicationController"):
                controller = self._controllers.get(namespace, owner.name)
                merged.update(controller.spec.selector if controller is not None else {})
            elif kind == ("apps/v1", "ReplicaSet"):
                added = _selector_of(self._replica_sets.get(namespace, owner.name))
            elif kind == ("apps/v1", "StatefulSet"):
                added = _selector_of(self._stateful_sets.get(namespace, owner.name))
        found = requirements_of(LabelSelector(match_labels=merged))
        return found if added is None else tuple(sorted({*found, *requirements_of(added)}))

    def _on_service(self, old: Service | None, new: Service | None) -> None:
        if old is not None and new is not None and old.spec.selector == new.spec.selector:
            return
        self._found.clear()
        if old is not None and old.spec.selector:
            self._discard(old)
        if new is not None and new.spec.selector:
            by_pair = self._services.setdefault(new.metadata.namespace, {})
            by_pair.setdefault(_handle(new), {})[new.metadata.name] = new

    def _discard(self, service: Service) -> None:
        namespace, handle = service.metadata.namespace, _handle(service)
        by_pair = self._services[namespace]
        del by_pair[handle][service.metadata.name]
        if not by_pair[handle]:
            del by_pair[handle]
            if not by_pair:
                del self._services[namespace]

    def _on_controller(
        self,
        old: ReplicationController | ReplicaSet | StatefulSet | None,
        new: ReplicationController | ReplicaSet | StatefulSet | None,
    ) -> None:
        # Their status changes with every pod they create; the selector hardly ever.
        if old is None or new is None or old.spec.selector != new.spec.selector:
            self._found.clear()


def _handle(service: Service) -> tuple[str, str]:
    """The pair under which a service is filed: any of its pairs will do."""
    return min(service.spec.selector.items())


def _selector_of(owner: ReplicaSet | StatefulSet | None) -> LabelSelector | None:
    return owner.spec.selector if owner is not None else None
