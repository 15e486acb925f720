"""What the status of a ResourceClaim may say: the allocation, for which pods it is, and how its devices are."""

from __future__ import annotations

import re

from koordsched.fakecluster.deviceapi.claimrules import (
    MOST_CONFIGURATIONS,
    MOST_REQUESTS,
    RequestNames,
    default_tolerations,
    reference_errors,
    request_names,
    requested_configuration_errors,
)
from koordsched.fakecluster.deviceapi.fieldrules import (
    Errors,
    Object,
    binding_condition_errors,
    driver_errors,
    items_errors,
    label_key_errors,
    label_name_errors,
    pool_name_errors,
    raw_errors,
    set_errors,
    share_errors,
    toleration_errors,
)
from koordsched.fakecluster.errors import (
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from koordsched.fakecluster.podvalidation import node_selector_errors
from koordsched.fakecluster.quantities import canonicalize

_MOST_RESERVATIONS = 256
_MOST_RESULTS = MOST_REQUESTS
_MOST_CONDITIONS = 8
_LONGEST_DATA = 10 * 1024
_LONGEST_REASON = 1024
_LONGEST_MESSAGE = 32768
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_SOURCES = ("FromClaim", "FromClass")
_STATES = ("False", "True", "Unknown")

DeviceId = tuple[str, str, str, str]
"""Driver, pool, device, and share, which is empty for a device that is not shared."""


def device_id(entry: Object) -> DeviceId:
    """The device that a result of an allocation, or a device's status, is about."""
    return (
        entry.get("driver") or "", entry.get("pool") or "", entry.get("device") or "", entry.get("shareID") or "",
    )  # fmt: skip


def allocation_results(status: Object) -> list[Object]:
    """The devices of the allocation that a status has, in their order."""
    found: list[Object] = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return found


def allocated_devices(status: Object) -> set[DeviceId]:
    """The devices of the allocation."""
    return {device_id(result) for result in allocation_results(status)}


def default_claim_status(status: Object) -> None:
    """Fills the status of a claim, in place."""
    for result in allocation_results(status):
        default_tolerations(result)


def without_deallocated(status: Object, old: Object) -> Object:
    """The status without what it says of devices that it no longer allocates."""
    devices = status.get("devices")
    if not devices:
        return status
    gone = {device[:3] for device in allocated_devices(old)} - {device[:3] for device in allocated_devices(status)}
    kept = [device for device in devices if device_id(device)[:3] not in gone]
    return {**{key: value for key, value in status.items() if key != "devices"}, **({"devices": kept} if kept else {})}


def admin_result(status: Object) -> str | None:
    """The field of the first result with admin access, or None."""
    for i, result in enumerate(allocation_results(status)):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{i}].adminAccess"
    return None


