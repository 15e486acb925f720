"""The scheduler's own tables at rest: they hold pods that exist, in the state that the entry says, and nothing else."""

from collections import Counter

from koordsched.queue.item import Place
from tests.simulation.configuration import GANGS


def wrong_tables(scheduler):
    """What is in a table and should not be, and counts that are not what there is to be counted. Texts."""
    return [*_left_over(scheduler), *_wrong_queue(scheduler.queue), *_wrong_nominations(scheduler)]


def _left_over(scheduler):
    """Work that is nobody's any more, and what is kept of pods that do not wait."""
    pending = {pod.uid for pod in scheduler.pending_pods()}
    gated, members, told = _gated(scheduler.queue), _members(scheduler.queue), set(scheduler._notices._waits)
    status, evictions, binding = scheduler._status, scheduler.evictions, scheduler.binding
    remains = {
        "waiting on Permit": [waiting.pod.key for waiting in scheduler.waiting],
        "waiting inside of bindings": binding._idle,
        "in PreBind": sorted(binding._pre_binding),
        "events for pods in flight": {what: n for what, n in scheduler.queue.in_flight_events().items() if n},
        "status unwritten": status.unwritten,
        "status remembered of pods that do not wait": sorted(set(status._records) - pending),
        "preemptors whose victims are being told": evictions.running,
        "victims told and not going": evictions.victims,
        "notices of waiting": sorted((told & pending) - gated),
        "notices of waiting left out": sorted(gated - told - members),
    }
    return [f"{what}: {left}" for what, left in remains.items() if left]


def _gated(queue):
    """uids of the pods that a plugin keeps out that is not the pods' own gates."""
    return {item.pod.uid for item in queue if item.place is Place.GATED and item.gating_plugin != "SchedulingGates"}


def _members(queue):
    """uids of gated members of gangs: those that are represented by another one read why the gang is not placed."""
    return {item.pod.uid for item in queue if item.place is Place.GATED and item.gating_plugin == GANGS}


def _wrong_queue(queue):
    """The numbers that metrics show, counted once more; equivalent pods whose probe is not under way."""
    rejected = Counter((plugin, item.profile) for item in queue for plugin in item.unschedulable_plugins)
    counted = {key: number for key, number in queue.counters.unschedulable.items() if number}
    if counted != rejected:
        yield f"unschedulable pods by plugin: {counted}, counted once more {dict(rejected)}"
    if sum(queue.pending().values()) != len(list(queue)):
        yield f"pending pods: {queue.pending()}, counted once more {len(list(queue))}"
    for item in queue:
        probe = item.equivalents.probe if item.equivalents is not None else None
        if probe is not None and probe.place not in (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF):
            yield f"{item.key} rests while {probe.key} is tried for it, which is {probe.place.value}"


def _wrong_nominations(scheduler):
    """Promises to pods in their newest version, and to pods that wait."""
    nominator = scheduler.queue.nominator
    for node in nominator.nodes_with_nominated():
        for pod in nominator.nominated_on(node):
            if scheduler.pending_pod(pod.uid) is not pod:
                yield f"{node} is promised to {pod.key} {pod.resource_version}, which is not what waits"
