"""Restarts at random moments of a busy cluster: every number is what it would be if counted from scratch."""

import asyncio
import json
from random import Random

import pytest

from koordsched import config
from koordsched.client.errors import Ambiguous, NotSent
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.plugins.elasticquota import DECLARATION
from koordsched.plugins.elasticquota.arithmetic.amounts import texts
from koordsched.scheduling.offline import OfflineScheduler
from tests.depth import quick_first
from tests.plugins.elasticquota.controller.cluster import QUOTA_API, QuotaCluster, configuration, scheduling
from tests.virtualtime import run

RESTARTS = 20
LEAVES = ("a1", "a2", "b1", "b2", "solo")
NAMES = (*LEAVES, "a", "b")
NODES = [{"cpu": "40", "memory": "80Gi", "pods": "500"}] * 3


def quota(name, minimum, maximum, parent="", is_parent=False, lent=True, weight=None):
    prefix = "quota.scheduling.koordinator.sh/"
    labels = {prefix + "parent": parent, prefix + "is-parent": str(is_parent).lower()}
    if not lent:
        labels[prefix + "allow-lent-resource"] = "false"
    metadata = {"name": name, "namespace": "default", "labels": labels}
    if weight:
        metadata["annotations"] = {prefix + "shared-weight": f'{{"cpu":{weight},"memory":{weight}}}'}
    return {
        "apiVersion": QUOTA_API,
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {
            "min": {"cpu": str(minimum), "memory": f"{minimum}Gi"},
            "max": {"cpu": str(maximum), "memory": f"{2 * maximum}Gi"},
        },
    }


def pod(name, of, rng, classes):
    labels = {"quota.scheduling.koordinator.sh/name": of}
    if rng.random() < 0.2:
        labels["quota.scheduling.koordinator.sh/preemptible"] = "false"
    cpu, memory = rng.choice(("500m", "1", "2", "3300m")), rng.choice(("512Mi", "1Gi", "3Gi"))
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": rng.choice((0, 3)),
        "priorityClassName": f"class-{rng.randrange(classes)}",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


