"""The cluster state written back as objects: nothing that decisions rest on is lost, nothing private is shown."""

import asyncio
import json
from random import Random

import msgspec

from koordsched import config
from koordsched.engine.explain import explain
from koordsched.plugins import IN_TREE
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.snapshot import snapshot
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run

SECRET = "hush"


def restored(objects, clock):
    resolved = config.resolve(config.load(json.dumps(DEFAULT_CONFIG)))
    return OfflineScheduler(resolved, IN_TREE, objects, clock=clock, rng=Random(1))


def written(scheduler):
    """The snapshot, after a trip through JSON."""
    return [json.loads(msgspec.json.encode(thing)) for thing in snapshot(scheduler.cluster, scheduler.pending_pods())]


def accounts(cluster):
    """What counts against each node, and where each pod is."""
    table = cluster.table
    names = table.resource_names.names
    books = {}
    for name, row in table.row_of.items():
        books[name] = (
            {names[i]: int(column.data[row]) for i, column in enumerate(table.requested) if column.data[row]},
            {names[i]: int(column.data[row]) for i, column in enumerate(table.allocatable) if column.data[row]},
            [int(column.data[row]) for column in table.requested_nonzero],
            int(table.pods_count.data[row]),
            table.taint_sets[table.taint_set.data[row]],
            bool(table.unschedulable.data[row]),
            table.images.on_row(row),
        )
    pods = {
        pod.key: (pod.node, pod.priority, pod.labels.labels, pod.owner, pod.deleting, pod.preempted, pod.start_time)
        for pod in cluster.assigned.values()
    }
    return books, pods


def with_secrets(thing):
    thing["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "vault.example.com/token": SECRET,
        "evilkubernetes.io/x": SECRET,
        "scheduler.alpha.kubernetes.io/shown": "yes",
    }
    for each in thing["spec"].get("containers", ()):
        each["env"] = [{"name": "PASSWORD", "value": SECRET}]
        each["command"] = ["login", SECRET]
    return thing


def test_what_is_restored_decides_alike():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", labels={"zone": "a"}, images={"img:1": 300, "img:2": 10}))
        embedded.insert(node("beech", taints=[("k", "NoSchedule", "v")], gpu="4", memory="1Gi"))
        embedded.insert(node("cedar", unschedulable=True))
        embedded.insert(
            pod(
                "web", container(cpu="1", ports=[80]), container(name="d", memory="64Mi"), on="alder", labels={"a": "b"}
            )
        )
        owned = pod("owned", container(cpu="250m"), on="beech", priority=7)
        owned["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
        ]
        owned["status"]["startTime"] = "2029-12-31T00:00:00Z"
        embedded.insert(owned)
        resized = pod("resized", container(cpu="1", memory="1Gi", gpu="1"), on="beech")
        resized["status"]["containerStatuses"] = [
            {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "ex.com/gpu": "1"}}}
        ]
        embedded.insert(resized)
        leaving = pod("leaving", container(cpu="1"), on="cedar")
        leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:30Z"
        leaving["metadata"]["finalizers"] = ["x.io/keep"]
        embedded.insert(leaving)
        embedded.insert(pod("big", container(cpu="100")))
        embedded.insert(pod("foreign", container(), schedulerName="other"))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(3)
            scheduler = running.scheduler
            offline = restored(written(scheduler), embedded.clock)
            assert accounts(offline.cluster) == accounts(scheduler.cluster)
            assert list(offline.pending) == ["default/big"]
            (waiting,) = scheduler.pending_pods()
            live = explain(scheduler.profiles["default-scheduler"], scheduler.cluster, waiting)
            assert offline.explain("default/big") == live

    run(main())


def test_nothing_private_is_shown():
    async def main():
        embedded = Embedded()
        embedded.insert(with_secrets(node("alder")))
        embedded.insert(with_secrets(pod("bound", on="alder")))
        embedded.insert(with_secrets(pod("big", container(cpu="100"))))
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(1)
            objects = written(running.scheduler)
            assert SECRET not in json.dumps(objects)
            shown = {thing["metadata"]["name"]: thing["metadata"].get("annotations") for thing in objects}
            assert shown["alder"] == shown["big"] == {"scheduler.alpha.kubernetes.io/shown": "yes"}

    run(main())


def test_workloads_ask_for_no_pods_of_their_own():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        selector = {"matchLabels": {"app": "web"}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()]}}
        embedded.insert(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "web"},
                "spec": {"replicas": 0, "selector": selector, "template": template},
            }
        )
        async with scheduler_on(embedded) as running:
            await asyncio.sleep(1)
            (seen,) = [thing for thing in written(running.scheduler) if thing["kind"] == "ReplicaSet"]
            assert seen["spec"] == {"replicas": 0, "selector": selector}
            assert seen["apiVersion"] == "apps/v1"

    run(main())
