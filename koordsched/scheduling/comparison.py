"""The debug dump: the scheduler's state, and where the API server's differs (core spec 2.4, SIGUSR2).

Source: upstream `backend/cache/debugger`. What is in the log here is read from the API server for the purpose, so
differences that a watch has not delivered yet show, too; those that persist from one dump to the next are defects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from koordsched.api.decoding import Decoder
from koordsched.client.errors import raise_for_status
from koordsched.client.paging import Progress
from koordsched.client.transport import Transport
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.watching import UNFINISHED

_PAGE = 500
_MOST_NAMES = 50
"""Names written out per kind of difference; a cache that is completely wrong must not flood the log."""


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _ListMeta(msgspec.Struct, gc=False):
    continue_: str = msgspec.field(default="", name="continue")


class _Spec(msgspec.Struct, gc=False):
    node: str = msgspec.field(default="", name="nodeName")


class _Item(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Page(msgspec.Struct):
    items: list[_Item] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_decode = Decoder(_Page)


@dataclass
class Differences:
    """Names: `missing` are with the API server only, `redundant` with the scheduler only, `elsewhere` are pods on
    another node than believed (`namespace/name: believed, actual`)."""

    missing_nodes: list[str] = field(default_factory=list)
    redundant_nodes: list[str] = field(default_factory=list)
    missing_pods: list[str] = field(default_factory=list)
    redundant_pods: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What to say about them; one line if there are none."""
        found = [
            (f"nodes missing in the cache: {_some(self.missing_nodes)}", self.missing_nodes),
            (f"nodes in the cache that do not exist: {_some(self.redundant_nodes)}", self.redundant_nodes),
            (f"pods missing in the cache: {_some(self.missing_pods)}", self.missing_pods),
            (f"pods in the cache that do not exist: {_some(self.redundant_pods)}", self.redundant_pods),
            (f"pods on another node than in the cache: {_some(self.elsewhere)}", self.elsewhere),
        ]
        return [text for text, names in found if names] or ["cache and API server agree"]


def _some(names: list[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


async def compare(cluster: ClusterState, transport: Transport) -> Differences:
    """Lists nodes and pods with the API server and compares. Raises ClientError, or DecodeError for an odd answer.

    Assumed pods count as where they are believed to be: the server may know of them or not.
    """
    result = Differences()
    nodes = {item.metadata.name async for item in _list(transport, "/api/v1/nodes", {})}
    pods = {item.metadata.uid: item async for item in _list(transport, "/api/v1/pods", UNFINISHED)}
    known = cluster.table.row_of
    result.missing_nodes = sorted(nodes - known.keys())
    result.redundant_nodes = sorted(known.keys() - nodes)
    for uid, item in pods.items():
        if not item.spec.node:
            continue
        pod = cluster.assigned.get(uid)
        key = f"{item.metadata.namespace}/{item.metadata.name}"
        if pod is None:
            result.missing_pods.append(key)
        elif pod.node != item.spec.node:
            result.elsewhere.append(f"{key}: {pod.node}, {item.spec.node}")
    for uid, pod in cluster.assigned.items():
        if uid not in cluster.assumed and not pod.virtual and (uid not in pods or not pods[uid].spec.node):
            result.redundant_pods.append(pod.key)
    return result


async def _list(transport: Transport, path: str, selectors: Mapping[str, str]) -> AsyncIterator[_Item]:
    query = {**selectors, "limit": str(_PAGE)}
    progress = Progress(path)
    while True:
        page = _decode(raise_for_status(await transport.request("GET", path, query=query)).body)
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        progress.check(page.items[0].metadata.uid.encode() if page.items else None)
        query = {**selectors, "limit": str(_PAGE), "continue": page.metadata.continue_}


def dump_nodes(cluster: ClusterState, queue: SchedulingQueue[Pod]) -> Iterable[str]:
    """A block per node, nodes that are gone but have pods included: what it has, what is used, which pods."""
    table = cluster.table
    names = table.resource_names.names
    for name, row in sorted(table.row_of.items()):
        allocatable = {names[i]: int(column.data[row]) for i, column in enumerate(table.allocatable)}
        requested = {names[i]: int(column.data[row]) for i, column in enumerate(table.requested)}
        yield _node_block(name, False, cluster.pods_on(row).values(), queue, requested, allocatable)
    for name, pods in sorted(cluster.orphans.items()):
        yield _node_block(name, True, pods.values(), queue, {}, {})


def _node_block(
    name: str,
    deleted: bool,
    pods: Iterable[Pod],
    queue: SchedulingQueue[Pod],
    requested: Mapping[str, int],
    allocatable: Mapping[str, int],
) -> str:
    listed = sorted(pod.title for pod in pods)
    nominated = sorted(pod.title for pod in queue.nominator.nominated_on(name))
    lines = [
        f"Node name: {name}",
        f"Deleted: {str(deleted).lower()}",
        f"Requested Resources: {_amounts(requested)}",
        f"Allocatable Resources: {_amounts(allocatable)}",
        f"Scheduled Pods(number: {len(listed)}): {', '.join(listed)}",
        f"Nominated Pods(number: {len(nominated)}): {', '.join(nominated)}",
    ]
    return "\n".join(lines)


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{'milliCPU' if name == 'cpu' else name}: {amount}" for name, amount in amounts.items() if amount)


def dump_queue(queue: SchedulingQueue[Pod]) -> str:
    """The pods that wait, after a line with how many wait where."""
    lines = [queue.summary()]
    lines += [f"name: {queued.pod.title}, queue: {queued.place.value}, attempts: {queued.attempts}" for queued in queue]
    return "\n".join(lines)
