"""Observers of pods: which pods each hears of, and that a call which failed is made again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.listeners import ListenerErrors
from koordsched.cluster.observers import PodObservers
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from tests.plugins.objects import container, pod


class Observer:
    """Notes what it hears; fails once for each call named in `fails`."""

    def __init__(self, *fails: str) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self._fails = set(fails)

    def _hear(self, *call: Any) -> None:
        if call[0] in self._fails:
            self._fails.remove(call[0])
            raise ValueError(call)
        self.heard.append(call)

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        self._hear("seen", pod.uid, assigned)

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        self._hear("assigned", pod.uid, assigned)

    def pod_gone(self, uid: str) -> None:
        self._hear("gone", uid)


def _pod(name: str, *, virtual: bool = False) -> Pod:
    thing = convert(pod(name, container(cpu="1"), on="alder"), core.Pod)
    return ClusterState().pods.build(thing, virtual=f"Thing {name}" if virtual else "")


REAL, VIRTUAL = _pod("real"), _pod("virtual", virtual=True)


@pytest.mark.parametrize("virtual", [False, True])
def test_virtual_pods_are_shown_to_those_that_want_them(virtual: bool) -> None:
    observers, observer = PodObservers(ListenerErrors()), Observer()
    observers.add(observer, [REAL, VIRTUAL], virtual=virtual)
    for each in (REAL, VIRTUAL):
        observers.seen(each, False)
        observers.placed(each, True)
    shown = [REAL.uid, VIRTUAL.uid] if virtual else [REAL.uid]
    assert observer.heard == [
        *(("seen", uid, True) for uid in shown),
        *((call, uid, call == "assigned") for uid in shown for call in ("seen", "assigned")),
    ]


CALLS = [
    ("seen", lambda observers: observers.seen(REAL, True), ("seen", REAL.uid, True)),
    ("assigned", lambda observers: observers.placed(REAL, True), ("assigned", REAL.uid, True)),
    ("assigned", lambda observers: observers.placed(REAL, False), ("assigned", REAL.uid, False)),
    ("gone", lambda observers: observers.gone(REAL.uid), ("gone", REAL.uid)),
]


@pytest.mark.parametrize(("kind", "call", "expected"), CALLS)
def test_a_call_that_fails_is_made_again_and_harms_no_other(kind: str, call: Any, expected: tuple[Any, ...]) -> None:
    errors = ListenerErrors()
    observers, failing, other = PodObservers(errors), Observer(kind), Observer()
    for observer in (failing, other):
        observers.add(observer, (), virtual=False)
    call(observers)
    assert (failing.heard, other.heard, errors.count) == ([], [expected], 1)
    errors.retry_some()
    assert (failing.heard, other.heard) == ([expected], [expected])
    assert not errors.owed


def test_a_pod_that_came_again_is_not_gone_twice() -> None:
    errors = ListenerErrors()
    observers, failing = PodObservers(errors), Observer("gone", "seen")
    observers.add(failing, (), virtual=False)
    observers.gone(REAL.uid)
    observers.seen(REAL, False)
    errors.retry_some()
    assert failing.heard == [("gone", REAL.uid), ("seen", REAL.uid, False)]


def test_what_failed_last_is_made_up_for_before_what_comes_next() -> None:
    errors = ListenerErrors()
    observers, failing = PodObservers(errors), Observer("seen")
    observers.add(failing, (), virtual=False)
    observers.seen(REAL, False)
    observers.placed(REAL, True)
    assert failing.heard == [("seen", REAL.uid, True), ("assigned", REAL.uid, True)]


def test_the_last_so_many_pods_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koordsched.cluster.listeners.MOST_CALLS", 2)
    errors, pods = ListenerErrors(), [_pod(name) for name in "abc"]
    observers = PodObservers(errors)

    def failing(pod: Pod, assigned: bool) -> None:
        raise ValueError(pod.name)

    observers.add(SimpleNamespace(pod_seen=failing), (), virtual=False)  # type: ignore[arg-type]
    for each in pods[:2]:
        observers.seen(each, True)
    assert list(errors.owed) == [each.uid for each in pods[:2]]
    observers.seen(pods[2], True)
    assert list(errors.owed) == [each.uid for each in pods[1:]]