def claim_status_errors(claim: Object, old: Object) -> Errors:
    """What is wrong with an update of the status of `old`; brings its quantities into canonical form on the way."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    wrong = set_errors(
        reserved, _MOST_RESERVATIONS, _consumer_errors, lambda entry: entry.get("uid") or "", "status.reservedFor"
    )
    allocated = allocated_devices(status)
    wrong += set_errors(
        status.get("devices") or [],
        None,
        lambda device, at: _device_errors(device, allocated, at),
        lambda device: "/".join(part for part in device_id(device) if part),
        "status.devices",
    )
    if reserved and allocation is None:
        wrong.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
    elif reserved and claim["metadata"].get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if any(entry not in known for entry in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            wrong.append(forbidden_field("status.reservedFor", text))
    if allocation is not None:
        if before.get("allocation") is not None:
            if allocation != before["allocation"]:
                wrong.append(invalid_value("status.allocation", allocation, "field is immutable"))
        else:
            wrong += _allocation_errors(allocation, request_names(claim.get("spec") or {}), "status.allocation")
    return wrong


def _consumer_errors(consumer: Object, field: str) -> Errors:
    return [required(f"{field}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]


def _allocation_errors(allocation: Object, names: RequestNames, field: str) -> Errors:
    devices = allocation.get("devices") or {}
    wrong = items_errors(
        devices.get("results") or [],
        _MOST_RESULTS,
        lambda result, at: _result_errors(result, names, at),
        f"{field}.devices.results",
    )
    wrong += items_errors(
        devices.get("config") or [],
        2 * MOST_CONFIGURATIONS,
        lambda config, at: _configuration_errors(config, names, at),
        f"{field}.devices.config",
    )
    if (selector := allocation.get("nodeSelector")) is not None:
        node_selector_errors(selector, f"{field}.nodeSelector", wrong)
    return wrong


def _result_errors(result: Object, names: RequestNames, field: str) -> Errors:
    wrong = reference_errors(result.get("request") or "", names, f"{field}.request")
    wrong += _identity_errors(result, field)
    wrong += binding_condition_errors(result, field)
    wrong += items_errors(result.get("tolerations") or [], None, toleration_errors, f"{field}.tolerations")
    return wrong + canonicalize(result.get("consumedCapacity"), f"{field}.consumedCapacity")


def _identity_errors(entry: Object, field: str) -> Errors:
    wrong = driver_errors(entry.get("driver"), f"{field}.driver")
    wrong += pool_name_errors(entry.get("pool"), f"{field}.pool")
    wrong += label_name_errors(entry.get("device") or "", f"{field}.device")
    share = entry.get("shareID")
    return wrong + (share_errors(share, f"{field}.shareID") if share is not None else [])


def _configuration_errors(config: Object, names: RequestNames, field: str) -> Errors:
    source = config.get("source")
    wrong: Errors = []
    if not source:
        wrong.append(required(f"{field}.source"))
    elif source not in _SOURCES:
        wrong.append(not_supported(f"{field}.source", source, _SOURCES))
    return wrong + requested_configuration_errors(config, names, field)


def _device_errors(device: Object, allocated: set[DeviceId], field: str) -> Errors:
    wrong = _identity_errors(device, field)
    if device_id(device) not in allocated:
        name = "/".join(part for part in device_id(device) if part)
        wrong.append(invalid_value(field, name, "must be an allocated device in the claim"))
    wrong += conditions_errors(device.get("conditions") or [], f"{field}.conditions")
    data = device.get("data")
    if data is not None:
        wrong += raw_errors(data, _LONGEST_DATA, f"{field}.data")
    return wrong


def conditions_errors(conditions: list[Object], field: str) -> Errors:
    """What is wrong with a list of conditions (apimachinery: ValidateConditions), of which eight may be set."""
    wrong = items_errors(conditions, _MOST_CONDITIONS, _condition_errors, field)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        kind = condition.get("type") or ""
        if kind in seen:
            wrong.append(duplicate(f"{field}[{i}].type", kind))
        seen.add(kind)
    return wrong


def _condition_errors(condition: Object, field: str) -> Errors:
    kind, status, reason = condition.get("type"), condition.get("status"), condition.get("reason")
    wrong = label_key_errors(kind, f"{field}.type") if kind else [required(f"{field}.type", "must be set")]
    if status not in _STATES:
        wrong.append(not_supported(f"{field}.status", status or "", _STATES))
    if (condition.get("observedGeneration") or 0) < 0:
        text = "must be greater than or equal to zero"
        wrong.append(invalid_value(f"{field}.observedGeneration", condition["observedGeneration"], text))
    if not condition.get("lastTransitionTime"):
        wrong.append(required(f"{field}.lastTransitionTime", "must be set"))
    if not reason:
        wrong.append(required(f"{field}.reason", "must be set"))
    else:
        if not _REASON.fullmatch(reason):
            text = (
                "a condition reason must start with alphabetic character, optionally followed by a string of "
                "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
                "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for "
                "validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            )
            wrong.append(invalid_value(f"{field}.reason", reason, text))
        if len(reason) > _LONGEST_REASON:
            wrong.append(too_long(f"{field}.reason", _LONGEST_REASON))
    if len(condition.get("message") or "") > _LONGEST_MESSAGE:
        wrong.append(too_long(f"{field}.message", _LONGEST_MESSAGE))
    return wrong
