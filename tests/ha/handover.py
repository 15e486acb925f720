"""What a hand-over takes place in: static pods, somebody who runs koordsched's containers, a pod that preempts."""

import asyncio
import os
import signal
import sys

import aiohttp
import yaml

from koordsched.fakecluster.kubeconfig import kubeconfig, write_kubeconfig
from tests.ha.processes import Process, free_port

REAL = "KOORDSCHED_TEST_KUBE_SCHEDULER"
"""Environment variable: a kube-scheduler to use instead of the stand-in."""

LOOK_EVERY = 0.1
ISLAND = "island"
"""A node of its own with one CPU, for the pods of the preemption alone."""
HELD = "example.com/held"
"""Finalizer that keeps a victim terminating."""


class Watching:
    """A task that looks again and again, from `start` to `stop`."""

    def __init__(self):
        self._task = None

    def start(self):
        self._task = asyncio.create_task(self._look_again())

    async def stop(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look_again(self):
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY)


class StaticPods(Watching):
    """The kubelet of the control plane node: kube-scheduler runs while its manifest lies in the folder."""

    def __init__(self, folder, server):
        super().__init__()
        self._manifest = folder / "kube-scheduler.yaml"
        self._config = folder.parent / "scheduler-config.yaml"
        self._server = server
        self.process = None
        kubeconfig_file = folder.parent / "scheduler.conf"
        write_kubeconfig(kubeconfig_file, kubeconfig(server))
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig_file)},
            "leaderElection": {"leaderElect": True},
        }
        self._config.write_text(yaml.safe_dump(configuration))

    async def look(self):
        wanted = self._manifest.exists()
        running = self.process is not None and self.process.running
        if wanted and not running:
            if real := os.environ.get(REAL):
                command = [real, f"--config={self._config}", "--secure-port=0", "-v=2"]
            else:
                command = [sys.executable, "-m", "tests.ha.kubescheduler", f"--server={self._server}"]
            self.process = await Process.of(*command)
        elif running and not wanted:
            self.process.signal(signal.SIGTERM)
            await self.process.ended()

    async def stop(self):
        await super().stop()
        if self.process is not None:
            await self.process.destroy()


class Containers(Watching):
    """The kubelets of the embedded cluster run no containers; this runs those of the pods of a namespace.

    `processes`: uid -> process, of all pods that ever ran.
    """

    def __init__(self, server, namespace):
        super().__init__()
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._session = aiohttp.ClientSession(server)
        self.processes = {}

    @property
    def running(self):
        return [process for process in self.processes.values() if process.running]

    async def look(self):
        alive = set()
        for pod in (await self._get(self._pods))["items"]:
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                alive.add(pod["metadata"]["uid"])
                if pod["metadata"]["uid"] not in self.processes:
                    self.processes[pod["metadata"]["uid"]] = await self.run(pod)
        for uid, process in self.processes.items():
            if uid not in alive and process.running:
                process.signal(signal.SIGTERM)

    async def stop(self):
        await super().stop()
        for process in self.processes.values():
            await process.destroy()
        await self._session.close()

    async def run(self, pod):
        """The process of a pod that has just started."""
        raise AssertionError(f"what does {pod['metadata']['name']} run?")

    async def _get(self, path):
        async with self._session.get(path) as answer:
            return await answer.json()


class KoordschedContainers(Containers):
    """Those of the Deployment: with its arguments, and the configuration that is mounted."""

    def __init__(self, server, folder):
        super().__init__(server, "koordsched-system")
        self._folder = folder
        self._kubeconfig = folder / "account.kubeconfig"
        write_kubeconfig(self._kubeconfig, kubeconfig(server))

    async def run(self, pod):
        (container,) = pod["spec"]["containers"]
        (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "config")
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "config")
        path = f"/api/v1/namespaces/koordsched-system/configmaps/{volume['configMap']['name']}"
        files = (await self._get(path))["data"]
        mounted = self._folder / pod["metadata"]["uid"]
        mounted.mkdir()
        for name, text in files.items():
            (mounted / name).write_text(text)
        arguments = [argument.replace(mount["mountPath"], str(mounted)) for argument in container["args"]]
        # In a pod these come from the account and the network namespace.
        arguments += [f"--kubeconfig={self._kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"]
        return await Process.start(*arguments)


