"""Which of the pods that wait would be placed now."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from random import Random

from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.engine.attempt import Attempt, gated_by
from koordsched.engine.transaction import Transaction
from koordsched.framework.profile import Profile
from koordsched.framework.scoring import ScoringFailed
from koordsched.queue.nominator import Nominator
from koordsched.queue.unschedulable import EquivalenceKey

_log = logging.getLogger(__name__)


def placeable(
    profile: Profile,
    cluster: ClusterState,
    nominator: Nominator[Pod],
    pods: Iterable[Pod],
    equivalence: EquivalenceKey[Pod],
    most: int,
) -> dict[str, str]:
    """By uid, the node that a pod would get if the pods were placed one after the other. All is taken back.

    After `most` attempts no more pods are tried. Of equivalent pods none is tried after one that was refused.
    """
    found: dict[str, str] = {}
    refused: set[Hashable] = set()
    attempts = 0
    with Transaction(cluster, nominator) as transaction:
        for pod in pods:
            if attempts == most:
                break
            identity = equivalence(pod)
            key = (pod.shape, identity, pod.nominated_node) if identity is not None else pod.uid
            if key in refused or not gated_by(profile, pod).ok:
                continue
            attempts += 1
            node = _place(profile, cluster, pod, transaction)
            if node:
                found[pod.uid] = node
            else:
                refused.add(key)
    return found


def _place(profile: Profile, cluster: ClusterState, pod: Pod, transaction: Transaction) -> str:
    """The node that the pod is on now; "" if there is none for it."""
    attempt = Attempt(profile, cluster, pod)
    try:
        if not attempt.has_nodes or not attempt.filter().feasible or attempt.error() is not None:
            return ""
        row = attempt.choose(Random(0)).row
        return cluster.table.names[row] if transaction.place(attempt.cycle, profile, row).ok else ""
    except ScoringFailed:
        return ""
    except Exception:
        _log.exception("pod %s cannot be evaluated", pod.title)
        return ""
