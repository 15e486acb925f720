"""What may be claimed: the spec of a ResourceClaim or of a template of claims, and its defaults."""

from __future__ import annotations

from koordsched.fakecluster.deviceapi.fieldrules import (
    Errors,
    Object,
    configuration_errors,
    items_errors,
    label_name_errors,
    name_of,
    qualified_attribute_errors,
    set_errors,
    subdomain_errors,
    toleration_errors,
)
from koordsched.fakecluster.errors import invalid_value, not_supported, required, too_long
from koordsched.fakecluster.quantities import canonicalize

MOST_REQUESTS = 32
MOST_CONFIGURATIONS = 32
_MOST_CONSTRAINTS = 32
_MOST_SELECTORS = 32
_MOST_ALTERNATIVES = 8
_MOST_TOLERATIONS = 16
_LONGEST_EXPRESSION = 10 * 1024
_MODES = ("All", "ExactCount")

RequestNames = dict[str, set[str]]
"""The requests of a claim, each with the names of its alternatives."""


def default_claim_spec(spec: Object) -> None:
    """Fills the spec of a claim, in place."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        for asked in (request["exactly"], *alternatives) if request.get("exactly") is not None else alternatives:
            asked["allocationMode"] = asked.get("allocationMode") or "ExactCount"
            if asked["allocationMode"] == "ExactCount" and not asked.get("count"):
                asked["count"] = 1
            default_tolerations(asked)


def default_tolerations(holder: Object) -> None:
    """Tolerations compare values unless they say otherwise."""
    for toleration in holder.get("tolerations") or ():
        toleration["operator"] = toleration.get("operator") or "Equal"


def request_names(spec: Object) -> RequestNames:
    """The names by which the requests of a claim and their alternatives are referred to."""
    return {
        name_of(request): {name_of(each) for each in request.get("firstAvailable") or ()}
        for request in (spec.get("devices") or {}).get("requests") or ()
    }


def claim_spec_errors(spec: Object, field: str) -> Errors:
    """What is wrong with the spec of a claim; brings its quantities into canonical form on the way."""
    devices, names = spec.get("devices") or {}, request_names(spec)
    where = f"{field}.devices"
    wrong = set_errors(devices.get("requests") or [], MOST_REQUESTS, _request_errors, name_of, f"{where}.requests")
    wrong += items_errors(
        devices.get("constraints") or [],
        _MOST_CONSTRAINTS,
        lambda constraint, at: _constraint_errors(constraint, names, at),
        f"{where}.constraints",
    )
    return wrong + items_errors(
        devices.get("config") or [],
        MOST_CONFIGURATIONS,
        lambda config, at: requested_configuration_errors(config, names, at),
        f"{where}.config",
    )


def _request_errors(request: Object, field: str) -> Errors:
    wrong = label_name_errors(request.get("name") or "", f"{field}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is not None and alternatives:
        wrong.append(invalid_value(field, None, f"{rule}, but multiple fields are set"))
    elif exactly is not None:
        wrong += _asked_errors(exactly, f"{field}.exactly")
    elif alternatives:
        wrong += set_errors(
            alternatives, _MOST_ALTERNATIVES, _alternative_errors, name_of, f"{field}.firstAvailable"
        )  # fmt: skip
    else:
        wrong.append(required(field, rule))
    return wrong


def _alternative_errors(alternative: Object, field: str) -> Errors:
    wrong = label_name_errors(alternative.get("name") or "", f"{field}.name")
    return wrong + _asked_errors(alternative, field)


def _asked_errors(asked: Object, field: str) -> Errors:
    """What a request and each of its alternatives have in common."""
    wrong = subdomain_errors(asked.get("deviceClassName"), f"{field}.deviceClassName")
    wrong += selectors_errors(asked.get("selectors") or [], f"{field}.selectors")
    mode, count = asked.get("allocationMode"), asked.get("count") or 0
    if mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            wrong.append(invalid_value(f"{field}.count", count, text))
    elif mode == "ExactCount":
        if count <= 0:
            wrong.append(invalid_value(f"{field}.count", count, "must be greater than zero"))
    else:
        wrong.append(not_supported(f"{field}.allocationMode", mode, _MODES))
    wrong += items_errors(
        asked.get("tolerations") or [], _MOST_TOLERATIONS, toleration_errors, f"{field}.tolerations"
    )  # fmt: skip
    return wrong + canonicalize((asked.get("capacity") or {}).get("requests"), f"{field}.capacity.requests")


def selectors_errors(selectors: list[Object], field: str) -> Errors:
    """Selectors of devices. Their expressions are not compiled: the scheduler says what is wrong with one."""
    return items_errors(selectors, _MOST_SELECTORS, _selector_errors, field)


def _selector_errors(selector: Object, field: str) -> Errors:
    if selector.get("cel") is None:
        return [required(f"{field}.cel")]
    expression, where = selector["cel"].get("expression") or "", f"{field}.cel.expression"
    if not expression:
        return [required(where)]
    return [too_long(where, _LONGEST_EXPRESSION)] if len(expression.encode()) > _LONGEST_EXPRESSION else []


def _constraint_errors(constraint: Object, names: RequestNames, field: str) -> Errors:
    wrong = _references_errors(constraint.get("requests") or [], names, f"{field}.requests")
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    rule = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
    if match is not None:
        wrong += qualified_attribute_errors(match, f"{field}.matchAttribute")
    elif distinct is not None:
        wrong += qualified_attribute_errors(distinct, f"{field}.distinctAttribute")
    else:
        # The API server's words; it accepts both, and the first one counts.
        wrong.append(required(field, rule))
    return wrong


def requested_configuration_errors(config: Object, names: RequestNames, field: str) -> Errors:
    """Configuration of the devices of some requests."""
    wrong = _references_errors(config.get("requests") or [], names, f"{field}.requests")
    return wrong + configuration_errors(config, field)


def _references_errors(references: list[str], names: RequestNames, field: str) -> Errors:
    return set_errors(references, MOST_REQUESTS, lambda name, at: reference_errors(name, names, at), str, field)


def reference_errors(name: str, names: RequestNames, field: str) -> Errors:
    """A reference to a request of the claim, or to an alternative of one (`request/alternative`)."""
    text = (
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    )  # fmt: skip
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_value(field, name, text)]
    wrong = [error for part in parts for error in label_name_errors(part, field)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    return wrong if known else [*wrong, invalid_value(field, name, text)]