class KoordSchedulerContainers(Containers):
    """The stand-in in the place of koord-scheduler."""

    def __init__(self, server):
        super().__init__(server, "koordinator-system")
        self._server = server

    async def run(self, pod):
        options = ["--lease=koordinator-system/koord-scheduler", "--scheduler-name=koord-scheduler"]
        return await Process.of(sys.executable, "-m", "tests.ha.kubescheduler", f"--server={self._server}", *options)


class Preemption:
    """A pod that was nominated to the island, and the victim whose end it waits for."""

    def __init__(self, server, name, scheduler="default-scheduler"):
        self._session = aiohttp.ClientSession(server)
        self._name = name
        self._scheduler = scheduler

    async def close(self):
        await self._session.close()

    async def begin(self):
        """Until the pod is nominated and its victim is on its way out."""
        if await self._get("/api/v1/nodes/island") is None:
            await self._post("/api/v1/nodes", _island())
            await self._post("/apis/scheduling.k8s.io/v1/priorityclasses", _priority_class("important", 1000))
        victim, preemptor = f"{self._name}-victim", f"{self._name}-preemptor"
        await self._post(_PODS, self._pod("victim", finalizers=[HELD]))
        await self._until(lambda pod: pod["spec"].get("nodeName") == ISLAND, victim)
        await self._post(_PODS, self._pod("preemptor", priorityClassName="important"))
        await self._until(lambda pod: pod["status"].get("nominatedNodeName") == ISLAND, preemptor)
        await self._until(lambda pod: "deletionTimestamp" in pod["metadata"], victim)

    async def add_rival(self):
        """A pod of the victim's priority that would have room on the island once the victim is gone."""
        await self._post(_PODS, self._pod("rival"))

    async def nominated_to(self):
        """The node in the status of the pod, and the one it is bound to."""
        pod = await self._get(f"{_PODS}/{self._name}-preemptor")
        return pod["status"].get("nominatedNodeName"), pod["spec"].get("nodeName")

    async def end(self):
        """The victim goes; until the pod is bound."""
        patch = {"metadata": {"finalizers": None}}
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(f"{_PODS}/{self._name}-victim", json=patch, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        await self._until(lambda pod: pod["spec"].get("nodeName"), f"{self._name}-preemptor")

    async def outcome(self):
        """(node of the pod, node of the rival)"""
        pods = [await self._get(f"{_PODS}/{self._name}-{which}") for which in ("preemptor", "rival")]
        return tuple(pod["spec"].get("nodeName") for pod in pods)

    async def clear(self):
        """Deletes what is left."""
        for which in ("preemptor", "rival"):
            path = f"{_PODS}/{self._name}-{which}"
            async with self._session.delete(path, json={"gracePeriodSeconds": 0}) as answer:
                assert answer.status == 200, await answer.text()

    def _pod(self, which, finalizers=(), **spec):
        """A pod for the island, which has room for one."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self._name}-{which}", "finalizers": list(finalizers)},
            "spec": {
                "schedulerName": self._scheduler,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "900m"}}}],
                "nodeSelector": {ISLAND: "true"},
                "tolerations": [{"key": ISLAND, "operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }

    async def _until(self, condition, name, within=60.0):
        async with asyncio.timeout(within):
            while True:
                pod = await self._get(f"{_PODS}/{name}")
                if condition(pod):
                    return
                await asyncio.sleep(LOOK_EVERY)

    async def _get(self, path):
        async with self._session.get(path) as answer:
            return await answer.json() if answer.status == 200 else None

    async def _post(self, path, thing):
        async with self._session.post(path, json=thing) as answer:
            assert answer.status == 201, await answer.text()


_PODS = "/api/v1/namespaces/default/pods"


def _island():
    capacity = {"cpu": "1", "memory": "16Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": ISLAND,
            "labels": {ISLAND: "true", "kubernetes.io/hostname": ISLAND},
            "annotations": {"koordsched.io/hollow": "true"},
        },
        "spec": {"taints": [{"key": ISLAND, "effect": "NoSchedule"}]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _priority_class(name, value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
