"""Which existing volume a claim may have.

Source of the rules: kube-controller-manager `pkg/controller/volume/persistentvolume/index.go`.
"""

from __future__ import annotations

from koordsched.api import quantity
from koordsched.fakecluster.controllers.informer import Informer
from koordsched.fakecluster.controllers.ownership import Key, Object, is_deleting, key_of
from koordsched.fakecluster.controllers.selectorindex import parse_selector


class VolumeMatcher:
    """Volumes by the claim they are meant for, and those meant for none by their class."""

    def __init__(self, volumes: Informer) -> None:
        self._volumes = volumes
        self._reserved: dict[Key, dict[str, None]] = {}
        self._open: dict[str, dict[str, None]] = {}
        volumes.on_change(self._changed)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        for volume, present in ((before, False), (after, True)):
            if volume is None:
                continue
            name, reference = volume["metadata"]["name"], volume["spec"].get("claimRef")
            if reference is not None:
                key = (reference.get("namespace") or "", reference.get("name") or "")
                members = self._reserved.setdefault(key, {})
            else:
                members = self._open.setdefault(volume["spec"].get("storageClassName") or "", {})
            if present:
                members[name] = None
            else:
                members.pop(name, None)

    def reserved_for(self, claim: Object) -> Object | None:
        """The volume whose claimRef means this claim."""
        for name in self._reserved.get(key_of(claim), ()):
            volume = self._volumes.get(("", name))
            if volume is not None and refers_to(volume["spec"]["claimRef"], claim):
                return volume
        return None

    def smallest_fit(self, claim: Object) -> Object | None:
        """The smallest volume without a claimRef that satisfies the claim."""
        fitting = [
            (capacity(volume["spec"].get("capacity")), name)
            for name in self._open.get(claim["spec"].get("storageClassName") or "", ())
            if (volume := self._volumes.get(("", name))) is not None and _fits(volume, claim)
        ]
        return self._volumes.get(("", min(fitting)[1])) if fitting else None


def refers_to(reference: Object, claim: Object) -> bool:
    """Whether a claimRef means this claim; without a uid it means whichever claim has the name."""
    return (reference.get("namespace") or "", reference.get("name")) == key_of(claim) and (
        not reference.get("uid") or reference["uid"] == claim["metadata"]["uid"]
    )


def capacity(quantities: Object | None) -> int:
    """Bytes of storage; what cannot be read counts as none."""
    try:
        return quantity.value((quantities or {}).get("storage", "0"))
    except quantity.QuantityError:
        return 0


def _fits(volume: Object, claim: Object) -> bool:
    offer, demand = volume["spec"], claim["spec"]
    if is_deleting(volume):
        return False
    if (offer.get("volumeMode") or "Filesystem") != (demand.get("volumeMode") or "Filesystem"):
        return False
    if not set(demand.get("accessModes") or ()) <= set(offer.get("accessModes") or ()):
        return False
    if demand.get("selector"):
        selector = parse_selector(demand["selector"])
        if selector is None or not selector.matches(volume["metadata"].get("labels") or {}):
            return False
    return capacity(offer.get("capacity")) >= capacity((demand.get("resources") or {}).get("requests"))
