"""What plugins are handed before it exists: they are built first, and the queue is built from what they say."""

from __future__ import annotations

from collections.abc import Sequence

from koordsched.cluster.pod import Pod
from koordsched.queue.queue import SchedulingQueue
from koordsched.scheduling.eviction import PreemptionEvictions


class DeferredNominations:
    """The queue's nominator, which exists only after the profiles that ask it."""

    queue: SchedulingQueue[Pod]

    @property
    def version(self) -> int:
        return self.queue.nominator.version

    def changed_since(self, version: int) -> Sequence[str] | None:
        return self.queue.nominator.changed_since(version)

    def nodes_nominated_at_least(self, priority: int) -> list[str]:
        return self.queue.nominator.nodes_nominated_at_least(priority)

    def node_of(self, uid: str) -> str:
        return self.queue.nominator.node_of(uid)

    def stamp_of(self, node: str) -> int:
        return self.queue.nominator.stamp_of(node)

    def nominated_on(self, node: str, priority: int | None = None) -> list[Pod]:
        return list(self.queue.nominator.nominated_on(node, priority))


class DeferredEvictions:
    """The evictions, which need the queue, which needs the profiles."""

    executor: PreemptionEvictions

    def running_for(self, uid: str) -> bool:
        return self.executor.running_for(uid)

    def evicting(self, uid: str) -> bool:
        return self.executor.evicting(uid)

    def displaced(self, uid: str) -> None:
        self.executor.displaced(uid)

    def start(self, preemptor: Pod, node: str, victims: Sequence[Pod]) -> None:
        self.executor.start(preemptor, node, victims)
