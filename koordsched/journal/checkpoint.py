"""The state between two segments: enough to replay from, without the segments before.

The objects are in the journal already, and its writer knows the newest version of each. The scheduler's own state is
recorded here: rows, order, assumed pods, nominations, evictions under way; and objects that are gone, if they still
count for something.

So is what plugins know that does not follow from objects (`framework.pluginstates`). How often and when pods in the
queue were tried is not recorded, so the order of later attempts has to be taken from the journal. What Reserve plugins
hold for assumed pods is worked out anew, but for allocations, which are recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from koordsched.api import core
from koordsched.api.meta import HasMetadata, ObjectMeta
from koordsched.client.sink import ObjectKey
from koordsched.engine.attempt import Attempt
from koordsched.framework.permit import MAX_WAIT
from koordsched.journal.objects import NODES, PODS
from koordsched.journal.records import BadRecord, Checkpoint, Upsert, encode
from koordsched.journal.redaction import redacted
from koordsched.scheduling.placement import AssumedPod
from koordsched.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)


def checkpoint_of(scheduler: Scheduler) -> Checkpoint:
    """The state as it is, between two steps."""
    cluster, table, nominator = scheduler.cluster, scheduler.cluster.table, scheduler.queue.nominator
    bindings = scheduler.binding.under_way
    gone = [
        (wire, placement.node)
        for placement in bindings
        if (wire := placement.pod.wire) is not None and not placement.pod.virtual and _is_gone(scheduler, placement)
    ]
    return Checkpoint(
        rows=tuple(table.names),
        free=table.free,
        assigned=tuple(cluster.assigned),
        pending=tuple(pod.uid for pod in scheduler.pending_pods()),
        assumed=tuple((uid, pod.node) for uid, pod in cluster.assumed.items()),
        bindings=tuple(placement.pod.uid for placement in bindings),
        to_nominated=tuple(placement.pod.uid for placement in bindings if placement.nominated_here),
        nominated=(
            *((pod.uid, node) for node in nominator.nodes_with_nominated() for pod in nominator.nominated_on(node)),
            *((uid, "") for uid in nominator.unseen),
        ),
        evicting=scheduler.evictions.running,
        victims=scheduler.evictions.victims,
        unreadable=scheduler.unreadable.reasons,
        allocations={uid: cluster.pod_facts.texts(pod) for uid, pod in cluster.assumed.items() if pod.facts},
        departed=tuple(
            _recorded(scheduler, store.kind.path, thing)
            for store in cluster.objects.wanted()
            for thing in store.departed.values()
        ),
        waiting=tuple((waiting.pod.uid, waiting.pending_plugins) for waiting in scheduler.waiting),
        states={name: msgspec.Raw(data) for name, data in scheduler.plugin_states.encoded().items()},
        abandoned=tuple((_recorded(scheduler, PODS, wire), node) for wire, node in gone),
    )


def _recorded(scheduler: Scheduler, path: str, thing: HasMetadata) -> Upsert:
    return Upsert(path, msgspec.Raw(encode(redacted(thing, read=scheduler.cluster.read_annotations))))


def _is_gone(scheduler: Scheduler, placement: AssumedPod) -> bool:
    uid = placement.pod.uid
    return uid not in scheduler.cluster.assigned and scheduler.pending_pod(uid) is None


def restore(
    scheduler: Scheduler,
    checkpoint: Checkpoint,
    objects: Mapping[str, Iterable[HasMetadata]],
    departed: Mapping[str, Iterable[HasMetadata]],
) -> dict[str, AssumedPod]:
    """Restores the state in a new scheduler. `objects`, `departed`: by path of their collection, what is there and what
    is gone; of pods, those of `checkpoint.abandoned`. Returns the bindings under way. Raises BadRecord."""
    sinks = scheduler.watches.sinks
    for path, reason in checkpoint.unreadable.items():
        scheduler.unreadable.refused(path, reason)
    _restore_rows(scheduler, checkpoint, objects.get(NODES, ()))
    for path, things in objects.items():
        if path not in (NODES, PODS) and path in sinks:
            for thing in things:
                sinks[path].upsert(thing)
    abandoned = list(departed.get(PODS, ()))
    for path, things in departed.items():
        for thing in things if path != PODS else ():
            sinks[path].upsert(thing)
            sinks[path].delete_key(ObjectKey(thing.metadata.namespace, thing.metadata.name, thing.metadata.uid))
    nodes = {pod.metadata.uid: node for pod, (_, node) in zip(abandoned, checkpoint.abandoned, strict=True)}
    with _nodes_that_are_gone(scheduler, [*nodes.values(), *dict(checkpoint.assumed).values()]):
        placements = _restore_abandoned(scheduler, abandoned, nodes, checkpoint.to_nominated)
        placements |= _restore_pods(scheduler, checkpoint, {pod.metadata.uid: pod for pod in objects.get(PODS, ())})
    _restore_nominations(scheduler, checkpoint)
    assigned = scheduler.cluster.assigned
    victims = [(assigned[victim], preemptor) for victim, preemptor in checkpoint.victims if victim in assigned]
    scheduler.evictions.resume(checkpoint.evicting, victims)
    for uid, plugins in checkpoint.waiting:
        if uid in assigned:
            scheduler.waiting.add(assigned[uid], dict.fromkeys(plugins, MAX_WAIT))
    for name, state in checkpoint.states.items():
        try:
            scheduler.plugin_states.restore(name, state)
        except msgspec.MsgspecError as error:
            raise BadRecord(f"a state of {name} that cannot be understood: {error}") from None
    return placements


def _restore_rows(scheduler: Scheduler, checkpoint: Checkpoint, nodes: Iterable[Any]) -> None:
    """Every node on its row: where there is none, one is put and taken away, in the order in which rows are reused."""
    by_name = {node.metadata.name: node for node in nodes}
    holes: dict[int, str] = {}
    for row, name in enumerate(checkpoint.rows):
        node = by_name.get(name) if name else None
        if node is None:
            holes[row] = f"row {row}"  # no name that a node may have
            node = core.Node(metadata=ObjectMeta(name=holes[row]))
        scheduler.watches.sinks[NODES].upsert(node)
    for row in checkpoint.free:
        if row in holes:
            scheduler.cluster.remove_node(holes.pop(row))
    for name in holes.values():
        scheduler.cluster.remove_node(name)


@contextmanager
def _nodes_that_are_gone(scheduler: Scheduler, names: Iterable[str]) -> Iterator[None]:
    """Inside, the nodes of these names exist: pods stay assumed on a node that is gone."""
    gone = [name for name in dict.fromkeys(names) if name not in scheduler.cluster.table.row_of]
    for name in gone:
        scheduler.cluster.upsert_node(core.Node(metadata=ObjectMeta(name=name)))
    yield
    for name in reversed(gone):
        scheduler.cluster.remove_node(name)


def _restore_abandoned(
    scheduler: Scheduler, pods: Iterable[HasMetadata], nodes: Mapping[str, str], to_nominated: Container[str]
) -> dict[str, AssumedPod]:
    """Pods that went while they were bound: until that has failed, plugins go on holding what Reserve took for them."""
    sink = scheduler.watches.sinks[PODS]
    placements: dict[str, AssumedPod] = {}
    for pod in pods:
        meta = pod.metadata
        sink.upsert(pod)
        if (placement := _assume(scheduler, meta.uid, nodes[meta.uid], {})) is not None:
            placement.nominated_here = meta.uid in to_nominated
            placements[meta.uid] = placement
        sink.delete_key(ObjectKey(meta.namespace, meta.name, meta.uid))
    return placements


def _restore_pods(scheduler: Scheduler, checkpoint: Checkpoint, wires: dict[str, Any]) -> dict[str, AssumedPod]:
    sink = scheduler.watches.sinks[PODS]
    for uid in checkpoint.pending:
        if uid in wires:
            sink.upsert(wires[uid])
    assumed = dict(checkpoint.assumed)
    placements: dict[str, AssumedPod] = {}
    for uid in checkpoint.assigned:
        if uid not in assumed:
            if uid in wires:
                sink.upsert(wires[uid])
        elif (
            placement := _assume(scheduler, uid, assumed[uid], checkpoint.allocations.get(uid, {}))
        ) is not None and uid in checkpoint.bindings:
            placement.nominated_here = uid in checkpoint.to_nominated
            placements[uid] = placement
    known = {*checkpoint.pending, *checkpoint.assigned}
    for uid, wire in wires.items():
        if uid not in known:
            sink.upsert(wire)
    return placements


def _assume(scheduler: Scheduler, uid: str, node: str, allocations: Mapping[str, str]) -> AssumedPod | None:
    """Takes a pending pod out of the queue and puts it on a node, with what it was allocated there."""
    pod, row = scheduler.pending_pod(uid), scheduler.cluster.table.row_of.get(node)
    queued = scheduler.queue.pop_pod(pod) if pod is not None else None
    if pod is None or queued is None or row is None:
        return None
    scheduler.queue.done(uid)
    profile = scheduler.profiles[pod.shape.scheduler_name]
    attempt = Attempt(profile, scheduler.cluster, pod)
    attempt.filter(all_nodes=True)
    scheduler.cluster.assume(pod, row)
    # The node may have changed since: a plugin that would refuse the pod now must not keep others from their Reserve.
    for plugin in profile.reserve_plugins:
        try:
            plugin.reserve(attempt.cycle, pod, row)
        except Exception:
            _log.exception("Reserve of %s failed for pod %s", plugin.name, pod.title)
    scheduler.cluster.allocate_all(pod, allocations)
    return AssumedPod(attempt.cycle, profile, queued, row, node, {}, 0.0, 0)


def _restore_nominations(scheduler: Scheduler, checkpoint: Checkpoint) -> None:
    nominator = scheduler.queue.nominator
    for node in list(nominator.nodes_with_nominated()):
        for pod in nominator.nominated_on(node):
            nominator.delete(pod.uid)
    for uid, node in checkpoint.nominated:
        if not node:
            nominator.restore_unseen(uid)
        elif (pending := scheduler.pending_pod(uid)) is not None:
            nominator.add(pending, node)
