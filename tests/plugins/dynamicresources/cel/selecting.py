"""Devices and expressions about them, for the tests beside this file."""

from koordsched.api.resource import DeviceAttribute, DeviceCapacity
from koordsched.plugins.dynamicresources.cel import Device, Features, compile

DRIVER = "drv"
DEFAULT = Features()
LISTS = Features(consumable_capacity=True, list_type_attributes=True)


def attribute(value):
    """The attribute of a bool, int or str; of ("version", text); of a list of them."""
    match value:
        case bool():
            return DeviceAttribute(bool_value=value)
        case int():
            return DeviceAttribute(int_value=value)
        case str():
            return DeviceAttribute(string_value=value)
        case ("version", text):
            return DeviceAttribute(version_value=text)
        case [bool(), *_]:
            return DeviceAttribute(bools=tuple(value))
        case [int(), *_]:
            return DeviceAttribute(ints=tuple(value))
        case [("version", _), *_]:
            return DeviceAttribute(versions=tuple(text for _, text in value))
    return DeviceAttribute(strings=tuple(value))


def device(attributes=None, capacity=None, *, shared=None, features=DEFAULT):
    """A device of DRIVER."""
    return Device.of(
        DRIVER,
        {name: attribute(value) for name, value in (attributes or {}).items()},
        {name: DeviceCapacity(value=value) for name, value in (capacity or {}).items()},
        shared,
        features,
    )


def selects(text, on=None, features=DEFAULT):
    """Whether an expression selects a device."""
    return compile(text, features).evaluate(on if on is not None else device(features=features))
