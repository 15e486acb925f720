"""Claims as the scheduler knows them: as the API server last showed them, or as they are assumed to be.

Upstream's assume cache (dra spec 3.3): nothing older than what is known counts, whichever way it comes, unless the
server went back in time; and subscribers hear of every change of what is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from koordsched.api import versions
from koordsched.api.resource import ResourceClaim
from koordsched.cluster.objects import Store, Subscriber

ClaimKey = tuple[str, str]
"""(namespace, name)."""


class NotAssumed(Exception):
    """The claim cannot be assumed; the message says why."""


class AssumedClaims:
    """The newest known state of every claim."""

    def __init__(self, store: Store[ResourceClaim]) -> None:
        self._store = store
        self._seen: dict[ClaimKey, ResourceClaim] = {}
        self._latest: dict[ClaimKey, ResourceClaim] = {}
        self._subscribers: list[Subscriber[ResourceClaim]] = []
        store.subscribe(self._changed)

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as assumed, else as the API server showed it."""
        return self._latest.get((namespace, name))

    def seen(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as the API server showed it."""
        return self._seen.get((namespace, name))

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)

    def subscribe(self, subscriber: Subscriber[ResourceClaim]) -> None:
        """Calls it for every claim there is and for every later change of what is known."""
        self._subscribers.append(subscriber)
        for claim in self._latest.values():
            subscriber(None, claim)

    def assume(self, claim: ResourceClaim) -> None:
        """From now on the claim is assumed to be this. Raises NotAssumed if it is unknown, or known to be newer."""
        key = key_of(claim)
        known = self._latest.get(key)
        title = f'ResourceClaim "{key[0]}/{key[1]}"'
        if known is None:
            raise NotAssumed(f"could not find {title}")
        if is_older(claim, known):
            stored, assumed = known.metadata.resource_version, claim.metadata.resource_version
            raise NotAssumed(f"{title} is out of sync (stored: {stored}, assume: {assumed})")
        self._latest[key] = claim
        self._tell(known, claim)

    def restore(self, namespace: str, name: str) -> None:
        """Takes back what was assumed of the claim."""
        key = (namespace, name)
        known, seen = self._latest.get(key), self._seen.get(key)
        if known is not None and seen is not None and known is not seen:
            self._latest[key] = seen
            self._tell(known, seen)

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if new is None:
            assert old is not None, "a change has an object"
            self._seen.pop(key_of(old), None)
            known = self._latest.pop(key_of(old), None)
            if known is not None:
                self._tell(known, None)
            return
        key = key_of(new)
        known = self._latest.get(key)
        if known is not None and not self._store.anew and not _is_newer(new, known):
            return
        self._seen[key] = self._latest[key] = new
        self._tell(known, new)

    def _tell(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        for subscriber in self._subscribers:
            subscriber(old, new)


def key_of(claim: ResourceClaim) -> ClaimKey:
    """(namespace, name)."""
    return claim.metadata.namespace, claim.metadata.name


def is_older(claim: ResourceClaim, other: ResourceClaim) -> bool:
    """Whether it is an older state of the same claim."""
    a, b = claim.metadata, other.metadata
    return a.uid == b.uid and versions.is_older(a.resource_version, b.resource_version)


def _is_newer(claim: ResourceClaim, other: ResourceClaim) -> bool:
    """Whether it is another claim, or a newer state; of states without versions, the one that comes later is."""
    a, b = claim.metadata, other.metadata
    if a.uid != b.uid or not (versions.is_number(a.resource_version) and versions.is_number(b.resource_version)):
        return True
    return versions.is_older(b.resource_version, a.resource_version)
