"""Resources that the API server does not let us read (403): what must wait until it does, and what goes on.

Empty is what we see then, but not what is so. So what rests on such a resource is not decided: pods that need it are
not tried, and their owners are told why. A resource that the server does not have at all (404) is different: it is as
empty as it looks.

* Pods, nodes: nothing is scheduled.
* Namespaces: pods whose own affinity terms select namespaces by labels wait; such terms of others count as matching.
* Volumes, claims, storage classes, CSI objects, attachments: pods with volumes that may have to be attached wait.
* Elastic quotas: pods of profiles with ElasticQuota wait.
* Disruption budgets: nobody is preempted (`plugins.shared.preemption.visibility`).
* Services, replica sets and the like, quota profiles: nothing waits; they matter to preferences or to controllers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koordsched.api.core import PodSpec
from koordsched.cluster import objects
from koordsched.cluster.objects import Objects
from koordsched.cluster.pod import Pod
from koordsched.config.resolving import Profile
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.recording import NOT_RECORDING, Recorder

_log = logging.getLogger(__name__)

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class _Need(NamedTuple):
    """What rests on a resource: pods of profiles with one of these plugins, if `concerns` says so of their spec.

    `plugins` are named in order of preference: events that one waits for make its pods be tried again. None: of all
    profiles. `consequence` completes "until it can be read, ..."; `holds_preemption`: that is what it is needed for.
    """

    plugins: tuple[str, ...]
    concerns: Callable[[PodSpec], bool]
    consequence: str
    holds_preemption: bool = False


class Refusal(NamedTuple):
    """Why a pod is not tried, and the plugin on whose behalf ("" where no single one is concerned)."""

    plugin: str
    message: str


def _every_pod(spec: PodSpec) -> bool:
    return True


def _no_pod(spec: PodSpec) -> bool:
    return False


def _reads_storage(spec: PodSpec) -> bool:
    return any(volume.matters and volume.image is None for volume in spec.volumes)


def _selects_namespaces(spec: PodSpec) -> bool:
    affinity = spec.affinity
    for kind in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if kind is None:
            continue
        for term in (*kind.required, *(preference.pod_affinity_term for preference in kind.preferred)):
            selector = term.namespace_selector
            if selector is not None and (selector.match_labels or selector.match_expressions):
                return True
    return False


_STORAGE = _Need(
    ("VolumeBinding", "NodeVolumeLimits", "VolumeZone", "VolumeRestrictions"), _reads_storage, "pods with volumes wait"
)
_NEEDS: Mapping[str, _Need] = {
    PODS: _Need((), _every_pod, "nothing is scheduled"),
    NODES: _Need((), _every_pod, "nothing is scheduled"),
    objects.NAMESPACES.path: _Need(
        ("InterPodAffinity",), _selects_namespaces, "pods whose affinity selects namespaces by labels wait"
    ),
    objects.PERSISTENT_VOLUMES.path: _STORAGE,
    objects.PERSISTENT_VOLUME_CLAIMS.path: _STORAGE,
    objects.STORAGE_CLASSES.path: _STORAGE,
    objects.CSI_NODES.path: _STORAGE,
    objects.CSI_DRIVERS.path: _STORAGE,
    objects.CSI_STORAGE_CAPACITIES.path: _STORAGE,
    objects.VOLUME_ATTACHMENTS.path: _STORAGE,
    objects.ELASTIC_QUOTAS.path: _Need(("ElasticQuota",), _every_pod, "pods of profiles with ElasticQuota wait"),
    objects.POD_DISRUPTION_BUDGETS.path: _Need((), _no_pod, "nobody is preempted", holds_preemption=True),
}
_PREFERENCES = _Need((), _no_pod, "what it is good for (preferences, or work in the background) is left out")


class Unreadable:
    """The resources that we are not allowed to read at the moment; nearly always none."""

    def __init__(
        self,
        stores: Objects,
        profiles: Iterable[Profile],
        queue: SchedulingQueue[Pod],
        recorder: Recorder = NOT_RECORDING,
    ) -> None:
        self._stores = stores
        self._plugins = {profile.scheduler_name: profile.plugins.names() for profile in profiles}
        self._queue = queue
        self._recorder = recorder
        self._reasons: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    @property
    def reasons(self) -> dict[str, str]:
        """Path of a collection -> why it must not be read."""
        return dict(self._reasons)

    def refused(self, path: str, reason: str) -> None:
        """The API server does not let us read the collection at this path; says so in the log, once."""
        self._recorder.hidden(path, reason)
        known = path in self._reasons
        self._reasons[path] = reason
        if (store := self._stores.at(path)) is not None:
            store.hidden = reason
        if not known:
            need = _NEEDS.get(path, _PREFERENCES)
            _log.warning(
                "%s must not be read: %s. The role of the scheduler lacks the rule %s; until it is there, %s",
                path,
                reason,
                missing_rule(path),
                need.consequence,
            )

    def readable(self, path: str) -> None:
        """The collection at this path can be read (again): pods that waited for it are tried."""
        if self._reasons.pop(path, None) is None:
            return
        self._recorder.hidden(path, "")
        if (store := self._stores.at(path)) is not None:
            store.hidden = ""
        need = _NEEDS.get(path, _PREFERENCES)
        waiting = [queued.pod for queued in self._queue]
        self._queue.activate([pod for pod in waiting if need.holds_preemption or need.concerns(pod.shape.spec)])

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod must not be tried now, if it must not."""
        enabled = self._plugins.get(pod.shape.scheduler_name, frozenset())
        for path in self._reasons:
            need = _NEEDS.get(path, _PREFERENCES)
            plugin = next((name for name in need.plugins if name in enabled), None)
            if need.plugins and plugin is None:
                continue
            if need.concerns(pod.shape.spec):
                return Refusal(plugin or "", f"waiting: the scheduler is not allowed to read {resource_name(path)}")
        return None


def resource_name(path: str) -> str:
    """`plural.group` of a collection's path, as in messages of the API server; the core group has no name."""
    *_, plural = parts = path.strip("/").split("/")
    return f"{plural}.{parts[1]}" if parts[0] == "apis" else plural


def missing_rule(path: str) -> str:
    """The rule of a role that lets the collection at this path be watched, as YAML on one line."""
    *_, plural = parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else '""'
    return f"{{apiGroups: [{group}], resources: [{plural}], verbs: [list, watch]}}"
