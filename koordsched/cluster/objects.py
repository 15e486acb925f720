"""The other objects that plugins read: namespaces, services, volumes and the like, one store per kind.

Stores are filled from outside (reflectors, or a dump); plugins read them and may subscribe to changes. A
store that nobody asked for stays empty: the scheduler watches only kinds that an enabled plugin `wants`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, Protocol, TypeVar

from koordsched.api import apps, core, policy, quota, storage
from koordsched.api.meta import ObjectMeta
from koordsched.cluster import events
from koordsched.cluster.events import EventResource


class HasMetadata(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMetadata)

Subscriber = Callable[[T | None, T | None], None]
"""Called with (old, new): None for old when it appeared, for new when it is gone."""


class Kind(Generic[T]):
    """A kind of object: where the API serves it, its type, and the event resource of its changes.

    `event` is None for kinds whose changes wake nobody by themselves.
    """

    __slots__ = ("api", "event", "namespaced", "plural", "type")

    def __init__(
        self, api: str, plural: str, kind: type[T], event: EventResource | None, *, namespaced: bool = True
    ) -> None:
        self.api = api
        self.plural = plural
        self.type = kind
        self.event = event
        self.namespaced = namespaced

    @property
    def path(self) -> str:
        """The path of the collection, over all namespaces."""
        return f"/{self.api}/{self.plural}"

    def object_path(self, namespace: str, name: str) -> str:
        """The path of one object; the namespace of cluster-wide kinds is ""."""
        return f"/{self.api}/namespaces/{namespace}/{self.plural}/{name}" if self.namespaced else f"{self.path}/{name}"

    def __repr__(self) -> str:
        return f"Kind({self.path})"


NODES = Kind("api/v1", "nodes", core.Node, events.NODE, namespaced=False)
"""To name the kind; nodes are in the node table, not in a store."""

NAMESPACES = Kind("api/v1", "namespaces", core.Namespace, None, namespaced=False)
SERVICES = Kind("api/v1", "services", core.Service, None)
REPLICATION_CONTROLLERS = Kind("api/v1", "replicationcontrollers", core.ReplicationController, None)
REPLICA_SETS = Kind("apis/apps/v1", "replicasets", apps.ReplicaSet, None)
STATEFUL_SETS = Kind("apis/apps/v1", "statefulsets", apps.StatefulSet, None)
POD_DISRUPTION_BUDGETS = Kind("apis/policy/v1", "poddisruptionbudgets", policy.PodDisruptionBudget, None)
PERSISTENT_VOLUMES = Kind(
    "api/v1", "persistentvolumes", storage.PersistentVolume, events.PERSISTENT_VOLUME, namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "api/v1", "persistentvolumeclaims", storage.PersistentVolumeClaim, events.PERSISTENT_VOLUME_CLAIM
)
STORAGE_CLASSES = Kind(
    "apis/storage.k8s.io/v1", "storageclasses", storage.StorageClass, events.STORAGE_CLASS, namespaced=False
)
CSI_NODES = Kind("apis/storage.k8s.io/v1", "csinodes", storage.CSINode, events.CSI_NODE, namespaced=False)
CSI_DRIVERS = Kind("apis/storage.k8s.io/v1", "csidrivers", storage.CSIDriver, events.CSI_DRIVER, namespaced=False)
CSI_STORAGE_CAPACITIES = Kind(
    "apis/storage.k8s.io/v1", "csistoragecapacities", storage.CSIStorageCapacity, events.CSI_STORAGE_CAPACITY
)
VOLUME_ATTACHMENTS = Kind(
    "apis/storage.k8s.io/v1", "volumeattachments", storage.VolumeAttachment, events.VOLUME_ATTACHMENT, namespaced=False
)
ELASTIC_QUOTAS = Kind("apis/scheduling.sigs.k8s.io/v1alpha1", "elasticquotas", quota.ElasticQuota, None)
ELASTIC_QUOTA_PROFILES = Kind(
    "apis/quota.koordinator.sh/v1alpha1", "elasticquotaprofiles", quota.ElasticQuotaProfile, None
)


class Store(Generic[T]):
    """All objects of one kind that we know, by (namespace, name)."""

    __slots__ = ("_by_namespace", "_subscribers", "hidden", "kind", "version")

    def __init__(self, kind: Kind[T]) -> None:
        self.kind = kind
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._subscribers: list[Subscriber[T]] = []
        self.version = 0
        """Grows with every change, so that readers can keep what they derived."""
        self.hidden = ""
        """Why there may be objects that we do not see; empty while we are allowed to see them all."""

    def get(self, namespace: str, name: str) -> T | None:
        """The object, if there is one; cluster-wide kinds have the namespace ""."""
        return self._by_namespace.get(namespace, {}).get(name)

    def in_namespace(self, namespace: str) -> Collection[T]:
        """The objects of a namespace."""
        return self._by_namespace.get(namespace, {}).values()

    def __iter__(self) -> Iterator[T]:
        for objects in self._by_namespace.values():
            yield from objects.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Calls it for every object there is and for every later change."""
        self._subscribers.append(subscriber)
        for thing in self:
            subscriber(None, thing)

    def upsert(self, thing: T) -> T | None:
        """An object appeared or changed; returns the one before."""
        meta = thing.metadata
        objects = self._by_namespace.setdefault(meta.namespace, {})
        before = objects.get(meta.name)
        objects[meta.name] = thing
        self._tell(before, thing)
        return before

    def delete(self, namespace: str, name: str) -> T | None:
        """An object is gone; returns what it was."""
        objects = self._by_namespace.get(namespace, {})
        before = objects.pop(name, None)
        if before is not None:
            if not objects:
                del self._by_namespace[namespace]
            self._tell(before, None)
        return before

    def _tell(self, old: T | None, new: T | None) -> None:
        self.version += 1
        for subscriber in self._subscribers:
            subscriber(old, new)


class Objects:
    """The stores of all kinds that somebody wants."""

    __slots__ = ("_stores",)

    def __init__(self) -> None:
        self._stores: dict[str, Store[HasMetadata]] = {}

    def of(self, kind: Kind[T]) -> Store[T]:
        """The store of a kind. Asking for it is what makes the scheduler watch the kind."""
        store = self._stores.get(kind.path)
        if store is None:
            store = self._stores[kind.path] = Store(kind)  # type: ignore[arg-type]  # stores are kept by kind
        return store  # type: ignore[return-value]  # keyed by kind, so the types agree

    def at(self, path: str) -> Store[HasMetadata] | None:
        """The store of the kind whose collection has this path, if it was asked for."""
        return self._stores.get(path)

    def wanted(self) -> list[Store[HasMetadata]]:
        """All stores that were asked for."""
        return list(self._stores.values())
