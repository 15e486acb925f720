"""Errors of what plugins register to be called with pods and objects: they harm neither the others nor the object.

An observer that fails for one pod must not keep that pod from the queue, nor from the observers after it. It may fail
for each of many pods, so the log has the first error of a kind in full. The call is made again until it succeeds: with
the next change of the object, and every second.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, TypeVar

_log = logging.getLogger(__name__)

C = TypeVar("C", bound="FailedCall")

MOST_CALLS = 1 << 16
"""Objects for which calls are remembered; beyond, those are forgotten that wait longest, unless columns would be wrong
without them.
"""

AT_ONCE = 100
"""Objects for which calls are made again every second."""


@dataclass(slots=True, eq=False)
class FailedCall(ABC):
    """A call that failed. There is one of a kind for each listener and object (`about`)."""

    listener: object
    about: Hashable
    title: str
    """What users know the object by."""

    may_be_forgotten: ClassVar[bool] = True
    """Whether nothing goes wrong for good if the call is never made."""

    @abstractmethod
    def __call__(self) -> None:
        """Calls the listener with what holds by now. Raises what the listener does."""


class ListenerErrors:
    """Reports errors, and remembers the calls. `count`: how many errors there were."""

    def __init__(self) -> None:
        self.count = 0
        self.owed: dict[Hashable, dict[tuple[type[FailedCall], int], FailedCall]] = {}
        """By object, the calls that are to be made again. Only to be read by others."""
        self._shown: set[tuple[str, str]] = set()

    def report(self, listener: object, about: str, error: Exception) -> None:
        """What was called failed for this pod or object. To be called inside `except`."""
        self.count += 1
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        key = (name, type(error).__name__)
        if key in self._shown:
            _log.debug("%s failed for %s: %r", name, about, error)
            return
        self._shown.add(key)
        _log.error("%s failed for %s; further errors of this kind are not shown", name, about, exc_info=error)

    def failed(self, call: FailedCall, error: Exception) -> None:
        """The same for a call that is to be made again."""
        self.report(call.listener, call.title, error)
        calls = self.owed.setdefault(call.about, {})
        calls[type(call), id(call.listener)] = call
        if len(self.owed) > MOST_CALLS:
            self._forget_one()

    def _forget_one(self) -> None:
        """Forgets the calls for one of the objects that wait longest; those for others have to be made."""
        for about, calls in islice(self.owed.items(), AT_ONCE):
            if all(call.may_be_forgotten for call in calls.values()):
                del self.owed[about]
                return

    def find(self, kind: type[C], listener: object, about: Hashable) -> C | None:
        """The call of this kind that is to be made again, if there is one."""
        call = self.owed.get(about, {}).get((kind, id(listener)))
        assert call is None or isinstance(call, kind)
        return call

    def make(self, call: FailedCall) -> None:
        """Makes a call; if it fails, it is remembered, otherwise it is forgotten."""
        try:
            call()
        except Exception as error:
            self.failed(call, error)
        else:
            self.forget(call)

    def forget(self, call: FailedCall) -> None:
        """A call need not be made again."""
        calls = self.owed.get(call.about, {})
        if calls.get((type(call), id(call.listener))) is call:
            del calls[type(call), id(call.listener)]
            if not calls:
                del self.owed[call.about]

    def retry(self, about: Hashable) -> None:
        """Makes the calls again that failed for an object."""
        for call in tuple(self.owed.get(about, {}).values()):
            self.make(call)

    def retry_some(self) -> None:
        """The same for the objects that wait longest. To be called every second, outside of transactions."""
        for about in tuple(islice(self.owed, AT_ONCE)):
            self.retry(about)
            if about in self.owed:
                self.owed[about] = self.owed.pop(about)
