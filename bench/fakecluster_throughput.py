"""How many pods the embedded API server creates and binds per second, at the same time.

Two processes: this client and `koordsched fakecluster`. Nodes are present, one watcher follows all pods; one set of
connections creates real-size pods, another binds each as soon as the watcher has seen it; the hollow nodes start them.
Prints one JSON line: creations and bindings per second, and the server's CPU time per pod, from its creation to its
start with all that controllers, hollow nodes and the watch do about it. On a machine that does other things as well,
the CPU time is the figure to compare.

    python bench/fakecluster_throughput.py --pods 20000
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import httptools
import orjson
import uvloop

NAMESPACE = "default"


def arguments() -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nodes", type=int, default=5000)
    p.add_argument("--pods", type=int, default=20000)
    p.add_argument("--connections", type=int, default=16, help="for creations, and as many for bindings")
    p.add_argument("--depth", type=int, default=4, help="requests in flight on each connection")
    p.add_argument("--emulate-apiserver", action="store_true")
    p.add_argument("--no-bind", action="store_true", help="only create")
    p.add_argument(
        "--pod-start-delay", type=float, default=0.5, help="seconds from binding to Running; negative: never"
    )
    p.add_argument("--distinct", action="store_true", help="no two pods have the same spec, as if each were alone")
    return p.parse_args()


def pod_body(number: int, distinct: bool = False) -> bytes:
    """A pod of the size that real ones have (about 6 KB): managed fields, a token volume, environment, status."""
    env: list[dict[str, Any]] = [
        {"name": f"SETTING_{i}", "value": f"value-of-setting-{i}-for-the-application"} for i in range(12)
    ]
    env.append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if distinct:
        env.append({"name": "NUMBER", "value": str(number)})
    owned = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}}},
        "f:spec": {
            "f:containers": {
                f'k:{{"name":"c{i}"}}': {
                    ".": {},
                    **{
                        f"f:{k}": {}
                        for k in ("image", "imagePullPolicy", "name", "resources", "terminationMessagePath")
                    },
                    "f:env": {f'k:{{"name":"SETTING_{j}"}}': {".": {}, "f:name": {}, "f:value": {}} for j in range(12)},
                }
                for i in range(2)
            }
        },
    }
    token = {
        "name": "kube-api-access-x7k2p",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ],
        },
    }
    containers = [
        {
            "name": f"c{i}",
            "image": "registry.example.com/team/application:v1.27.3",
            "env": env if i == 0 else env[:3],
            "ports": [{"containerPort": 8080 + i, "name": f"http{i}"}],
            "resources": {"requests": {"cpu": "100m", "memory": "250Mi"}, "limits": {"memory": "500Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 20},
            "volumeMounts": [
                {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io", "readOnly": True}
            ],
        }
        for i in range(2)
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number}",
            "namespace": NAMESPACE,
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"example.com/config-hash": "0123456789abcdef" * 8},
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsType": "FieldsV1",
                 "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsV1": owned}
            ],
        },
        "spec": {"schedulerName": "bench", "containers": containers, "volumes": [token]},
    }  # fmt: skip
    return orjson.dumps(pod)


class Client(asyncio.Protocol):
    """A pipelining connection: sends prepared requests, counts their answers."""

    def __init__(self, done: Any) -> None:
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None
        self.in_flight = 0
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.in_flight -= 1
        self._done(self, self._parser.get_status_code(), self._body)

    def send(self, request: bytes) -> None:
        """Put a request on the wire."""
        assert self.transport is not None
        self.in_flight += 1
        self.transport.write(request)


class Watcher(asyncio.Protocol):
    """Follows all pods; hands over the names of those that appear."""

    def __init__(self, seen: Any, running: Any) -> None:
        self._seen = seen
        self._running = running
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        *lines, self._rest = (self._rest + body).split(b"\n")
        self.events += len(lines)
        for line in lines:
            if line.startswith(b'{"type":"ADDED"'):
                at = line.index(b'"name":"web-') + 8
                self._seen(line[at : line.index(b'"', at)])
            elif b'"phase":"Running"' in line:
                self._running()


def post(path: bytes, body: bytes) -> bytes:
    """An encoded POST."""
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        path,
        len(body),
        body,
    )


async def run(options: argparse.Namespace, port: int, server_pid: int, nodes: list[bytes]) -> dict[str, Any]:
    """Create and bind all pods; returns the figures. TimeoutError when it does not come to an end."""
    loop = asyncio.get_running_loop()
    total, failures = options.pods, 0
    created = bound = started = next_pod = 0
    create_end = bind_end = 0.0
    waiting: deque[bytes] = deque()
    finished = asyncio.Event()
    path = b"/api/v1/namespaces/%s/pods" % NAMESPACE.encode()
    bodies = [post(path, pod_body(i, options.distinct)) for i in range(total)]
    creators: list[Client] = []
    binders: list[Client] = []

    def create_more(client: Client) -> None:
        nonlocal next_pod
        while next_pod < total and client.in_flight < options.depth:
            client.send(bodies[next_pod])
            next_pod += 1

    def on_created(client: Client, status: int, body: list[bytes]) -> None:
        nonlocal created, create_end, failures
        created += 1
        if status != 201:
            failures += 1
            print(status, b"".join(body)[:300], file=sys.stderr)
        if created == total:
            create_end = time.perf_counter()
            if options.no_bind:
                finished.set()
        create_more(client)

    def bind_more() -> None:
        for client in binders:
            while waiting and client.in_flight < options.depth:
                name = waiting.popleft()
                node = nodes[int(name[4:]) % len(nodes)]
                body = (
                    b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},'
                    b'"target":{"kind":"Node","name":"%s"}}' % (name, node)
                )
                client.send(post(b"/api/v1/namespaces/%s/pods/%s/binding" % (NAMESPACE.encode(), name), body))

    def on_bound(client: Client, status: int, body: list[bytes]) -> None:
        nonlocal bound, bind_end, failures
        bound += 1
        if status != 201:
            failures += 1
            print(status, b"".join(body)[:300], file=sys.stderr)
        if bound == total:
            bind_end = time.perf_counter()
            if options.pod_start_delay < 0:
                finished.set()
        bind_more()

    def on_running() -> None:
        nonlocal started
        started += 1
        if started == total:
            finished.set()

    def on_seen(name: bytes) -> None:
        if not options.no_bind:
            waiting.append(name)
            bind_more()

    _, watcher = await loop.create_connection(lambda: Watcher(on_seen, on_running), "127.0.0.1", port)
    for _ in range(options.connections):
        creators.append((await loop.create_connection(lambda: Client(on_created), "127.0.0.1", port))[1])
        binders.append((await loop.create_connection(lambda: Client(on_bound), "127.0.0.1", port))[1])
    cpu = server_cpu(server_pid)
    own = time.process_time()
    start = time.perf_counter()
    for client in creators:
        create_more(client)
    await asyncio.wait_for(finished.wait(), 30 + total / 100)
    end = time.perf_counter()
    used = server_cpu(server_pid)
    user, system = ((after - before) / total * 1e6 for after, before in zip(used, cpu, strict=True))
    figures = {
        "nodes": options.nodes,
        "pods": total,
        "creations_per_second": round(total / (create_end - start)),
        "bindings_per_second": round(total / (bind_end - start)) if bind_end else 0,
        "failures": failures,
        "watch_events": watcher.events,
        "server_cpu_us_per_pod": round(user + system),
        "server_system_us_per_pod": round(system),
        "client_cpu_us_per_pod": round((time.process_time() - own) / total * 1e6),
        "wall_seconds": round(end - start, 2),
        "server_rss_mib": server_rss(server_pid) >> 20,
        "client_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    return figures


def node_names(port: int) -> list[bytes]:
    """The nodes there are."""
    with urlopen(f"http://127.0.0.1:{port}/api/v1/nodes") as answer:
        return [node["metadata"]["name"].encode() for node in orjson.loads(answer.read())["items"]]


def wait_for_nodes(options: argparse.Namespace, port: int) -> None:
    """Wait until the start of the nodes is over: each has its Lease. TimeoutError when that takes over a minute."""
    url = f"http://127.0.0.1:{port}/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=1"
    deadline = time.monotonic() + 60
    while True:
        with urlopen(url) as answer:
            leases = orjson.loads(answer.read())
        if len(leases["items"]) + leases["metadata"].get("remainingItemCount", 0) >= options.nodes:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {options.nodes} nodes have reported")
        time.sleep(0.2)


def server_cpu(pid: int) -> tuple[float, float]:
    """CPU seconds that a process has used: of its own, and of the system on its behalf."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick


def server_rss(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Start the server, measure, stop it."""
    options = arguments()
    command = [
        sys.executable, "-c", "from koordsched.cli.fakecluster import fakecluster; fakecluster()",
        "--nodes", str(options.nodes), "--pod-start-delay", str(options.pod_start_delay),
    ]  # fmt: skip
    if options.emulate_apiserver:
        command.append("--emulate-apiserver")
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        port = int(line.split("http://127.0.0.1:")[1].split(",")[0])
        wait_for_nodes(options, port)
        figures = uvloop.run(run(options, port, server.pid, node_names(port)))
        with urlopen(f"http://127.0.0.1:{port}/api/v1/namespaces/{NAMESPACE}/pods/web-0") as answer:
            figures["pod_bytes"] = len(answer.read())
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    print(orjson.dumps(figures).decode())


if __name__ == "__main__":
    main()
