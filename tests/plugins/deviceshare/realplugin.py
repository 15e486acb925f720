"""The plugins themselves as an implementation, on the offline scheduler."""

import asyncio
import json
from functools import lru_cache
from random import Random

from koordsched import config
from koordsched.api.decoding import convert
from koordsched.config.feature_gates import FeatureGates
from koordsched.framework.status import PASS
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.deviceshare.implementation import DEVICES, NUMA, Gone, Placed, Said, placed
from tests.plugins.harness import StoppedClock

API_VERSION = "kubescheduler.config.k8s.io/v1"
PROFILE = "koord-scheduler"


def configuration(args, numa_args):
    """A profile with the two plugins, and what a profile must have."""
    both = [{"name": NUMA}, {"name": DEVICES}]
    points = {point: {"enabled": both} for point in ("filter", "reserve", "preBind")}
    given = [
        {"name": name, "args": {"apiVersion": API_VERSION, "kind": f"{name}Args", **(args or {})}}
        for name, args in ((NUMA, numa_args), (DEVICES, args))
    ]
    profile = {
        "schedulerName": PROFILE,
        "plugins": {
            "multiPoint": {"disabled": [{"name": "*"}]},
            "queueSort": {"enabled": [{"name": "PrioritySort"}]},
            "bind": {"enabled": [{"name": "DefaultBinder"}]},
            "postFilter": {"enabled": [{"name": "DefaultPreemption"}]},
            "preFilter": {"enabled": [{"name": "SchedulingHint"}, *both]},
            "score": {"enabled": [{**each, "weight": 1} for each in both]},
            **points,
        },
        "pluginConfig": given,
    }
    return {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


@lru_cache(maxsize=64)
def resolved(text, gates):
    """The configuration as the scheduler reads it."""
    features = FeatureGates.parse(f"{gate}=true" for gate in gates)
    return config.resolve(config.load(text, catalog=CATALOG, gates=features), catalog=CATALOG, gates=features)


class Written:
    """Takes what plugins write."""

    async def patch(self, kind, thing, changes, *, subresource=""):
        """The object with the annotations."""
        assert not subresource, "annotations are no part of a status"
        metadata = {"name": thing.metadata.name, "annotations": {**thing.metadata.annotations}}
        metadata["annotations"] |= changes["metadata"]["annotations"]
        return convert({"metadata": metadata}, kind.type)


class RealDecision:
    """A decision of the plugins."""

    def __init__(self, events, pod, args, numa_args, gates):
        document = resolved(json.dumps(configuration(args, numa_args)), tuple(gates))
        self.offline = OfflineScheduler(document, IN_TREE, (), clock=StoppedClock(), rng=Random(1))
        self.profile = self.offline.profiles[PROFILE]
        self.profile.handle.writes = Written()
        for event in events:
            if isinstance(event, Gone):
                self.remove(event.thing)
            else:
                self.put(event)
        self.key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.offline.add(pod)
        self.verdicts, self.raw, self.scores = {}, {}, {}
        self.attempt = self.offline.attempt(self.key)
        self.early = self.filter()
        if self.early.passed:
            self.score()

    def put(self, thing):
        """An object appeared or changed; a pod that ended leaves its node."""
        if (thing.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self.remove(thing)
        else:
            self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata, cluster = thing["metadata"], self.offline.cluster
        if thing["kind"] == "Node":
            cluster.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            cluster.pod_gone(metadata["uid"])
            cluster.remove_pod(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            cluster.objects.of(kind).delete(metadata.get("namespace", ""), metadata["name"])

    def filter(self):
        verdicts = self.attempt.filter(all_nodes=True)
        early = verdicts.pre_filtered.status
        if early.code.rejects or early.code.text == "Error":
            return told(early.plugin, early)
        reasons = self.profile.handle.reasons
        for name, row in self.offline.cluster.table.row_of.items():
            code = int(verdicts.codes[row])
            reason = reasons[code] if code != PASS else None
            self.verdicts[name] = Said(reason.plugin, reason.code.text, tuple(reason.texts)) if reason else Said()
        return Said()

    def score(self):
        if not self.attempt.verdicts.feasible:
            return
        names = [self.offline.cluster.table.names[row] for row in self.attempt.verdicts.rows.tolist()]
        for found in self.attempt.score().by_plugin(self.profile.chains):
            if found.plugin == DEVICES:
                self.raw = dict(zip(names, found.raw.tolist(), strict=True))
                self.scores = dict(zip(names, found.normalized.tolist(), strict=True))

    def place(self, node):
        """The pod on a node that passed; it leaves it again."""
        cluster = self.offline.cluster
        attempt = self.offline.attempt(self.key)
        attempt.filter(all_nodes=True)
        cycle, pod, row = attempt.cycle, attempt.pod, cluster.table.row_of[node]
        cluster.assume(pod, row)
        try:
            for plugin, status in self.steps(cycle, pod, row):
                if not status.ok:
                    return Placed(told(plugin.name, status))
        finally:
            for plugin in reversed(self.profile.reserve_plugins):
                plugin.unreserve(cycle, pod, row)
            cluster.forget(pod)
        changes = cycle.patch.changes(None)
        annotations = {key: text for key, text in changes.get("annotations", {}).items() if text is not None}
        return placed(annotations, changes.get("labels", {}))

    def steps(self, cycle, pod, row):
        """(plugin, status) of Reserve and PreBind, one after the other."""
        node = self.offline.cluster.table.names[row]
        for plugin in self.profile.reserve_plugins:
            yield plugin, plugin.reserve(cycle, pod, row)
        for plugin in self.profile.pre_bind_plugins:
            if plugin.pre_bind_pre_flight(cycle, pod, node).ok:
                yield plugin, asyncio.run(plugin.pre_bind(cycle, pod, node))


class RealImplementation:
    """The plugins."""

    def decide(self, events, pod, args=None, numa_args=None, gates=()):
        return RealDecision(events, pod, args, numa_args, gates)

    def victims(self, events, pod, args=None, numa_args=None, gates=()):
        decision = RealDecision(events, pod, args, numa_args, gates)
        victims = decision.offline.explain(decision.key).victims
        return [key.rpartition("/")[2] for key in victims]


def told(plugin, status):
    return Said(plugin, status.code.text, tuple(status.reasons))