class Traffic:
    """What users do: pods come, go and change their quota; quotas change, move, go and come back."""

    def __init__(self, cluster, rng, classes):
        self._cluster = cluster
        self._classes = classes
        self._rng = rng
        self._serial = 0

    def setup(self):
        for value in range(self._classes):
            name = {"name": f"class-{value}"}
            self._cluster.create(
                {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": name, "value": value}
            )
        for thing in (
            quota("a", 30, 90, is_parent=True),
            quota("b", 30, 60, is_parent=True, lent=False),
            quota("a1", 10, 60, "a", weight=3),
            quota("a2", 20, 60, "a"),
            quota("b1", 10, 30, "b", lent=False),
            quota("b2", 5, 60, "b"),
            quota("solo", 0, 20),
        ):
            self._cluster.create(thing)

    def act(self):
        rng = self._rng
        roll = rng.random()
        pods = [one["metadata"]["name"] for one in self._cluster.pods()]
        if roll < 0.55 or not pods:
            self._serial += 1
            of = rng.choice((*LEAVES, *LEAVES, "a", "nobody", ""))
            self._cluster.create(pod(f"p{self._serial}", of, rng, self._classes))
        elif roll < 0.8:
            self._cluster.delete("Pod", rng.choice(pods))
        elif roll < 0.88:
            label = {"quota.scheduling.koordinator.sh/name": rng.choice(LEAVES)}
            self._cluster.patch("Pod", rng.choice(pods), {"metadata": {"labels": label}}, api_version="v1")
        else:
            self._change_quota(rng.choice(LEAVES))

    def _change_quota(self, name):
        rng = self._rng
        if self._cluster.quota(name) is None:
            self._cluster.create(quota(name, rng.randrange(10), rng.randrange(10, 60), rng.choice(("a", "b", ""))))
            return
        choice = rng.randrange(4)
        if choice == 0:
            self._cluster.delete("ElasticQuota", name, api_version=QUOTA_API)
        elif choice == 1:
            parent = {"quota.scheduling.koordinator.sh/parent": rng.choice(("a", "b", ""))}
            self._cluster.patch("ElasticQuota", name, {"metadata": {"labels": parent}})
        elif choice == 2:
            lent = {"quota.scheduling.koordinator.sh/allow-lent-resource": rng.choice(("true", "false"))}
            self._cluster.patch("ElasticQuota", name, {"metadata": {"labels": lent}})
        else:
            self._cluster.patch("ElasticQuota", name, {"spec": {"max": {"cpu": str(rng.randrange(5, 80))}}})


class Line:
    """The way to the API server, until it is cut: then what is under way is in doubt, and nothing gets through."""

    def __init__(self):
        self.cut = False

    async def __call__(self, call, proceed):
        if self.cut:
            raise NotSent("cut")
        reply = await proceed()
        if self.cut:
            raise Ambiguous("cut")
        return reply


def numbers(books):
    """Every number of every quota."""
    return {
        one.name: {
            "parent": one.parent.name if one.parent else "",
            "request": one.request,
            "child_request": one.child_request,
            "used": one.used,
            "non_preemptible": (one.non_preemptible_request, one.non_preemptible_used),
            "self": (one.self_request, one.self_used),
            "runtime": one.runtime,
            "scaled_min": one.scaled_min,
            "pods": sorted((member.pod.key, member.assigned) for member in books.members(one)),
        }
        for one in books.quotas()
    }


def books_of(profiles):
    return DECLARATION.plugin_in(profiles).books


def from_scratch(cluster, resolved):
    """The books of what the API server holds."""
    others = ("NodeMetric", "NodeResourceTopology", "Device", "Reservation", "PodGroup", "ClusterNetworkTopology")
    served = [cluster.resource(kind, version) for version, kind in KINDS if kind not in others]
    objects = [thing for resource in served for thing in cluster.registry.list(resource)]
    return books_of(OfflineScheduler(resolved, IN_TREE, objects, clock=cluster.clock, rng=Random(1)).profiles)


@pytest.mark.parametrize("drawn", quick_first([(4, 3), (1, 1), (3, 1)], 1))
def test_restarts(drawn):
    """`classes`: of priority. With several, a new scheduler may find a pod to preempt that the one before, which is not
    woken by chances to preempt, did not look for; with one, nothing may be different."""

    seed, classes = drawn

    async def main():
        rng = Random(seed)
        cluster = QuotaCluster(NODES, seed)
        traffic = Traffic(cluster, rng, classes)
        traffic.setup()
        config_ = configuration(delayEvictTime="3s")
        resolved = config.resolve(config.load(json.dumps(config_), catalog=CATALOG), catalog=CATALOG)
        before = None
        for number in range(RESTARTS + 1):
            line = Line()
            async with scheduling(cluster, config_, seed=seed * 100 + number, fault=line) as running:
                books = books_of(running.scheduler.profiles)
                if before is not None:
                    # Nothing had been under way when the one before ended: nothing is different.
                    await asyncio.sleep(rng.choice((0, 5)))
                    assert numbers(books) == before or classes > 1, f"restart {number}"
                for _ in range(rng.randrange(5, 25)):
                    traffic.act()
                    await asyncio.sleep(rng.choice((0, 0, 0.001, 0.2, 1.5)))
                before = None
                if number % 3 == 2 or number == RESTARTS:
                    await asyncio.sleep(40)
                    before = numbers(books)
                    assert before == numbers(from_scratch(cluster, resolved)), f"restart {number}"
                    check_shown(cluster, before)
                # Half of the times there is no farewell: no write gets through any more.
                line.cut = rng.random() < 0.5
        cluster.stop()

    run(main())


def check_shown(cluster, numbers):
    """The objects show the numbers."""
    for name in NAMES:
        if cluster.quota(name) is not None:
            assert (cluster.annotation(name, "request") or {}) == texts_of(numbers[name]["request"])
            assert (cluster.annotation(name, "runtime") or {}) == texts_of(numbers[name]["runtime"])
            assert cluster.used(name) == texts_of(numbers[name]["used"])


def texts_of(amounts):
    return {name: value for name, value in texts(amounts).items() if value != "0"}
