"""Quota books on a cluster state without an API, and stand-ins for what controllers write and say."""

import json

import msgspec

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.elasticquota import kinds as quota
from koordsched.plugins.elasticquota.books import QuotaBooks, Settings

BUILT_IN_MAX = (("cpu", 10**24), ("memory", 10**24))


class Ledger:
    """A cluster state with books; shorthands for what happens to it."""

    def __init__(self, nodes=(), **settings):
        self.cluster = ClusterState()
        self.now = 0.0
        settings = {"default_max": BUILT_IN_MAX, "system_max": BUILT_IN_MAX, **settings}
        self.books = QuotaBooks.shared(self.cluster, Settings(**settings), lambda: self.now)
        self.store = self.cluster.objects.of(quota.ELASTIC_QUOTAS)
        self._version = 0
        for number, allocatable in enumerate(nodes):
            self.node(f"n{number}", allocatable)

    def node(self, name, allocatable, labels=None, ready=True, cordoned=False):
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        node = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": allocatable, "conditions": conditions},
        }
        self.cluster.upsert_node(convert(node, core.Node))

    def quota(self, name, maximum=None, minimum=None, namespace="default", used=None, annotations=None, **labels):
        self._version += 1
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "resourceVersion": str(self._version),
            "labels": {quota.PREFIX + key.replace("_", "-"): value for key, value in labels.items()},
            "annotations": {quota.PREFIX + key: value for key, value in (annotations or {}).items()},
        }
        obj = {
            "metadata": metadata,
            "spec": {"max": maximum or {}, "min": minimum or {}},
            "status": {"used": used or {}},
        }
        self.store.upsert(convert(obj, quota.ElasticQuota))
        return self.store.get(namespace, name)

    def pod(self, name, of, requests, node="n0", namespace="default", priority=0, started=None, **extra):
        labels = {quota.QUOTA_NAME: of, **extra.pop("labels", {})}
        metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels, **extra}
        containers = [{"name": "c", "resources": {"requests": requests}}]
        spec = {"nodeName": node, "containers": containers, "priority": priority}
        wire = {"metadata": metadata, "spec": spec, "status": {"startTime": started}}
        pod = self.cluster.pods.build(convert(wire, core.Pod))
        if node:
            self.cluster.set_pod(pod)
        else:
            self.cluster.pod_seen(pod)
        return pod

    def apply(self, namespace, name, patch):
        """As if the patch had been carried out and had come back."""
        self._version += 1
        obj = json.loads(json.dumps(merged(to_json(self.store.get(namespace, name)), patch)))
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.store.upsert(convert(obj, quota.ElasticQuota))


def to_json(obj):
    return msgspec.to_builtins(obj)


def merged(thing, patch):
    """The JSON merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(thing) if isinstance(thing, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Writes:
    """Notes what is written; `refused`: keys of what fails."""

    def __init__(self):
        self.created, self.merges, self.evicted = [], [], []
        self.refused = set()

    async def create(self, kind, namespace, thing):
        self._check(thing["metadata"]["name"])
        self.created.append((kind.plural, namespace, thing))
        return True

    async def merge(self, kind, meta, changes):
        self._check(meta.name)
        self.merges.append((kind.plural, meta.name, changes))

    async def evict(self, pod):
        self._check(pod.name)
        self.evicted.append(pod.name)

    def _check(self, name):
        if name in self.refused:
            raise WriteFailed("no")


class Reporter:
    """Notes the events."""

    def __init__(self):
        self.events = []

    def event(self, kind, meta, event_type, reason, text, *, action, once=False):
        assert (event_type, action) == ("Warning", "Checking")
        self.events.append((meta.name, reason, text))

    def pod_event(self, pod, event_type, reason, text, *, action):
        assert (event_type, action) == ("Normal", "Evicting")
        self.events.append((pod.name, reason, text))
