"""Sets the binding conditions of allocated devices: what a driver does while the scheduler waits for it.

Devices of pools with `ready` become ready after that time. The annotation `koordsched.io/binding-conditions` of a claim
says otherwise: a time (`30s`), `never`, or `fail`, with which the failure conditions become true at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.deviceapi.statusrules import allocation_results, device_id
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.duration import parse_duration
from koordsched.fakecluster.hollow.resourcepools import PoolId
from koordsched.fakecluster.hollow.slicepublisher import SlicePublisher
from koordsched.fakecluster.registry import ChangeView, Registry

Object = dict[str, Any]

BINDING_CONDITIONS = "koordsched.io/binding-conditions"
FAIL, NEVER = "fail", "never"
_MARK = b'"bindingConditions"'


class BindingConditions:
    """For the claims to devices that `publisher` publishes."""

    def __init__(self, registry: Registry, timers: BatchedTimers, publisher: SlicePublisher) -> None:
        self._registry = registry
        self._timers = timers
        self._publisher = publisher
        self._claims = registry.find("resource.k8s.io", "v1", "resourceclaims")
        self._planned: dict[str, dict[PoolId, str]] = {}
        """What is planned, by the uid of the claim and the pool; it is done once per allocation."""

    def start(self) -> Callable[[], None]:
        """Follows the claims; returns what ends it."""
        return (
            self._registry.subscribe_changes(self._claims, self._changed) if self._claims is not None else lambda: None
        )

    def _changed(self, change: ChangeView) -> None:
        uid = change.record.uid
        if change.type == "DELETED" or _MARK not in change.record.data:
            # Most claims have none, and are not decoded.
            self._planned.pop(uid, None)
            return
        claim = change.new
        results = allocation_results(claim.get("status") or {})
        wanted = (claim["metadata"].get("annotations") or {}).get(BINDING_CONDITIONS)
        planned = self._planned.setdefault(uid, {})
        for pool in sorted({device_id(each)[:2] for each in results if "bindingConditions" in each}):
            published = self._publisher.pools.get(pool)
            plan = wanted or (published[1].ready if published is not None else "")
            if published is None or not plan or planned.get(pool) == plan:
                continue
            planned[pool] = plan
            if plan == NEVER:
                continue
            try:
                delay = 0.0 if plan == FAIL else parse_duration(plan)
            except ValueError as error:
                message = f"{BINDING_CONDITIONS} is ignored: {error}"
                self._timers.after(0.0, invalid_annotation, self._registry, claim, pool[0], message)
                continue
            self._timers.after(delay, self._report, change.record.key, uid, pool, plan)

    def _report(self, key: tuple[str, str], uid: str, pool: PoolId, plan: str) -> None:
        """Writes the conditions, if the claim still has the devices and nothing else was planned since."""
        if self._claims is None or self._planned.get(uid, {}).get(pool) != plan:
            return
        record = self._registry.collection(self._claims).get(*key)
        if record is None or record.uid != uid:
            return
        claim = record.obj()
        status = claim.get("status") or {}
        stamp = rfc3339(self._registry.clock.now())
        devices = {device_id(device): device for device in status.get("devices") or ()}
        for result in allocation_results(status):
            if device_id(result)[:2] != pool or "bindingConditions" not in result:
                continue
            known = devices.get(device_id(result)) or {}
            shared = {"shareID": result["shareID"]} if "shareID" in result else {}
            own = {"driver": result["driver"], "pool": result["pool"], "device": result["device"], **shared}
            devices[device_id(result)] = {**known, **own, "conditions": _conditions(known, result, plan, stamp)}
        changed = {**status, "devices": list(devices.values())}
        if changed != status:
            self._registry.replace_status(self._claims, *key, changed)


def _conditions(device: Object, result: Object, plan: str, stamp: str) -> list[Object]:
    """The conditions of a device with those that the binding waits for, or those that end the wait."""
    names, reason, message = result["bindingConditions"], "DeviceReady", "the device is ready"
    if plan == FAIL:
        names = result.get("bindingFailureConditions") or []
        reason, message = "DeviceFailed", f"failed on command: annotation {BINDING_CONDITIONS}"
    others = [entry for entry in device.get("conditions") or () if entry.get("type") not in names]
    entry = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp}
    return others + [{"type": name, **entry} for name in names]
