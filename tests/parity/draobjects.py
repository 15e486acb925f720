"""Claims as a record has them in the end, compared with those of the embedded cluster."""

import re

from tests.parity.matching import Names, differences

_SHARE = re.compile(r"<shareID \d+>")
_NAMED = re.compile(r"^(.*-extended-resources-)[a-z0-9]+$")
_COMPARED = ("allocation", "reservedFor", "devices")


def claim_differences(record, outcome):
    """What differs, as texts: claims there are, allocations with results in order, and their reservations."""
    names = Names({key: uid for uid, key in outcome.uids.items()})
    recorded = {_key(claim): _seen(claim) for claim in record["expected"]["objects"]}
    registry = outcome.embedded.registry
    stored = registry.list(registry.resource("resource.k8s.io", "v1", "resourceclaims"))
    ours = {_key(claim): _seen(claim) for claim in stored}
    found = differences(sorted(ours), sorted(recorded), names, "claims")
    for key in sorted(ours.keys() & recorded.keys()):
        found += differences(_with_shares(ours[key], recorded[key]), recorded[key], names, key)
    statuses = {key: pod.get("extendedResourceClaimStatus") for key, pod in record["expected"].items() if "/" in key}
    for key, status in statuses.items():
        pod = outcome.pod(key)
        shown = pod["status"].get("extendedResourceClaimStatus") if pod is not None else None
        if shown is not None:
            shown = {**shown, "resourceClaimName": _anonymous(shown["resourceClaimName"])}
        found += differences(shown, status, names, f"{key}.extendedResourceClaimStatus")
    return found


def _key(claim):
    meta = claim["metadata"]
    return f"{meta.get('namespace', 'default')}/{_anonymous(meta['name'])}"


def _anonymous(name):
    return _NAMED.sub(r"\1*", name)


def _seen(claim):
    """What is compared of a claim."""
    meta, status = claim["metadata"], claim.get("status") or {}
    owners = [
        {k: v for k, v in owner.items() if k != "blockOwnerDeletion"} for owner in meta.get("ownerReferences", ())
    ]
    return {
        "annotations": meta.get("annotations", {}),
        "owners": owners,
        "finalizers": meta.get("finalizers", []),
        "deleting": "deletionTimestamp" in meta,
        "requests": (claim.get("spec") or {}).get("devices", {}).get("requests", []),
        **{part: status.get(part) or None for part in _COMPARED},
    }


def _with_shares(ours, recorded):
    """Our claim with the placeholders of the record for random ids, one for each id."""
    known = {}
    for result, other in zip(_results(ours), _results(recorded), strict=False):
        if "shareID" in result and _SHARE.fullmatch(other.get("shareID", "")):
            result["shareID"] = known.setdefault(result["shareID"], other["shareID"])
    return ours


def _results(seen):
    return (seen.get("allocation") or {}).get("devices", {}).get("results", [])
