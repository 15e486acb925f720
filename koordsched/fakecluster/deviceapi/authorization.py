"""Who may write which part of a claim's status, besides having access to the status as such.

Schedulers need `resourceclaims/binding` for allocations and reservations, drivers `resourceclaims/driver`, by the name
of the driver, for what they report of devices (feature gate DRAResourceClaimGranularStatusAuthorization).
"""

from __future__ import annotations

from koordsched.fakecluster import errors
from koordsched.fakecluster.auth import User
from koordsched.fakecluster.deviceapi.fieldrules import Errors, Object
from koordsched.fakecluster.deviceapi.statusrules import device_id
from koordsched.fakecluster.errors import forbidden_field
from koordsched.fakecluster.rbac import Rbac
from koordsched.fakecluster.registry import Permit, Registry

CLAIMS = "resource.k8s.io/resourceclaims"
"""Storage key of the claims."""
_ARBITRARY_NODE = "arbitrary-node:"
"""Begins the verbs for drivers that are not bound to a node. No account of this cluster is bound to one."""


class ClaimStatusAuthorization:
    """Asks the stored roles."""

    def __init__(self, registry: Registry) -> None:
        self._rbac = Rbac(registry)
        self._claims = registry.find("resource.k8s.io", "v1", "resourceclaims")

    def permit(self, user: User, verb: str, namespace: str) -> Permit:
        """The check of a status written by this user; `verb` is update or patch."""

        def check(new: Object, old: Object) -> Errors:
            status, before = new.get("status") or {}, old.get("status") or {}
            wrong: Errors = []
            if any(status.get(key) != before.get(key) for key in ("allocation", "reservedFor")):
                wrong += self._binding_errors(user, verb)
            return wrong + [
                error
                for driver in sorted(_changed_drivers(status, before))
                for error in self._driver_errors(user, f"{_ARBITRARY_NODE}{verb}", namespace, driver)
            ]

        return check

    def _binding_errors(self, user: User, verb: str) -> Errors:
        refusal = self._refusal(user, verb, "binding", None, "")
        if refusal is None:
            return []
        text = (
            "changing status.allocation or status.reservedFor requires "
            f'resource="resourceclaims/binding", verb="{verb}" permission: {refusal}'
        )
        return [forbidden_field("status", text)]

    def _driver_errors(self, user: User, verb: str, namespace: str, driver: str) -> Errors:
        refusal = self._refusal(user, verb, "driver", namespace, driver)
        if refusal is None:
            return []
        text = (
            f'changing status.devices requires resource="resourceclaims/driver", verb="[{verb}]" permission: {refusal}'
        )
        return [forbidden_field("status.devices", text)]

    def _refusal(self, user: User, verb: str, subresource: str, namespace: str | None, name: str) -> str | None:
        """The words of a refusal; None if a role allows it. Without a namespace, in all of them."""
        if self._claims is None:
            return None
        wanted = {"group": "resource.k8s.io", "resource": "resourceclaims", "subresource": subresource, "verb": verb}
        wanted |= {"namespace": namespace or "", "name": name}
        if self._rbac.allowed(user, {"resourceAttributes": wanted}):
            return None
        return errors.not_authorized(user.name, verb, self._claims, namespace, subresource, name).message


def _changed_drivers(status: Object, before: Object) -> set[str]:
    """The drivers of whose devices a status says something else than before."""
    new = {device_id(device): device for device in status.get("devices") or ()}
    old = {device_id(device): device for device in before.get("devices") or ()}
    return {key[0] for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
