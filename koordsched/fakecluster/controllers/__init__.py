"""The controllers of the embedded cluster: what kube-controller-manager does, as far as users of a scheduler see it."""

from __future__ import annotations

from collections.abc import Callable

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.daemonset import DaemonSetController
from koordsched.fakecluster.controllers.deployment import DeploymentController
from koordsched.fakecluster.controllers.disruption import DisruptionController
from koordsched.fakecluster.controllers.garbage import GarbageCollector
from koordsched.fakecluster.controllers.job import JobController
from koordsched.fakecluster.controllers.namespaces import NamespaceController
from koordsched.fakecluster.controllers.nodelifecycle import NodeLifecycleController
from koordsched.fakecluster.controllers.podowner import PodOwnerController
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.replicaset import ReplicaSetController
from koordsched.fakecluster.controllers.resourceclaim import ResourceClaimController
from koordsched.fakecluster.controllers.statefulset import StatefulSetController
from koordsched.fakecluster.controllers.tainteviction import TaintEvictionController
from koordsched.fakecluster.controllers.volumebinding import VolumeBindingController
from koordsched.fakecluster.registry import Registry

__all__ = ["Controllers"]


class Controllers:
    """All controllers over one registry, in its process.

    They run on the registry's clock and timers alone. `node_grace_seconds` is how long a node may be silent before it
    is Unknown, `provision_delay` how many seconds it takes to make a volume.
    """

    def __init__(self, registry: Registry, node_grace_seconds: float = 40.0, provision_delay: float = 1.0) -> None:
        self._registry = registry
        self._context = context = ControllerContext(registry)
        self._deployments = DeploymentController(context)
        self._replica_sets = ReplicaSetController(context)
        self._stateful_sets = StatefulSetController(context)
        self._daemon_sets = DaemonSetController(context)
        self._jobs = JobController(context)
        self._adopters: tuple[PodOwnerController, ...] = (
            self._replica_sets,
            self._stateful_sets,
            self._daemon_sets,
            self._jobs,
        )
        self._disruptions = DisruptionController(context)
        self._namespaces = NamespaceController(context)
        self._nodes = NodeLifecycleController(context, node_grace_seconds)
        self._taints = TaintEvictionController(context)
        self._volumes = VolumeBindingController(context, provision_delay)
        served = registry.find("resource.k8s.io", "v1", "resourceclaims") is not None
        self._resource_claims = ResourceClaimController(context) if served else None
        self._garbage = GarbageCollector(registry)
        self._endings: list[Callable[[], None]] = []
        context.pods.on_owned_change("", self._orphan_changed)

    def start(self) -> None:
        """Begins to control, with everything that is there now."""
        self._endings = [*self._context.start(), self._nodes.start(), self._garbage.start()]
        if self._resource_claims is not None:
            self._endings += self._resource_claims.start()

    def stop(self) -> None:
        """Ends all controllers; what they had not done yet stays undone. They cannot be started again."""
        for end in self._endings:
            end()
        self._endings = []
        for queue in (
            self._deployments.queue,
            self._replica_sets.queue,
            self._stateful_sets.queue,
            self._daemon_sets.queue,
            self._jobs.queue,
            self._disruptions.queue,
            self._namespaces.queue,
            self._nodes.queue,
            self._taints.queue,
            self._volumes.queue,
            self._volumes.volume_queue,
        ):
            queue.close()
        if self._resource_claims is not None:
            self._resource_claims.close()
        self._daemon_sets.node_queue.close()
        self._jobs.release_queue.close()
        self._garbage.queue.close()
        self._garbage.owner_queue.close()

    def _orphan_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        if after is not None and not after.owner_uid:
            for controller in self._adopters:
                if not controller.adoption.idle:
                    controller.orphan_changed(after)
