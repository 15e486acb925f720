"""A stand-in for kube-scheduler, as far as a hand-over needs one: the lease, placing, preemption with nominations.

    python -m tests.ha.kubescheduler --server http://127.0.0.1:PORT [--lease NAMESPACE/NAME] [--scheduler-name NAME]

It shares no code with the scheduler. Lease: client-go `tools/leaderelection`, with kube-scheduler's settings (15 s,
10 s, 2 s, released on SIGTERM). Preemption: victims are deleted, the pod keeps `status.nominatedNodeName`, and is bound
when they are gone; meanwhile their room belongs to nobody of lower or equal priority.
"""

import argparse
import asyncio
import contextlib
import datetime
import platform
import signal
import sys
import uuid

import aiohttp

LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15, 10, 2
LOOK_EVERY = 0.1


def stamp():
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def milli(quantity):
    """CPU as the pods of these tests request it."""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def requested(pod):
    return sum(milli(c.get("resources", {}).get("requests", {}).get("cpu", "0")) for c in pod["spec"]["containers"])


def tolerates(pod, taint):
    return any(
        t.get("key") in (None, taint["key"]) and t.get("effect") in (None, taint["effect"])
        for t in pod["spec"].get("tolerations", ())
    )


def admits(node, pod):
    """Whether a node takes the pod, were it empty."""
    spec, labels = node["spec"], node["metadata"].get("labels", {})
    taints = [t for t in spec.get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
    return (
        not spec.get("unschedulable")
        and all(tolerates(pod, taint) for taint in taints)
        and pod["spec"].get("nodeSelector", {}).items() <= labels.items()
        and requested(pod) <= milli(node["status"]["allocatable"]["cpu"])
    )


def priority(pod):
    return pod["spec"].get("priority") or 0


class Lock:
    """The lease: taken when nobody holds it, or when it has not changed for as long as it lasts."""

    def __init__(self, session, lease):
        self._session = session
        self._namespace, _, self._name = lease.partition("/")
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._path = f"{self._collection}/{self._name}"
        self._identity = f"{platform.node()}_{uuid.uuid4()}"
        self._seen = (None, 0.0)
        self._renewed = float("-inf")

    @property
    def held(self):
        return asyncio.get_running_loop().time() < self._renewed + RENEW_SECONDS

    async def attempt(self):
        """Takes or renews it, if it may."""
        now = asyncio.get_running_loop().time()
        async with self._session.get(self._path) as answer:
            lease = await answer.json() if answer.status == 200 else None
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._claim({}),
            }
            async with self._session.post(self._collection, json=body) as answer:
                self._won(answer.status == 201, now)
            return
        spec = lease["spec"]
        if spec != self._seen[0]:
            self._seen = (spec, now)
        holder = spec.get("holderIdentity")
        expired = now > self._seen[1] + spec.get("leaseDurationSeconds", LEASE_SECONDS)
        if holder in (None, "", self._identity) or expired:
            lease["spec"] = self._claim(spec)
            async with self._session.put(self._path, json=lease) as answer:
                self._won(answer.status == 200, now)
        else:
            self._renewed = float("-inf")

    async def release(self):
        """Gives it back."""
        if not self.held:
            return
        async with self._session.get(self._path) as answer:
            lease = await answer.json()
        self._renewed = float("-inf")
        transitions = lease["spec"].get("leaseTransitions", 0)
        lease["spec"] = {
            "leaseDurationSeconds": 1,
            "acquireTime": stamp(),
            "renewTime": stamp(),
            "leaseTransitions": transitions,
        }
        async with self._session.put(self._path, json=lease):
            pass

    def _claim(self, spec):
        ours = spec.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": spec["acquireTime"] if ours else stamp(),
            "renewTime": stamp(),
            "leaseTransitions": spec.get("leaseTransitions", 0) + (bool(spec) and not ours),
        }

    def _won(self, granted, now):
        if granted and not self.held:
            print(f"successfully acquired lease {self._namespace}/{self._name}", flush=True)
        self._renewed = now if granted else float("-inf")


class Scheduler:
    """Places what waits, most important first, one look at the cluster at a time."""

    def __init__(self, session, lock, name):
        self._session = session
        self._lock = lock
        self._name = name

    async def look(self):
        """One look: every pod that fits is bound, the first that does not and may preempt does."""
        pods, nodes = await self._list("pods"), await self._list("nodes")
        on = {node["metadata"]["name"]: [] for node in nodes}
        waiting = []
        for pod in pods:
            name = pod["spec"].get("nodeName")
            if name in on and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                on[name].append(pod)
            elif (
                not name
                and pod["spec"]["schedulerName"] == self._name
                and "deletionTimestamp" not in pod["metadata"]
                and not pod["spec"].get("schedulingGates")
            ):
                waiting.append(pod)
        waiting.sort(key=priority, reverse=True)
        for pod in waiting:
            if not self._lock.held:
                return
            fitting = [node for node in nodes if admits(node, pod) and self._fits(node, on, waiting, pod)]
            if fitting:
                node = min(fitting, key=lambda node: sum(map(requested, on[node["metadata"]["name"]])))
                await self._bind(pod, node["metadata"]["name"])
                on[node["metadata"]["name"]].append(pod)
            elif not pod["status"].get("nominatedNodeName"):
                await self._preempt(pod, nodes, on)

    def _fits(self, node, on, waiting, pod):
        name = node["metadata"]["name"]
        promised = [
            other
            for other in waiting
            if other is not pod
            and other["status"].get("nominatedNodeName") == name
            and priority(other) >= priority(pod)
            and other not in on[name]
        ]
        used = sum(map(requested, on[name] + promised))
        return used + requested(pod) <= milli(node["status"]["allocatable"]["cpu"])

    async def _preempt(self, pod, nodes, on):
        for node in nodes:
            name = node["metadata"]["name"]
            victims = [other for other in on[name] if priority(other) < priority(pod)]
            kept = sum(requested(other) for other in on[name] if other not in victims)
            room = milli(node["status"]["allocatable"]["cpu"]) - kept
            if not (admits(node, pod) and victims and requested(pod) <= room):
                continue
            pod["status"]["nominatedNodeName"] = name
            patch = {"status": {"nominatedNodeName": name}}
            kind = {"Content-Type": "application/merge-patch+json"}
            async with self._session.patch(f"{self._path(pod)}/status", json=patch, headers=kind):
                pass
            for victim in victims:
                async with self._session.delete(self._path(victim)):
                    pass
            return

    async def _bind(self, pod, node):
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        async with self._session.post(f"{self._path(pod)}/binding", json=body):
            pass

    async def _list(self, plural):
        async with self._session.get(f"/api/v1/{plural}") as answer:
            return (await answer.json())["items"]

    @staticmethod
    def _path(pod):
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def run(server, lease, name):
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with aiohttp.ClientSession(server) as session:
        lock = Lock(session, lease)
        scheduler = Scheduler(session, lock, name)

        async def keep():
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    await lock.attempt()
                await asyncio.sleep(RETRY_SECONDS)

        keeping = asyncio.create_task(keep())
        while not stopping.is_set():
            if lock.held:
                with contextlib.suppress(aiohttp.ClientError):
                    await scheduler.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await stopping.wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lock.release()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--lease", default="kube-system/kube-scheduler")
    parser.add_argument("--scheduler-name", default="default-scheduler")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(run(arguments.server, arguments.lease, arguments.scheduler_name)))
