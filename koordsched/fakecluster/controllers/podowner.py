"""What controllers of kinds that own pods share: the owner of a changed pod, and what to reconcile because of it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from koordsched.fakecluster.controllers.adoption import PodAdoption
from koordsched.fakecluster.controllers.context import ControllerContext, settle_delay
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.ownership import Key, Object, key_of
from koordsched.fakecluster.controllers.pods import PodRecord
from koordsched.fakecluster.controllers.workqueue import WorkQueue


def burst(pods: int) -> int:
    """How many pods to make or delete in one pass of an owner of `pods`; the rest follows in the next.

    Small, so that the HTTP server gets its turn, but in proportion to what a pass costs.
    """
    return max(40, pods // 50)


class PodOwnerController(ABC):
    """Queues an object of `kind` for `reconcile` when it or one of its pods changes."""

    def __init__(self, context: ControllerContext, informer: Informer, api_version: str, kind: str) -> None:
        self.context = context
        self.informer = informer
        self.api_version = api_version
        self.kind = kind
        self.adoption = PodAdoption(context, api_version, kind, self.may_adopt)
        self.queue: WorkQueue[Key] = WorkQueue(context.registry, kind.lower(), self.reconcile)
        informer.on_change(self.owner_changed)
        context.pods.on_owned_change(kind, self.pod_changed)

    @abstractmethod
    def reconcile(self, key: Key) -> int:
        """Brings the object of that name closer to what it asks for; returns the number of writes."""

    def may_adopt(self, owner: Object, pod: PodRecord) -> bool:
        """Whether an orphan that the owner's selector matches may become its own."""
        return True

    def orphan_changed(self, pod: PodRecord) -> None:
        """A pod without a controller appeared or changed: queue the objects whose selectors match it."""
        for key in self.adoption.interested(pod):
            self.queue.add(key)

    def key_of_owner(self, uid: str) -> Key | None:
        """The name of the object with that uid."""
        owner = self.informer.with_uid(uid)
        return key_of(owner) if owner is not None else None

    def owner_changed(self, before: Object | None, after: Object | None) -> None:
        """An object of the kind changed."""
        self.adoption.track(before, after)
        if after is not None:
            self.queue.add(key_of(after))

    def pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        """A pod of an object of the kind changed, or changed hands."""
        for pod in (before, after):
            key = self.key_of_owner(pod.owner_uid) if pod is not None else None
            if pod is not None and key is not None:
                self.queue.add(key, settle_delay(self.context.pods.count_owned_by(pod.owner_uid)))
