"""What every controller is given: the registry, the shared informers and the time."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.controllers.events import EventRecorder
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.nodes import NodeIndex
from koordsched.fakecluster.controllers.ownership import Object
from koordsched.fakecluster.controllers.pods import PodIndex, PodRecord
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Resource


class ControllerContext:
    """Shared informers over one registry. Controllers add their listeners before `start`."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.pods = PodIndex()
        self.pod_resource = registry.resource("", "v1", "pods")
        self.events = EventRecorder(registry, "controller-manager")
        self.namespaces = Informer(registry, "", "v1", "namespaces")
        self.nodes = NodeIndex()
        self.claims = Informer(registry, "", "v1", "persistentvolumeclaims")
        self.volumes = Informer(registry, "", "v1", "persistentvolumes")
        self.storage_classes = Informer(registry, "storage.k8s.io", "v1", "storageclasses")
        self.deployments = Informer(registry, "apps", "v1", "deployments")
        self.replica_sets = Informer(registry, "apps", "v1", "replicasets")
        self.stateful_sets = Informer(registry, "apps", "v1", "statefulsets")
        self.daemon_sets = Informer(registry, "apps", "v1", "daemonsets")
        self.revisions = Informer(registry, "apps", "v1", "controllerrevisions")
        self.jobs = Informer(registry, "batch", "v1", "jobs")
        self.disruption_budgets = Informer(registry, "policy", "v1", "poddisruptionbudgets")

    def start(self) -> list[Callable[[], None]]:
        """Fills and follows all informers, owners before pods; returns what ends each."""
        informers = (
            self.namespaces,
            self.storage_classes,
            self.volumes,
            self.claims,
            self.deployments,
            self.replica_sets,
            self.stateful_sets,
            self.daemon_sets,
            self.revisions,
            self.jobs,
            self.disruption_budgets,
        )
        nodes, pods = self.nodes, self.pods
        return [*(informer.start() for informer in informers), nodes.start(self.registry), pods.start(self.registry)]

    def now(self) -> float:
        """Seconds since the epoch on the registry's clock."""
        return self.registry.clock.now()

    def timestamp(self, ago: float = 0.0) -> str:
        """The time `ago` seconds before now, as the API writes it."""
        return rfc3339(self.registry.clock.now() - ago)

    def create_pod(self, pod: Object) -> None:
        """Creates the pod, which from now on belongs to the registry. Raises ApiStatusError when it is refused."""
        self.registry.create_record(self.pod_resource, pod["metadata"]["namespace"], pod)

    def delete_pod(self, pod: PodRecord, grace_period_seconds: int | None = None) -> bool:
        """Deletes the pod, by default with its own grace period; returns False when it is gone or another one."""
        try:
            self.registry.delete_record(self.pod_resource, pod.namespace, pod.name, grace_period_seconds, pod.uid)
        except ApiStatusError as error:
            if error.code in (404, 409):
                return False
            raise
        return True

    def read_pod(self, pod: PodRecord) -> Object | None:
        """A copy of the whole object, or None when it is gone or another one."""
        found = self.registry.peek(self.pod_resource, *pod.key)
        if found is None or found["metadata"]["uid"] != pod.uid:
            return None
        return self.registry.get(self.pod_resource, *pod.key)

    def write_status(self, resource: Resource, obj: Object, status: Object) -> int:
        """Replaces the status of an object; returns 1, the number of writes."""
        metadata = obj["metadata"]
        self.registry.replace_status(resource, metadata.get("namespace"), metadata["name"], status)
        return 1


def settle_delay(pods: int) -> float:
    """How long, in seconds, to let the pod events of one owner gather before its status is worked out again.

    Working it out costs about a microsecond for each of its pods; a wait in proportion bounds the share of time spent.
    """
    return 0.01 + pods * 2e-5
