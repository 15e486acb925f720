"""An embedded cluster with controllers, hollow nodes and the quota kinds, a scheduler with ElasticQuota on it, all on
virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

from koordsched.fakecluster.controllers import Controllers
from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from koordsched.plugins import CONTROLLERS
from koordsched.plugins.elasticquota import kinds as api
from tests.embedded import Embedded, scheduler_on
from tests.yamlfiles import documents

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "config" / "examples" / "quota"
QUOTA_API = "scheduling.sigs.k8s.io/v1alpha1"
PROFILE_API = "quota.koordinator.sh/v1alpha1"
BUILT_IN = (api.ROOT_QUOTA, api.SYSTEM_QUOTA, api.DEFAULT_QUOTA)


def configuration(**args):
    """The configuration of the examples, with these arguments of the plugin."""
    (config,) = documents(EXAMPLES / "scheduler.yaml")
    config["profiles"][0]["pluginConfig"][0]["args"].update(args)
    return config


class QuotaCluster(Embedded):
    """With kubelets and the controllers of Kubernetes; `nodes`: allocatable per node."""

    def __init__(self, nodes=None, seed=1):
        super().__init__(seed)
        template = {"templates": [{"nodeName": "node-${index}", "count": 1, "capacity": nodes}]} if nodes else None
        count = len(nodes) if isinstance(nodes, list) else None
        if count is not None:
            template = {
                "templates": [
                    {"nodeName": f"node-{number}", "count": 1, "capacity": capacity}
                    for number, capacity in enumerate(nodes)
                ]
            }
        options = HollowOptions(template=template or str(EXAMPLES / "node-template.yaml"))
        self.kube = Controllers(self.registry)
        self.hollow = HollowNodes(self.registry, options)
        self.kube.start()
        self.hollow.start()
        for crd in ("elasticquotas", "elasticquotaprofiles"):
            self.apply(ROOT / "manifests" / "crds" / f"{crd}.yaml")
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}})

    def stop(self):
        self.hollow.stop()
        self.kube.stop()

    def create(self, thing):
        thing = json.loads(json.dumps(thing))
        resource = self.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
        namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
        return self.registry.create(resource, namespace, thing)

    def apply(self, *paths):
        """Creates what is in the files, and not there yet."""
        for path in paths:
            for thing in documents(path):
                meta = thing["metadata"]
                if self.get(thing["kind"], meta["name"], meta.get("namespace", "default"), thing["apiVersion"]) is None:
                    self.create(thing)

    def patch(self, kind, name, patch, namespace="default", api_version=QUOTA_API):
        return self.registry.patch(self.resource(kind, api_version), namespace, name, patch, "merge", "")

    def delete(self, kind, name, namespace="default", api_version="v1"):
        resource = self.resource(kind, api_version)
        self.registry.delete(resource, namespace if resource.namespaced else None, name)

    def quota(self, name, namespace="default"):
        return self.get("ElasticQuota", name, namespace, QUOTA_API)

    def annotation(self, name, key, namespace="default"):
        """The amounts in an annotation of a quota, without zeros; None if there is none."""
        text = (self.quota(name, namespace)["metadata"].get("annotations") or {}).get(api.PREFIX + key)
        return None if text is None else {key: value for key, value in json.loads(text).items() if value != "0"}

    def used(self, name, namespace="default"):
        return {
            k: v for k, v in ((self.quota(name, namespace).get("status") or {}).get("used") or {}).items() if v != "0"
        }

    def pods(self, namespace="default", **labels):
        selector = ",".join(f"{key}={value}" for key, value in labels.items()) or None
        return self.registry.list(self.registry.pods, namespace, label_selector=selector)

    def running(self, namespace="default", **labels):
        """Names of the pods that have a node and are not on their way out."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.pods(namespace, **labels)
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        )

    def condition(self, name, namespace="default"):
        """(status, reason, message) of PodScheduled."""
        for each in (self.get("Pod", name, namespace).get("status") or {}).get("conditions") or ():
            if each["type"] == "PodScheduled":
                return each["status"], each.get("reason"), each.get("message")
        return None

    def notes(self, name):
        """(reason, note) of the events about an object."""
        return [(event["reason"], event["note"]) for event in self.events() if event["regarding"].get("name") == name]

    async def until(self, condition, limit=120.0, step=0.1):
        """Lets time pass until the condition holds; the seconds it took."""
        started = self.clock.monotonic()
        while not condition():
            waited = self.clock.monotonic() - started
            assert waited < limit, f"not so after {waited} s"
            await asyncio.sleep(step)
        return self.clock.monotonic() - started


@asynccontextmanager
async def scheduling(cluster, config=None, **options):
    """A scheduler that leads, on the cluster."""
    async with scheduler_on(cluster, config or configuration(), controllers=CONTROLLERS, **options) as running:
        yield running


@asynccontextmanager
async def quota_cluster(nodes=None, config=None, seed=1, **options):
    """Both; (cluster, running)."""
    cluster = QuotaCluster(nodes, seed)
    try:
        async with scheduling(cluster, config, seed=seed, **options) as running:
            yield cluster, running
    finally:
        cluster.stop()
