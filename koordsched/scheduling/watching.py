"""What is watched, and where it goes: one reflector per kind of object that a decision may rest on.

Nothing is scheduled before the initial list of every one of them has been handled. A kind that the server does not have
counts as empty; for one that it does not let us see, see `unreadable`. Readiness names both while anything waits for
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from koordsched.api import core
from koordsched.api.decoding import Decoder
from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.api.versions import is_older
from koordsched.client.clock import Clock
from koordsched.client.encodings import protobuf_format
from koordsched.client.errors import ClientError, ConnectionFailure, TooLong
from koordsched.client.identity import server_uid
from koordsched.client.reflector import Reflector, State
from koordsched.client.sink import ObjectKey, Sink
from koordsched.client.timeslices import TimeSlices
from koordsched.client.transport import JSON, Transport
from koordsched.client.wireformat import Decode
from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from koordsched.cluster.events import ASSIGNED_POD, NODE, UNSCHEDULABLE_POD, ActionType, ClusterEvent
from koordsched.cluster.objects import Store
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.extender.objects import ExtenderObjects
from koordsched.extender.rawobjects import RawObjects
from koordsched.observability.metrics import Metrics
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.handlers import NodeHandler, PodHandler, is_same_version
from koordsched.scheduling.inbox import Inbox, InboxSink
from koordsched.scheduling.recording import NOT_RECORDING, Recorder
from koordsched.scheduling.timing import TimedSink
from koordsched.scheduling.unreadable import NODES, PODS, Unreadable

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMetadata)

UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""Finished pods hold nothing; with this selector finishing looks like deletion."""


ONE_CHECK = 1.0
"""Seconds for which the server counts as the one that it was: connections that were lost together come back together.
"""


class ObjectSink(Generic[T]):
    """Any other kind, on its way into its store; every change may wake pods."""

    def __init__(self, store: Store[T], queue: SchedulingQueue[Pod]) -> None:
        self._store = store
        self._queue = queue
        resource = store.kind.event
        self._events = (
            {
                action: ClusterEvent(resource, action)
                for action in (ActionType.ADD, ActionType.UPDATE, ActionType.DELETE)
            }
            if resource is not None
            else {}
        )

    def upsert(self, obj: T, anew: bool = False) -> None:
        name = obj.metadata.namespace, obj.metadata.name
        known = self._store.metadata_of(*name)
        if known is not None and is_same_version(known, obj.metadata) and not (anew and self._store.get(*name) != obj):
            return
        before = self._store.upsert(obj, anew)
        if known is None:
            self._tell(ActionType.ADD, None, obj)
        elif anew or known.resource_version != obj.metadata.resource_version:
            self._tell(ActionType.UPDATE, before, obj)

    def delete(self, obj: T) -> None:
        self.delete_key(_key_of(obj.metadata))

    def delete_key(self, key: ObjectKey) -> None:
        before = self._store.delete(key.namespace, key.name)
        if before is not None:
            self._tell(ActionType.DELETE, before, None)

    def known(self) -> Iterator[ObjectKey]:
        held = self._store.metadata()
        return (_key_of(meta) for meta in held)

    def _tell(self, action: ActionType, old: T | None, new: T | None) -> None:
        event = self._events.get(action)
        if event is not None:
            self._queue.move_all(event, old, new)


def _key_of(meta: ObjectMeta) -> ObjectKey:
    return ObjectKey(meta.namespace, meta.name, meta.uid)


def _is_newer(meta: ObjectMeta, known: ObjectMeta) -> bool:
    """Whether it is a later state; API servers count them."""
    return is_older(known.resource_version, meta.resource_version)


