"""An embedded cluster as a process, somebody who watches every pod of it, and a load that never ends."""

import asyncio
import json
import signal
from collections import Counter

import aiohttp

from tests.ha.processes import Process, free_port

NODES, SLOTS = 10, 8
"""Nodes, and how many pods of the load fit on each: few, so that one too many would show."""

NEARLY_ALL = NODES * SLOTS - 5
"""Pods of the load that there are at a time, unless told otherwise."""

TEMPLATE = {"templates": [{"nodeName": "node-${index}", "weight": 1, "capacity": {"cpu": 4, "memory": "16Gi"}}]}


def pod(name):
    """A pod of the load: one slot."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "load"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
    }


class Cluster:
    """`bindings`: (loop time, pod) in order; `wrong`: what must never happen and did."""

    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.process = None
        self.bindings = []
        self.wrong = []
        self.holder = ""
        self.holders = []
        """(loop time, identity) of every new holder of the lease."""
        self._node_of = {}
        self._used = Counter()
        self._created = 0
        self._confirmed, self._let_go = set(), set()
        """Names of pods of the load: those that the server confirmed, and those that were to be deleted."""
        self._load_bound = {}
        """uid -> name of the pods of the load that are bound, oldest first."""
        self._lives = 0
        self._dump = None
        self._tasks = []
        self._changed = asyncio.Condition()
        self._session = aiohttp.ClientSession(f"http://127.0.0.1:{self.port}")

    async def start(self, *more):
        """Starts the server; again with --load."""
        template = self.directory / "template.yaml"
        template.write_text(json.dumps(TEMPLATE))
        self._dump = self.directory / f"dump-{self._lives}"
        self._lives += 1
        nodes = () if more else ("--nodes", str(NODES), "--node-template", str(template))
        self.process = await Process.start(
            "fakecluster",
            f"--port={self.port}",
            "--pod-start-delay=0.1",
            f"--dump={self._dump}",
            *nodes,
            *more,
        )
        await self.process.wait_for("fakecluster ready")

    async def restart(self):
        """Ends the server while it is being written to, and starts it with the state it had."""
        dump = self._dump
        self.process.signal(signal.SIGTERM)
        await self.process.ended()
        await self.start("--load", str(dump))

    def observe(self):
        """Begins to watch pods and the lease."""
        create = asyncio.create_task
        self._tasks.append(create(self._follow("/api/v1/pods", self._pod)))
        self._tasks.append(create(self._follow("/apis/coordination.k8s.io/v1/leases", self._lease)))

    def put_under_load(self, per_second, at_most=NEARLY_ALL):
        """Creates pods, and deletes the oldest bound ones so that there are about so many."""
        self._tasks.append(asyncio.create_task(self._load(per_second, at_most)))

    async def stop_load(self):
        """No more pods come or go."""
        task = self._tasks.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        await self.process.destroy()

    # --- questions ---------------------------------------------------------------------------------

    async def next_binding_under(self, identity_before, after, within):
        """Seconds from `after` to the first binding under another leader than before. Raises TimeoutError."""

        def found():
            taken = [t for t, holder in self.holders if t >= after and holder not in ("", identity_before)]
            return next((t for t, _ in self.bindings if taken and t >= taken[0]), None)

        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: found() is not None)
        return found() - after

    async def more_bindings(self, count, within):
        """Until so many more pods are bound."""
        goal = len(self.bindings) + count
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: len(self.bindings) >= goal)

    async def pods(self):
        """All pods."""
        async with self._session.get("/api/v1/pods") as answer:
            return (await answer.json())["items"]

    async def all_bound(self, within):
        """Until no pod waits; none of the load may have gone but those that the load deleted."""
        async with asyncio.timeout(within):
            while True:
                pods = await self.pods()
                if all(pod["spec"].get("nodeName") for pod in pods):
                    break
                await asyncio.sleep(0.1)
        lost = self._confirmed - self._let_go - {pod["metadata"]["name"] for pod in pods}
        assert not lost

    async def settled(self, within):
        """Until no pod waits that has room."""
        async with asyncio.timeout(within):
            while True:
                pods = await self.pods()
                bound = sum(1 for thing in pods if thing["spec"].get("nodeName"))
                if bound == min(len(pods), NODES * SLOTS):
                    return
                await asyncio.sleep(0.2)

    # --- watching ----------------------------------------------------------------------------------

    async def _follow(self, path, handle):
        """Lists and watches for ever; across restarts of the server too."""
        forever = aiohttp.ClientTimeout(total=None)
        while True:
            try:
                async with self._session.get(path) as answer:
                    listed = await answer.json()
                if handle == self._pod:
                    self._forget_all_but({item["metadata"]["uid"] for item in listed["items"]})
                for item in listed["items"]:
                    await self._tell(handle, "MODIFIED", item)
                query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with self._session.get(path, params=query, timeout=forever) as stream:
                    async for line in stream.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        await self._tell(handle, event["type"], event["object"])
            except (aiohttp.ClientError, OSError, json.JSONDecodeError):
                await asyncio.sleep(0.05)

    async def _tell(self, handle, kind, thing):
        async with self._changed:
            handle(kind, thing, asyncio.get_running_loop().time())
            self._changed.notify_all()

    def _forget_all_but(self, present):
        for uid in self._node_of.keys() - present:
            self._forget(uid)

    def _forget(self, uid):
        node = self._node_of.pop(uid, "")
        if self._load_bound.pop(uid, None) is not None:
            self._used[node] -= 1

    def _lease(self, kind, thing, now):
        holder = thing["spec"].get("holderIdentity") or ""
        if holder != self.holder:
            self.holder = holder
            self.holders.append((now, holder))

    def _pod(self, kind, thing, now):
        uid, node = thing["metadata"]["uid"], thing["spec"].get("nodeName", "")
        before = self._node_of.get(uid, "")
        if kind == "DELETED":
            self._forget(uid)
            return
        if before and node != before:
            self.wrong.append(f"pod {thing['metadata']['name']} moved from {before} to {node}")
        if node and not before:
            self._node_of[uid] = node
            self.bindings.append((now, thing["metadata"]["name"]))
            if thing["metadata"].get("labels", {}).get("app") == "load":
                self._load_bound[uid] = thing["metadata"]["name"]
                self._used[node] += 1  # pods of other kinds request nothing on these nodes
            if self._used[node] > SLOTS:
                self.wrong.append(f"{self._used[node]} pods on {node}")

    # --- load --------------------------------------------------------------------------------------

    async def _load(self, per_second, at_most):
        while True:
            await asyncio.sleep(1 / per_second)
            try:
                await self._create()
                await self._make_room(at_most)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.1)  # the server is away; what was sent counts as sent or not, the list will tell

    async def _create(self):
        if self._created - len(self.bindings) > 40:
            return
        self._created += 1
        name = f"load-{self._created}"
        async with self._session.post("/api/v1/namespaces/default/pods", json=pod(name)) as answer:
            assert answer.status in (201, 409), await answer.text()
        self._confirmed.add(name)

    async def _make_room(self, at_most):
        """The pod that was bound first goes when there are enough."""
        if len(self._load_bound) < at_most:
            return
        name = next(iter(self._load_bound.values()))
        self._let_go.add(name)  # whether we hear of it or not
        target = f"/api/v1/namespaces/default/pods/{name}"
        async with self._session.delete(target, json={"gracePeriodSeconds": 0}):
            pass
