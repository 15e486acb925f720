"""A cluster with quotas, to which objects are added, changed and removed as watches would do it."""

import json
from random import Random

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.explain import explain
from koordsched.framework.interface import CycleState
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.elasticquota.arithmetic.amounts import parse, texts
from koordsched.plugins.elasticquota.kinds import ELASTIC_QUOTAS
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.harness import StoppedClock

PLUGINS = {point: {"enabled": [{"name": "ElasticQuota"}]} for point in ("preFilter", "reserve")}
ONLY_QUOTA_PREEMPTS = {"disabled": [{"name": "*"}], "enabled": [{"name": "ElasticQuota"}]}


def configuration(args=None, post_filter=None):
    """A configuration with quotas; `args` are those of the plugin."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "ElasticQuotaArgs"}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {**PLUGINS, "postFilter": post_filter or ONLY_QUOTA_PREEMPTS},
                "pluginConfig": [{"name": "ElasticQuota", "args": {**kind, **(args or {})}}],
            }
        ],
    }


class Clock(StoppedClock):
    """Time passes when told."""

    now = 1_800_000_000.0

    def wall(self):
        return self.now


class World:
    """The scheduler's state, as watches leave it. `gates`: names of feature gates that are on."""

    def __init__(self, *objects, args=None, gates=(), post_filter=None):
        features = config.FeatureGates.parse([f"{gate}=true" for gate in gates])
        text = json.dumps(configuration(args, post_filter))
        resolved = config.resolve(config.load(text, catalog=CATALOG, gates=features), catalog=CATALOG, gates=features)
        self.clock = Clock()
        self.offline = OfflineScheduler(resolved, IN_TREE, (), clock=self.clock, rng=Random(1))
        self.cluster = self.offline.cluster
        self.profile = self.offline.profiles["default-scheduler"]
        self.plugin = self.profile.plugins["ElasticQuota"]
        self.books = self.plugin.books
        self.announced = []
        self.cluster.on_event(lambda event, old, new: self.announced.append((event, new)))
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed."""
        if thing["kind"] == "Pod" and thing["spec"].get("nodeName"):
            self.offline.pending.pop(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}", None)
        return self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata = thing["metadata"]
        if thing["kind"] == "Node":
            self.cluster.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            self.offline.pending.pop(f"{metadata['namespace']}/{metadata['name']}", None)
            self.cluster.pod_gone(metadata["uid"])
            self.cluster.remove_pod(metadata["uid"])
        else:
            self.cluster.objects.of(ELASTIC_QUOTAS).delete(metadata["namespace"], metadata["name"])

    def pod(self, thing):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(thing, core.Pod))

    def quota(self, name):
        """A quota by its name."""
        return self.books.quota(name)

    def shown(self, name, number):
        """A number of a quota as texts, without zero entries."""
        amounts = getattr(self.books.quota(name), number)
        return {resource: text for resource, text in texts(amounts).items() if amounts[resource]}

    def runtime(self, *names, resource="cpu"):
        """The runtimes of quotas in one resource, as texts."""
        return [texts(self.books.quota(name).runtime).get(resource) for name in names]

    def refusal(self, thing):
        """What PreFilter says about a pending pod: the message, None if it passes."""
        pod = self.pod(thing)
        status = self.plugin.pre_filter(CycleState(pod), pod)
        return None if status.ok else status.message

    def explain(self, thing):
        """What would be done with a pod that is there already."""
        key = f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
        return explain(self.profile, self.cluster, self.offline.pending[key])


def amounts(**quantities):
    """Quantities as the books hold them; `gpu` is nvidia.com/gpu."""
    return parse({{"gpu": "nvidia.com/gpu"}.get(key, key): value for key, value in quantities.items()})[0]
