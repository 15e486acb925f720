"""Gangs on an embedded API server, what came of them, and what must hold whenever nothing is under way."""

import asyncio
import json

from koordsched.framework.interface import Permit
from koordsched.framework.status import Code, Status
from koordsched.plugins.coscheduling.cache import GangCache
from tests.plugins.coscheduling.running import API, GANG, LABEL, GangCluster, configuration, scheduling

REJECTED = 'GangGroup "default/{gang}" gets rejected due to member Pod "default/{pod}" is unschedulable with reason '


class Holds(Permit):
    """Has all pods wait."""

    name = "Holds"

    def __init__(self, args, handle):
        pass

    def events_to_register(self):
        return []

    def permit(self, cycle, pod, row):
        return Status(Code.WAIT), 600.0


def annotations(**options):
    """Gang options of pods and PodGroups."""
    return {GANG + key.replace("_", "-"): text for key, text in options.items()}


class Gangs(GangCluster):
    """With pods of all kinds, and shorthands for what they show."""

    def pod(self, name, gang="g", *, cpu="1", node="", by="PodGroup", namespace="default", **more):
        """Puts a pod in. `by`: what names the gang, its label, or its annotations (a dict of options), or None.

        `more`: priority, gates, finalizers, scheduler, uid, labels, annotations, and fields of the spec.
        """
        labels, notes = dict(more.pop("labels", {})), dict(more.pop("annotations", {}))
        if by == "PodGroup":
            labels[LABEL] = gang
        elif by is not None:
            notes |= annotations(name=gang, **by)
        meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": notes}
        for key in ("finalizers", "uid"):
            if key in more:
                meta[key] = more.pop(key)
        spec = {
            "schedulerName": more.pop("scheduler", "default-scheduler"),
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            "terminationGracePeriodSeconds": 0,
        }
        if gates := more.pop("gates", ()):
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        if node:
            spec["nodeName"] = node
        thing = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": spec | more,
            "status": {"phase": "Pending"},
        }
        self.registry.strategy(self.resource("Pod")).defaults(thing)
        self.insert(thing)

    def pods(self, *names, **more):
        """Puts several alike in."""
        for name in names:
            self.pod(name, **more)

    def patch(self, kind, name, patch, api_version="v1", subresource="", namespace="default"):
        """Merges into an object."""
        resource = self.resource(kind, api_version)
        space = namespace if resource.namespaced else None
        return self.registry.patch(resource, space, name, patch, "merge", subresource)

    def change(self, name, labels=None, notes=None, cpu=None, **meta):
        """Changes a pod, past validation: labels, annotations, what it requests, other metadata."""
        resource = self.resource("Pod")
        record = self.registry.collection(resource).items["default", name]
        pod = json.loads(json.dumps(self.get("Pod", name)))
        pod["metadata"] |= meta
        pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | (labels or {})
        pod["metadata"]["annotations"] = pod["metadata"].get("annotations", {}) | (notes or {})
        if cpu:
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        self.registry._commit(resource, "MODIFIED", record, pod, dry_run=False)

    def finish(self, name):
        """A pod that is being deleted, whose finalizers are done, goes."""
        self.change(name, finalizers=[])
        self.remove("Pod", name)

    def regroup(self, name, minimum=None, **options):
        """Changes a PodGroup."""
        patch = {"metadata": {"annotations": annotations(**options)}}
        if minimum is not None:
            patch["spec"] = {"minMember": minimum}
        self.patch("PodGroup", name, patch, API)

    def remove(self, kind, name, api_version="v1", namespace="default"):
        """Deletes an object at once."""
        resource = self.resource(kind, api_version)
        grace = {"grace_period_seconds": 0} if kind == "Pod" else {}
        self.registry.delete(resource, namespace if resource.namespaced else None, name, **grace)

    def node_of(self, name, namespace="default"):
        """The node of a pod, "" if it has none."""
        return self.get("Pod", name, namespace)["spec"].get("nodeName", "")

    def bound(self, namespace="default"):
        """The names of all pods with a node."""
        return sorted(self.names(lambda pod: pod["spec"].get("nodeName"), namespace))

    def waiting(self, namespace="default"):
        """The names of all pods without."""
        return sorted(self.names(lambda pod: not pod["spec"].get("nodeName"), namespace))

    def leaving(self, namespace="default"):
        """The names of all pods that are being deleted."""
        return sorted(self.names(lambda pod: "deletionTimestamp" in pod["metadata"], namespace))

    def names(self, condition, namespace="default"):
        pods = self.registry.list(self.resource("Pod"))
        return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["namespace"] == namespace and condition(pod)]

    def message(self, name, namespace="default"):
        """What the condition PodScheduled of a pod says, "" if there is none."""
        status = self.get("Pod", name, namespace).get("status", {})
        found = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        return found[0].get("message", "") if found else ""

    def notice(self, name):
        """What a pod shows that waits without having been refused, "" for nothing."""
        found = [
            each
            for each in self.get("Pod", name).get("status", {}).get("conditions", ())
            if each["type"] == "koordsched.io/Waiting" and each["status"] == "True"
        ]
        return found[0]["message"] if found else ""

    def nominated(self, name):
        """The node that a pod is nominated to, "" if to none."""
        return self.get("Pod", name).get("status", {}).get("nominatedNodeName", "")


def cache_of(scheduler):
    """The gangs of a scheduler."""
    return next(iter(scheduler.profiles.values())).plugins["Coscheduling"].cache


def check(running):
    """What must hold while nothing is under way."""
    scheduler = running.scheduler
    assert running.work is None or not running.work.done(), "the scheduler runs"
    assert scheduler.queue.in_flight_pods() == [], "a pod is in flight for ever"
    assert not scheduler.cluster.in_transaction
    assert len(scheduler.waiting) == 0
    assert not scheduler.cluster.assumed
    queued = {each.pod.uid for each in scheduler.queue}
    assert queued == {pod.uid for pod in scheduler.pending_pods()}, "every pending pod is in the queue"
    cache: GangCache = cache_of(scheduler)
    assert cache.round is None
    known = {pod.uid: pod for pod in scheduler.pending_pods()}
    for gang in cache.gangs.values():
        assert not gang.waiting
        assert gang.pending.keys() | gang.bound.keys() == gang.children.keys()
        for uid, pod in gang.pending.items():
            if uid in known:
                assert pod is known[uid], f"{pod.key} is an older version"
        assert gang.group.gangs[gang.id] is gang
        assert not gang.group.binding_members
    for group in cache.groups():
        if group.order is not None:
            tried = {pod.uid for pod in group.pending() if cache.placeable(pod)}
            assert {pod.uid for pod in group.order} == tried, "members are those that wait"


async def settle(running, seconds=3.0):
    """Lets time pass; then everything must be in order."""
    await asyncio.sleep(seconds)
    check(running)


def text(thing):
    """As JSON."""
    return json.dumps(thing)


__all__ = ["API", "GANG", "LABEL", "Gangs", "cache_of", "check", "configuration", "scheduling", "settle", "text"]
