"""A device as expressions see it."""

from __future__ import annotations

from collections.abc import Mapping

from koordsched.api.resource import DeviceAttribute, DeviceCapacity
from koordsched.plugins.dynamicresources.cel.environment import Features
from koordsched.plugins.dynamicresources.cel.errors import EvaluationError, Failure
from koordsched.plugins.dynamicresources.cel.quantities import parse_quantity
from koordsched.plugins.dynamicresources.cel.values import Domains, Map, Value, text_map
from koordsched.plugins.dynamicresources.cel.versions import Semver, parse_semver


class Device:
    """The value of the variable `device`; or why there is none, which every evaluation then says."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Value, error: str = "") -> None:
        self._value = value
        self._error = error

    @classmethod
    def of(
        cls,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool | None = False,
        features: Features = Features(),  # noqa: B008
    ) -> Device:
        """Converts attributes and capacity by qualified name; names without a domain belong to the driver's."""
        try:
            values = {name: _attribute(name, each, features) for name, each in attributes.items()}
            amounts = {name: _capacity(name, each) for name, each in capacity.items()}
        except Failure as error:
            return cls(None, str(error))
        device = {
            "driver": driver,
            "allowMultipleAllocations": bool(allow_multiple_allocations),
            "attributes": _by_domain(values, driver),
            "capacity": _by_domain(amounts, driver),
        }
        return cls(text_map(device))

    @property
    def value(self) -> Value:
        """The map that expressions select from. Raises EvaluationError if an attribute has no value in the language."""
        if self._error:
            raise EvaluationError(self._error)
        return self._value


def _attribute(name: str, attribute: DeviceAttribute, features: Features) -> Value:
    if features.list_type_attributes:
        for values in (attribute.ints, attribute.bools, attribute.strings):
            if values:
                return values
        if attribute.versions:
            return tuple(_version(name, each) for each in attribute.versions)
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        return _version(name, attribute.version_value)
    raise Failure(f"attribute {name}: unsupported attribute value")


def _version(name: str, text: str) -> Semver:
    try:
        return parse_semver(text)
    except Failure as error:
        raise Failure(f"attribute {name}: parse semantic version: {error}") from None


def _capacity(name: str, capacity: DeviceCapacity) -> Value:
    try:
        return parse_quantity(str(capacity.value))
    except Failure as error:
        raise Failure(f"capacity {name}: {error}") from None


def _by_domain(values: Mapping[str, Value], driver: str) -> Map:
    domains: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    result = Domains()
    for domain, each in domains.items():
        result.put(domain, text_map(each))
    return result
