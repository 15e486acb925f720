"""Tells nobody anything: whoever repeats decisions has no users."""

from __future__ import annotations

from typing import Any

from koordsched.api import core
from koordsched.api.meta import ObjectMeta
from koordsched.cluster.kinds import Kind
from koordsched.cluster.pod import Pod


class Silence:
    """`koordsched.scheduling.voice.Speaker`."""

    def scheduled(self, pod: Pod, node: str) -> None:
        pass

    def failed(self, pod: Pod, note: str) -> None:
        pass

    def condition(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        pass

    def nominate(self, pod: Pod, node: str) -> None:
        pass

    def waiting(self, pod: Pod, reason: str, message: str) -> None:
        pass

    def gone(self, uid: str) -> None:
        pass

    def preempted(self, victim: Pod, preemptor: Pod, node: str, *, deleted: bool) -> None:
        pass

    def overcommitted(self, node: core.Node, message: str) -> None:
        pass

    def warn(self, kind: Kind[Any], meta: ObjectMeta, reason: str, text: str, *, repeats: bool = False) -> None:
        pass

    def tell_pod(self, pod: Pod, reason: str, text: str) -> None:
        pass

    def pod(self, pod: core.Pod, message: str) -> None:
        pass

    def node(self, node: core.Node, message: str) -> None:
        pass