class Watches:
    """All reflectors of one scheduler. With an inbox, what they deliver passes it; `raw_objects` get its JSON."""

    def __init__(
        self,
        transport: Transport,
        *,
        cluster: ClusterState,
        queue: SchedulingQueue[Pod],
        nodes: NodeHandler,
        pods: PodHandler,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
        on_progress: Callable[[], None],
        inbox: Inbox | None = None,
        raw_objects: ExtenderObjects | None = None,
        recorder: Recorder = NOT_RECORDING,
        unreadable: Unreadable,
        binding: Callable[[], Container[str]] = tuple,
        accept: str = JSON,
        watch_list: bool = False,
    ) -> None:
        """`binding`: the uids of the pods whose binding is under way. `accept`: the encodings to ask for (Accept
        header). `watch_list`: have first lists streamed where the server can do that."""
        self._transport = transport
        self._cluster = cluster
        self._pending = pods.pending
        self._binding = binding
        self._read_annotations = cluster.read_annotations
        self._objects = cluster.objects
        self._clock = clock
        self._rng = rng
        self._on_progress = on_progress
        self._inbox = inbox
        self._recorder = recorder
        self._unreadable = unreadable
        self._accept = accept
        self._watch_list = watch_list
        self._slices = TimeSlices(clock.monotonic)
        self._tasks: list[asyncio.Task[None]] = []
        self.reflectors: dict[str, Reflector[Any]] = {}
        self.sinks: dict[str, Sink[Any]] = {}
        """Path of a resource -> where its objects go in the end."""
        self._recorded: dict[str, Sink[Any]] = {}
        """The same, through the journal."""
        self._server = ""
        """The uid of the server, if it is known."""
        self._checked_at = float("-inf")
        """When the server was last asked for it and answered (monotonic seconds)."""
        self._checking: asyncio.Task[None] | None = None
        self.reading_anew: set[str] = set()
        """Paths that are being listed again because the server went back in time."""
        self._relists: set[asyncio.Task[None]] = set()
        self.problems: dict[str, str] = {}
        """Path of a resource -> why it cannot be watched right now."""
        node_sink = TimedSink(
            nodes,
            metrics,
            clock.monotonic,
            is_new=lambda node: node.metadata.name not in cluster.table.row_of,
            resource_of=lambda node: NODE,
        )
        pod_sink = TimedSink(
            pods,
            metrics,
            clock.monotonic,
            is_new=pods.is_new,
            resource_of=lambda pod: ASSIGNED_POD if pod.spec.node_name else UNSCHEDULABLE_POD,
        )
        self._add(NODES, core.Node, node_sink, {}, raw_objects.nodes if raw_objects is not None else None)
        self._add(
            PODS,
            cluster.pod_facts.wire_type,
            pod_sink,
            UNFINISHED,
            raw_objects.pods if raw_objects is not None else None,
        )
        for store in cluster.objects.wanted():
            collection, selectors = store.listing()
            self._add(store.kind.path, store.kind.type, ObjectSink(store, queue), selectors, collection=collection)

    def _add(
        self,
        path: str,
        kind: type[T],
        sink: Sink[T],
        selectors: dict[str, str],
        raw_objects: RawObjects[T] | None = None,
        collection: str = "",
    ) -> None:
        """`collection`: the path to ask for, if it is not `path`."""
        self.sinks[path] = sink
        sink = self._recorded[path] = self._recorder.sink(path, sink, self._read_annotations)
        decode: Decode[T] = Decoder(kind)
        if raw_objects is not None and self._inbox is not None:
            decode, sink = raw_objects.wrap(decode, self._inbox, sink, by_name=path != PODS)
        elif self._inbox is not None:
            sink = InboxSink(self._inbox, sink, by_name=path != PODS)

        def malformed(name: str, error: Exception) -> None:
            _log.warning("%s %s cannot be decoded and is ignored: %s", path, name, error)

        def changed(state: State, error: ClientError | None) -> None:
            self._state_changed(path, state, error)

        self.reflectors[path] = Reflector(
            self._transport,
            collection or path,
            decode,
            sink,
            clock=self._clock,
            rng=self._rng,
            selectors=selectors,
            on_malformed=malformed,
            on_state=changed,
            protobuf=protobuf_format(path, kind, self._accept) if raw_objects is None else None,
            watch_list=self._watch_list,
            slices=self._slices,
            before_resuming=self._check_server,
            on_older=lambda: self._read_anew("its newest state is older than what it has shown before"),
        )

    async def _check_server(self) -> None:
        """Finds out whether the server is the same as before; once for all reflectors that come back together."""
        if self._clock.monotonic() - self._checked_at < ONE_CHECK:
            return
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._ask_server(), name="identity of the server")
        # A reflector that is interrupted must not end it for the others.
        await asyncio.shield(self._checking)

    async def _ask_server(self) -> None:
        asked_at = self._clock.monotonic()
        uid = await server_uid(self._transport)
        if not uid:
            return
        self._checked_at = asked_at
        known, self._server = self._server, uid
        if known and known != uid:
            self._read_anew("it is another one than before, or has lost what it had")

    def _read_anew(self, why: str) -> None:
        """The API server went back in time, or another one has its address: what is known of some kinds is of another
        state than that of others, until all are listed. Nothing is decided meanwhile.
        """
        if self.reading_anew:
            return
        _log.warning("everything is read anew from the API server before pods are placed: %s", why)
        self.reading_anew.update(self.reflectors)
        under_way = self._binding()
        bound = [pod for pod in self._cluster.assumed.values() if pod.uid not in under_way]
        loop = asyncio.get_running_loop()
        for path, reflector in self.reflectors.items():
            task = loop.create_task(self._relist(path, reflector, bound), name=f"reading {path} anew")
            self._relists.add(task)
            task.add_done_callback(self._relists.discard)

    async def _relist(self, path: str, reflector: Reflector[Any], bound: Sequence[Pod]) -> None:
        """`bound`: assumed pods that were bound before."""
        await reflector.relist(if_served=True, anew=True)
        if not reflector.anew:
            for pod in bound:
                self._put(self._unbind, path, pod)
        self.reading_anew.discard(path)
        self._on_progress()

    def _unbind(self, path: str, pod: Pod) -> None:
        """Its binding would be known now: if the pod is still only assumed, it is lost, and the pod scheduled again."""
        if self._cluster.assumed.get(pod.uid) is not pod:
            return
        store = self._objects.at(path)
        things: Iterable[HasMetadata] = ()
        if path == PODS and (newest := self._pending.newest(pod)) is not None and newest.wire is not None:
            things = (newest.wire,)
        elif store is not None and store.kind.scheduled:
            things = [thing for thing in store if thing.metadata.uid == pod.uid]
        for thing in things:
            self._recorded[path].delete_key(_key_of(thing.metadata))
            self._recorded[path].upsert(thing)

    def _put(self, change: Callable[..., None], *args: Any) -> None:
        if self._inbox is not None:
            self._inbox.put(change, *args)
        else:
            change(*args)

    def _state_changed(self, path: str, state: State, error: ClientError | None) -> None:
        if state is State.FORBIDDEN and error is not None:
            self._unreadable.refused(path, str(error))
        elif state is State.SYNCED or state is State.NOT_FOUND:
            self._unreadable.readable(path)
        if state is State.SYNCED:
            if self.problems.pop(path, None) is not None:
                _log.info("%s is watched again", path)
        elif error is not None:
            if path not in self.problems and state is not State.FORBIDDEN:
                self._complain(path, state, error)
            self.problems[path] = f"{state.value}: {error}"
        self._on_progress()

    def _complain(self, path: str, state: State, error: ClientError) -> None:
        if not isinstance(error, ConnectionFailure) or isinstance(error, TooLong):
            _log.warning("%s cannot be watched (%s): %s", path, state.value, error)
        elif self.problems:
            # One line says that the server is unreachable; one for every resource is not needed.
            _log.debug("%s cannot be watched: %s", path, error)
        else:
            _log.warning("cannot reach the API server, retrying: %s", error)

    def start(self) -> None:
        """Begins to list and watch."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(reflector.run(), name=f"reflector {path}") for path, reflector in self.reflectors.items()
        ]
        self._checking = loop.create_task(self._ask_server(), name="identity of the server")

    async def hold(self) -> None:
        """Raises what ended a watch, if one ends by itself: decisions would depend on its last state."""
        if self._tasks:
            ended, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()

    async def catch_up(self) -> None:
        """Handles every pod, every claim to devices, and every object that is scheduled as pods are (Reservations), as
        it is now: what another scheduler bound or allocated until this moment is known afterwards.
        """
        for path, reflector in self.reflectors.items():
            store = self._objects.at(path)
            if store is not None and (store.kind.scheduled or store.kind is RESOURCE_CLAIMS):
                await reflector.relist(if_served=True)
        await self.reflectors[PODS].relist()

    def show(self, path: str, thing: HasMetadata) -> None:
        """Takes in an object of this collection, no pod or node, that the API server answered a write with.

        What is older than what a watch has shown is not: an object that is gone by now would stay for ever.
        """
        self._put(self._take_in, path, thing)

    def _take_in(self, path: str, thing: HasMetadata) -> None:
        store = self._objects.at(path)
        assert store is not None, "what is written is read"
        known = store.metadata_of(thing.metadata.namespace, thing.metadata.name)
        if known is not None and known.uid == thing.metadata.uid and _is_newer(thing.metadata, known):
            self._recorded[path].upsert(thing)

    async def stop(self) -> None:
        """Ends all watches."""
        tasks = [*self._tasks, *self._relists, *([self._checking] if self._checking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def missing(self) -> list[str]:
        """The resources that can be waited for whose initial list has not been handled yet, or that are read anew."""
        return [
            path
            for path, reflector in self.reflectors.items()
            if path in self.reading_anew or not self._settled(path, reflector)
        ]

    def obstacles(self) -> dict[str, str]:
        """By path, why resources cannot be read: before the first list any reason, later only those that do not pass by
        themselves.
        """
        ended = {
            path: "the watch has ended in an unexpected error"
            for path, task in zip(self.reflectors, self._tasks, strict=False)
            if task.done() and not task.cancelled()
        }
        return ended | {
            path: problem
            for path, problem in self.problems.items()
            if (reflector := self.reflectors[path]).state is State.FORBIDDEN or not self._settled(path, reflector)
        }

    def _settled(self, path: str, reflector: Reflector[Any]) -> bool:
        if reflector.synced.is_set():
            return True
        return path not in (PODS, NODES) and reflector.state in (State.FORBIDDEN, State.NOT_FOUND)
