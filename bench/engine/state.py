"""A cluster state made of a workload, and the pods to be placed on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import orjson

from bench.manifests import Manifest, namespaces_of, nodes_of, objects_of, pods_of
from bench.workloads import Catalog, Pods, Workload
from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import Decoder, convert
from koordsched.cluster.pod import Pod
from koordsched.engine.attempt import Attempt
from koordsched.framework.profile import Profile
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler

SCHEDULER = "default-scheduler"
_CONFIG = orjson.dumps({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}).decode()

_decode_pod = Decoder(core.Pod)


class _Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class Engine:
    """The default profile on the state that a workload describes; `seed` makes runs alike."""

    def __init__(self, catalog: Catalog, workload: Workload, seed: int = 1) -> None:
        self._catalog = catalog
        self._rng = Random(seed)
        self._serial = count()
        # Profiles first: plugins register what they keep up before there is anything to keep up.
        self.offline = OfflineScheduler(
            config.resolve(config.load(_CONFIG)), IN_TREE, (), clock=_Clock(), rng=self._rng
        )
        self.cluster = self.offline.cluster
        self.profile: Profile = self.offline.profiles[SCHEDULER]
        for manifest in (*namespaces_of(workload), *objects_of(workload.objects)):
            self.offline.add(manifest)
        for manifest in nodes_of(catalog, workload.nodes):
            self.cluster.upsert_node(convert(manifest, core.Node))
        names = [name for name in self.cluster.table.names if name]
        for group in workload.init:
            for pod in self.pods(group, names):
                self.cluster.set_pod(pod)

    def pods(self, group: Pods, nodes: Sequence[str] = ()) -> Iterator[Pod]:
        """The pods of a group as the scheduler holds them, running on `nodes` in turns if given."""
        prefix = f"pod-{next(self._serial)}"
        for manifest in pods_of(self._catalog, group, prefix, SCHEDULER, nodes=nodes, full_size=False):
            if nodes:
                manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            yield self.build(manifest)

    def build(self, manifest: Manifest) -> Pod:
        """The pod of a manifest, decoded from JSON as from a watch."""
        metadata = manifest["metadata"]
        metadata["uid"] = f"{metadata['namespace']}/{metadata['name']}"
        return self.cluster.pods.build(_decode_pod(orjson.dumps(manifest)))

    def place(self, pod: Pod) -> bool:
        """One scheduling cycle: filter, score, choose, assume, reserve. False if no node fits."""
        attempt = Attempt(self.profile, self.cluster, pod)
        if not attempt.filter().feasible:
            return False
        row = attempt.choose(self._rng).row
        return self.offline.take(attempt, row)[0].ok

    def preempt(self, pod: Pod) -> int:
        """A decision of preemption: filter, then the PostFilter plugins. Its victims go, the pod is nominated.

        Returns the number of victims; 0 if preemption would not help.
        """
        attempt = Attempt(self.profile, self.cluster, pod)
        attempt.filter()
        outcome = attempt.post_filter()
        if outcome.nominated_node:
            for victim in outcome.victims:
                self.cluster.remove_pod(victim.uid)
            pod.nominated_node = outcome.nominated_node
            self.offline.nominator.add(pod)
        return len(outcome.victims)
