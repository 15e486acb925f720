"""Observers: callbacks for every pod, wherever it is.

A `PodAccountant` (see `cluster.accounting`) gets the pods on rows of the node table, in what-ifs too. An observer
gets all unfinished pods: waiting ones (gated, unschedulable, of any scheduler), those on nodes, and those on nodes
that we do not know; never those of what-ifs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from koordsched.cluster.listeners import FailedCall, ListenerErrors
from koordsched.cluster.pod import Pod


class PodObserver(Protocol):
    """Keeps books on all pods. Called between and inside scheduling cycles; must be quick and must not fail.

    What the calls say is absolute, so hearing something twice changes nothing. A call that fails is made again.
    """

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """The newest version of a pod, on first sight or after a change; `assigned`: it has a node, if only assumed."""

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """We placed the pod, or took that back; `pod` may be an older version than the one seen last.

        Placed again when its node comes back.
        """

    def pod_gone(self, uid: str) -> None:
        """The pod is gone or finished. Pods never seen may be named."""


@dataclass(slots=True, eq=False)
class _Unheard(FailedCall):
    """What an observer has not heard of a pod: that it is `gone`, its newest version, that we placed it."""

    observer: PodObserver
    gone: bool = False
    seen: Pod | None = None
    placed: Pod | None = None
    assigned: bool = False

    def __call__(self) -> None:
        if self.gone:
            self.observer.pod_gone(str(self.about))
            self.gone = False
        if self.seen is not None:
            self.observer.pod_seen(self.seen, self.assigned)
            self.seen = None
        if self.placed is not None:
            self.observer.pod_assigned(self.placed, self.assigned)
            self.placed = None


class PodObservers:
    """Calls the observers; see PodObserver. None keeps another from hearing of a pod."""

    def __init__(self, errors: ListenerErrors) -> None:
        self._errors = errors
        self._all: list[PodObserver] = []
        self._of_virtual: list[PodObserver] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, observer: PodObserver, assigned: Iterable[Pod], *, virtual: bool) -> None:
        """From now on the observer is called, with virtual pods if it wants them; first for those that have a node."""
        self._all.append(observer)
        if virtual:
            self._of_virtual.append(observer)
        for pod in assigned:
            if virtual or not pod.virtual:
                self._errors.make(_Unheard(observer, pod.uid, pod.title, observer, False, pod, None, True))

    def replace(self, observer: PodObserver, by: PodObserver) -> None:
        """From now on another one is called. Raises ValueError for one that was not added."""
        self._all[self._all.index(observer)] = by

    def seen(self, pod: Pod, assigned: bool) -> None:
        """The newest version of a pod."""
        failed_before = pod.uid in self._errors.owed
        for observer in self._all if not pod.virtual else self._of_virtual:
            if failed_before:
                call = self._unheard(observer, pod.uid, pod.title)
                call.seen, call.placed, call.assigned = pod, None, assigned
                self._errors.make(call)
                continue
            try:
                observer.pod_seen(pod, assigned)
            except Exception as error:
                self._errors.failed(_Unheard(observer, pod.uid, pod.title, observer, False, pod, None, assigned), error)

    def placed(self, pod: Pod, assigned: bool) -> None:
        """We placed the pod, or took that back."""
        failed_before = pod.uid in self._errors.owed
        for observer in self._all if not pod.virtual else self._of_virtual:
            if failed_before:
                call = self._unheard(observer, pod.uid, pod.title)
                call.placed, call.assigned = pod, assigned
                self._errors.make(call)
                continue
            try:
                observer.pod_assigned(pod, assigned)
            except Exception as error:
                self._errors.failed(_Unheard(observer, pod.uid, pod.title, observer, False, None, pod, assigned), error)

    def gone(self, uid: str) -> None:
        """The pod is gone or finished."""
        failed_before = uid in self._errors.owed
        for observer in self._all:
            if failed_before:
                call = self._unheard(observer, uid, uid)
                call.gone, call.seen, call.placed = True, None, None
                self._errors.make(call)
                continue
            try:
                observer.pod_gone(uid)
            except Exception as error:
                self._errors.failed(_Unheard(observer, uid, uid, observer, True), error)

    def _unheard(self, observer: PodObserver, uid: str, title: str) -> _Unheard:
        return self._errors.find(_Unheard, observer, uid) or _Unheard(observer, uid, title, observer)
