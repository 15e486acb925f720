"""The defaults of a new quota (elasticquota spec 3.18, mutating)."""

from __future__ import annotations

import msgspec
import orjson

from koordsched.api.core import Quantities
from koordsched.plugins.elasticquota.kinds import PARENT, ROOT_QUOTA, SHARED_WEIGHT, TREE_ID, ElasticQuota
from koordsched.plugins.elasticquota.webhook.declared import DeclaredQuotas, Refused, canonical


def filled_in(quota: ElasticQuota, quotas: DeclaredQuotas) -> ElasticQuota:
    """The quota with parent, tree and weight; the root quota stays as it is. Raises Refused."""
    meta = quota.metadata
    if meta.name == ROOT_QUOTA:
        return quota
    labels, annotations = dict(meta.labels), dict(meta.annotations)
    labels[PARENT] = labels.get(PARENT) or ROOT_QUOTA
    if TREE_ID not in labels and labels[PARENT] != ROOT_QUOTA:
        parent = quotas.by_name.get(labels[PARENT])
        if parent is None:
            raise Refused(f"fill quota {meta.name} failed, parent not exist")
        if parent.tree_id:
            labels[TREE_ID] = parent.tree_id
    annotations[SHARED_WEIGHT] = _weight(annotations.get(SHARED_WEIGHT), quota.spec.max)
    changed = msgspec.structs.replace(meta, labels=labels, annotations=annotations)
    return msgspec.structs.replace(quota, metadata=changed)


def weight_is_defaulted(quota: ElasticQuota) -> bool:
    """Whether the weight is filled in altogether, which is counted in a metric."""
    return not quota.metadata.annotations.get(SHARED_WEIGHT)


def _weight(given: str | None, maximum: Quantities) -> str:
    """The weights as JSON: those given, completed from max, without what is not in max."""
    shown = canonical(maximum)
    if not given:
        return orjson.dumps(shown).decode() if shown else "null"
    try:
        weights = msgspec.json.decode(given, type=Quantities | None) or {}
    except msgspec.MsgspecError as error:
        raise Refused(f"fillDefaultQuotaInfo unmarshal sharedWeight failed:{error}") from error
    try:
        kept = canonical({name: weights[name] for name in shown if name in weights})
    except Refused as error:
        raise Refused(f"fillDefaultQuotaInfo unmarshal sharedWeight failed:{error}") from error
    return orjson.dumps({**shown, **kept}, option=orjson.OPT_SORT_KEYS).decode()
