"""Special claims that exist, found by the pod they were made for."""

from __future__ import annotations

from koordsched.api.resource import ResourceClaim
from koordsched.cluster.pod import Pod
from koordsched.plugins.dynamicresources.extended.claim import owner_of

_Key = tuple[str, str]
"""(namespace, name)."""

_DISOWNED_KEPT = 4096
"""Claims of failed attempts that are remembered; a watch that began anew never shows that some of them are gone."""


class SpecialClaims:
    """The special claims of the cluster by the uid of their pod; follows every change of a claim.

    To be fed with the newest known claims, assumed ones included.
    """

    __slots__ = ("_by_owner", "_disowned")

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[_Key, ResourceClaim]] = {}
        self._disowned: dict[str, None] = {}

    def disown(self, claim: ResourceClaim) -> None:
        """The attempt that made the claim has failed: however late the claim is seen, it is of no later attempt."""
        self._disowned[claim.metadata.uid] = None
        if len(self._disowned) > _DISOWNED_KEPT:
            del self._disowned[next(iter(self._disowned))]

    def pod_of(self, claim: ResourceClaim) -> str | None:
        """The uid of the pod whose current attempt has made the claim; None for others."""
        owner = owner_of(claim) if claim.metadata.uid not in self._disowned else None
        return owner[0] if owner is not None else None

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """A claim appeared, changed or is gone."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._disowned.pop(old.metadata.uid, None)
        for claim, comes in ((old, False), (new, True)):
            if claim is None or (owner := owner_of(claim)) is None:
                continue
            key = (claim.metadata.namespace, claim.metadata.name)
            if comes:
                self._by_owner.setdefault(owner[0], {})[key] = claim
            elif (claims := self._by_owner.get(owner[0])) is not None:
                claims.pop(key, None)
                if not claims:
                    del self._by_owner[owner[0]]

    def of(self, pod: Pod) -> ResourceClaim | None:
        """The claim that was made for the pod in an earlier attempt; of several the first by name."""
        claims = self._by_owner.get(pod.uid)
        if not claims:
            return None
        own = [key for key, claim in claims.items() if owner_of(claim) == (pod.uid, pod.name)]
        return claims[min(own)] if own else None

    def __len__(self) -> int:
        """Pods that have one."""
        return len(self._by_owner)
