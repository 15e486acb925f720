"""Resources that the API server does not let us read (403): what must wait until it does, and what goes on.

We then see an empty collection, which need not be true. So nothing that depends on such a resource is decided: pods
that need it are not tried, and their conditions say why. A resource that the server does not have at all (404) is
different: it is as empty as it looks.

* Pods, nodes: nothing is scheduled.
* Namespaces: pods whose own affinity terms select namespaces by labels wait; such terms of others count as matching.
* Volumes, claims, storage classes, CSI objects, attachments: pods with volumes that may have to be attached wait.
* Disruption budgets: no pod is preempted (`plugins.shared.preemption.visibility`).
* Services, replica sets etc.: nothing waits; they only affect preferences.
* Kinds of plugins, such as quotas: what their `Kind.need` says, as for all of these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from koordsched.cluster import builtinkinds
from koordsched.cluster.kinds import NOTHING_WAITS, Need, kind_at
from koordsched.cluster.objects import Objects
from koordsched.cluster.pod import Pod
from koordsched.config.resolving import Profile
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.recording import NOT_RECORDING, Recorder

_log = logging.getLogger(__name__)

PODS, NODES = builtinkinds.PODS.path, builtinkinds.NODES.path


class Refusal(NamedTuple):
    """Why a pod is not tried, and the plugin on whose behalf ("" where no single one is concerned)."""

    plugin: str
    message: str


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
        """Path of a collection -> why it may not be read."""
        return dict(self._reasons)

    def refused(self, path: str, reason: str) -> None:
        """The API server does not let us read the collection at this path; says so in the log, once."""
        self._recorder.hidden(path, reason)
        known = path in self._reasons
        self._reasons[path] = reason
        if (store := self._stores.at(path)) is not None:
            store.hidden = reason
        if not known:
            need = _need_of(path)
            _log.warning(
                "not allowed to read %s: %s. The role of the scheduler lacks the rule %s; until that is added, %s",
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
        need = _need_of(path)
        waiting = [queued.pod for queued in self._queue]
        self._queue.activate([pod for pod in waiting if need.holds_preemption or need.concerns(pod.shape.spec)])

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod must not be tried now; None if it may."""
        enabled = self._plugins.get(pod.shape.scheduler_name, frozenset())
        for path in self._reasons:
            need = _need_of(path)
            plugin = next((name for name in need.plugins if name in enabled), None)
            if need.plugins and plugin is None:
                continue
            if need.concerns(pod.shape.spec):
                return Refusal(plugin or "", f"waiting: the scheduler is not allowed to read {resource_name(path)}")
        return None


def _need_of(path: str) -> Need:
    kind = kind_at(path)
    return kind.need if kind is not None else NOTHING_WAITS


def resource_name(path: str) -> str:
    """`plural.group` of a collection's path, as in messages of the API server; the core group has no name."""
    *_, plural = parts = path.strip("/").split("/")
    return f"{plural}.{parts[1]}" if parts[0] == "apis" else plural


def missing_rule(path: str) -> str:
    """The rule of a role that lets the collection at this path be watched, as YAML on one line."""
    *_, plural = parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else '""'
    return f"{{apiGroups: [{group}], resources: [{plural}], verbs: [list, watch]}}"
