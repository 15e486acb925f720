"""Observers: callbacks for every pod, wherever it is.

A `PodAccountant` (see `cluster.accounting`) gets the pods on rows of the node table, in what-ifs too. An observer
gets all unfinished pods: waiting ones (gated, unschedulable, of any scheduler), those on nodes, and those on nodes
that we do not know; never those of what-ifs.
"""

from __future__ import annotations

from typing import Protocol

from koordsched.cluster.pod import Pod


class PodObserver(Protocol):
    """Keeps books on all pods. Called between and inside scheduling cycles; must be quick and must not fail.

    What the calls say is absolute, so hearing something twice changes nothing.
    """

    def pod_seen(self, pod: Pod, assigned: bool) -> None:
        """The newest version of a pod, on first sight or after a change; `assigned`: it has a node, if only assumed."""

    def pod_assigned(self, pod: Pod, assigned: bool) -> None:
        """We placed the pod, or took that back; `pod` may be an older version than the one seen last."""

    def pod_gone(self, uid: str) -> None:
        """The pod is gone or finished. Pods never seen may be named."""
