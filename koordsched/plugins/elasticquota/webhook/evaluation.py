"""Pods counted against max when they are created (gate EnableQuotaAdmission; elasticquota spec 3.18)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import orjson

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, add_to, exceeded, masked, text, texts
from koordsched.plugins.elasticquota.kinds import ADMISSION, CHILD_REQUEST, ElasticQuota
from koordsched.plugins.elasticquota.webhook.declared import Refused, amounts_in, amounts_of
from koordsched.plugins.elasticquota.webhook.quotas import BUILT_IN

EVALUATED = frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
        "kubernetes.io/mid-cpu",
        "kubernetes.io/mid-memory",
        "koordinator.sh/gpu",
        "koordinator.sh/gpu.shared",
        "koordinator.sh/gpu-memory-ratio",
        "nvidia.com/gpu",
    }
)
"""A quota whose max names none of these, nor a `requests.` key, is not evaluated."""


def admitted(name: str, found: Sequence[ElasticQuota], request: Amounts) -> ElasticQuota | None:
    """Counts a pod with this request in the quota of that name; returns the quota with its new child-request.

    `name`: what the pod's quota is called, "" if it has none; `found`: the objects of that name. None: nothing is to
    be counted. Raises Refused if it does not fit, or the quota is not there exactly once.
    """
    if not name or name in BUILT_IN:
        return None
    if len(found) != 1:
        problem = "not found" if not found else f"is there {len(found)} times"
        raise Refused(f"elastic quota {name} {problem}")
    quota = found[0]
    maximum = amounts_of(quota.spec.max, "max")
    if not any(key in EVALUATED or key.startswith("requests.") for key in maximum):
        return None
    wanted = {key: amount for key, amount in masked(request, maximum).items() if amount}
    annotations = quota.metadata.annotations
    counted = amounts_in(annotations.get(CHILD_REQUEST))
    limit = amounts_in(annotations.get(ADMISSION)) or maximum
    too_much = exceeded(masked(counted, wanted), wanted, masked(limit, wanted))
    if too_much:
        raise Refused(
            f"exceeded quota: {quota.metadata.namespace}/{name}, requested: {_pairs(wanted, too_much)}, "
            f"used: {_pairs(counted, too_much)}, limited: {_pairs(limit, too_much)}"
        )
    if not wanted:
        return None
    add_to(counted, wanted)
    shown = {**annotations, CHILD_REQUEST: orjson.dumps(texts(counted)).decode()}
    return msgspec.structs.replace(quota, metadata=msgspec.structs.replace(quota.metadata, annotations=shown))


def _pairs(amounts: Amounts, keys: Sequence[str]) -> str:
    return ",".join(f"{key}={text(key, amounts.get(key, 0))}" for key in keys)
