"""Values of command line flags, read as Go's flag packages read them. Each function raises click.BadParameter."""

import click

from koordsched.api.quantity import QuantityError
from koordsched.api.quantity import value as quantity_value
from koordsched.config.duration import Duration

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_VERSIONS = ("1.33", "1.34", "1.35", "1.36")


def boolean(value: str | bool) -> bool:
    if isinstance(value, bool):
        return value
    if value not in _TRUE + _FALSE:
        raise click.BadParameter(f'strconv.ParseBool: parsing "{value}": invalid syntax')
    return value in _TRUE


def duration(value: str | Duration) -> Duration:
    if isinstance(value, Duration):
        return value
    try:
        return Duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def comma_list(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else tuple(filter(None, value.split(",")))


def integers(value: str | tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of 32 bits, separated by commas."""
    if isinstance(value, tuple):
        return value
    return tuple(_int32(text.strip()) for text in filter(None, value.split(",")))


def _int32(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise click.BadParameter(f'strconv.Atoi: parsing "{text}": invalid syntax')
    if len(digits) > 10 or not -(1 << 31) <= int(text) < 1 << 31:
        raise click.BadParameter(f'strconv.Atoi: parsing "{text}": value out of range')
    return int(text)


def level(value: str | int) -> int:
    """A log level; `-v=2`, which click hands over as `=2`, is one too."""
    text = str(value).removeprefix("=")
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise click.BadParameter(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def size(value: str | int) -> int:
    """Bytes, as a quantity: 1000000, 64Mi, 1G."""
    try:
        amount = quantity_value(value)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error
    if amount < 0:
        raise click.BadParameter(f"{value} is negative")
    return amount


def kubernetes_version(value: str) -> str:
    """`1.35` or `kube=1.35`, within what upstream can emulate."""
    version = value.removeprefix("kube=").removeprefix("v")
    if version not in _VERSIONS:
        raise click.BadParameter(f"emulation version {version} is not between [{_VERSIONS[0]}, {_VERSIONS[-1]}]")
    return version
