"""What a device's capacity may say: an amount, and which parts of it a request may have of a device that is shared."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from koordsched.fakecluster.deviceapi.fieldrules import Errors, Object, set_errors
from koordsched.fakecluster.errors import FieldError, forbidden_field, invalid_value, required
from koordsched.fakecluster.quantities import amount, canonical, canonicalize_member, exceeds

_MOST_VALID_VALUES = 10


def capacity_errors(capacity: Object, shared: bool, field: str) -> Errors:
    """What is wrong with a capacity of a device, which may be `shared` or not; makes its quantities canonical."""
    policy = capacity.get("requestPolicy")
    wrong = canonicalize_member(capacity, "value", f"{field}.value")
    if policy is None:
        return wrong
    where = f"{field}.requestPolicy"
    if not shared:
        return [*wrong, forbidden_field(where, "allowMultipleAllocations must be true")]
    wrong += _canonical_policy(policy, where)
    if wrong:
        return wrong
    values, range_ = policy.get("validValues"), policy.get("validRange")
    if values and range_ is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(where, text)]
    default, whole = policy.get("default"), str(capacity.get("value") or "0")
    if values:
        if default is None:
            return [required(f"{where}.default", "required when validValues is defined")]
        return _values_errors(values, default, whole, f"{where}.validValues")
    if range_ is not None:
        if default is None:
            return [required(f"{where}.default", "required when validRange is defined")]
        return _range_errors(range_, default, whole, f"{where}.validRange")
    return []


def _canonical_policy(policy: Object, field: str) -> Errors:
    wrong = canonicalize_member(policy, "default", f"{field}.default")
    values = policy.get("validValues")
    if values:
        by_index = {str(i): value for i, value in enumerate(values)}
        for i in by_index:
            wrong += canonicalize_member(by_index, i, f"{field}.validValues[{i}]")
        policy["validValues"] = list(by_index.values())
    range_ = policy.get("validRange")
    if range_ is not None:
        for key in ("min", "max", "step"):
            wrong += canonicalize_member(range_, key, f"{field}.validRange.{key}")
    return wrong


def _values_errors(values: list[str], default: str, whole: str, field: str) -> Errors:
    wrong: Errors = []
    for i, (value, following) in enumerate(pairwise(values), start=1):
        if exceeds(value, following):
            text = "values must be sorted in ascending order"
            wrong.append(invalid_value(f"{field}[{i}]", following, text))
    wrong += set_errors(
        values, _MOST_VALID_VALUES, lambda value, at: _within(value, whole, "option", at), lambda value: value, field
    )
    if not any(amount(value) == amount(default) for value in values):
        wrong.append(invalid_value(field, default, "default value is not valid according to the requestPolicy"))
    return wrong


def _within(value: str, whole: str, what: str, field: str) -> Errors:
    if exceeds(value, whole):
        return [invalid_value(field, value, f"{what} is larger than capacity value: {whole}")]
    return []


def _range_errors(range_: Object, default: str, whole: str, field: str) -> Errors:
    least, most, step = range_.get("min"), range_.get("max"), range_.get("step")
    if least is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    wrong = _within(least, whole, "min", f"{field}.min")
    if exceeds(least, default):
        wrong.append(invalid_value(f"{field}.default", default, f"default is less than min: {least}"))
    if most is not None:
        if exceeds(least, most):
            wrong.append(invalid_value(f"{field}.max", least, f"min is larger than max: {most}"))
        wrong += _within(most, whole, "max", f"{field}.max")
        if exceeds(default, most):
            wrong.append(invalid_value(f"{field}.default", default, f"default is more than max: {most}"))
    return wrong + (_step_errors(range_, default, whole, field) if step is not None else [])


def _step_errors(range_: Object, default: str, whole: str, field: str) -> Errors:
    least, most, step = range_["min"], range_.get("max"), range_["step"]
    where = f"{field}.step"
    if amount(step) <= 0:
        return [invalid_value(where, step, "must be greater than zero")]
    wrong: Errors = []
    one = amount(least) + amount(step)
    if one > amount(whole):
        text = f"one step {_text(one, least)} is larger than capacity value: {whole}"
        wrong.append(invalid_value(where, step, text))
    for value in (default, most):
        # As the scheduler counts: in whole units, rounded up.
        if value is not None and (-(-amount(value) // 1) + (-amount(least) // 1)) % -(-amount(step) // 1):
            wrong.append(_not_a_multiple(value, step, least, where))
    return wrong


def _not_a_multiple(value: str, step: str, least: str, field: str) -> FieldError:
    return invalid_value(field, value, f"value is not a multiple of a given step ({step}) from ({least})")


def _text(value: Fraction, like: str) -> str:
    """A sum as a quantity in the form of its first part."""
    if like.endswith("i") and value % 1024 == 0:
        return canonical(f"{value / 1024}Ki")
    return canonical(f"{value * 1000 // 1}m")
