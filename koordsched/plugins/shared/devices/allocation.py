"""What devices a pod was given; the annotation that says so.

Source: koordinator `apis/extension/device_share.go`; deviceshare spec 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from koordsched.api.quantity import QuantityError, format_bytes, format_nano, value
from koordsched.plugins.shared.devices.resources import DEPRECATED, GPU_MEMORY, MAX_MINORS

Amounts = tuple[tuple[str, int], ...]
"""(resource, amount) in the order of names."""


class Given(NamedTuple):
    """One device, or the part of it that the pod was given. `functions`: (bus id, minor) of virtual functions;
    `template`: that of a shared NPU."""

    type: str
    minor: int
    amounts: Amounts
    id: str = ""
    functions: tuple[tuple[str, int], ...] = ()
    template: str = ""


Allocation = tuple[Given, ...]
"""In the order of types, those of one type in the order in which they were chosen."""


class _VirtualFunction(msgspec.Struct, omit_defaults=True):
    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class _Extension(msgspec.Struct, omit_defaults=True):
    vfs: list[_VirtualFunction] | None = None
    gpu_shared_resource_template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class _Given(msgspec.Struct):
    minor: int = 0
    resources: dict[str, str | int | float] | None = None
    id: str | msgspec.UnsetType = msgspec.UNSET
    extension: _Extension | msgspec.UnsetType | None = msgspec.UNSET


_decoder: msgspec.json.Decoder[dict[str, list[_Given] | None] | None] = msgspec.json.Decoder(
    dict[str, list[_Given] | None] | None
)
_encoder = msgspec.json.Encoder(order="deterministic")


def parse(text: str) -> Allocation | None:
    """The allocation that the annotation says, None if it says none. Raises ValueError if it cannot be read."""
    decoded = _decoder.decode(text)
    if not decoded:
        return None
    return tuple(_read(kind, given) for kind, every in sorted(decoded.items()) for given in every or ()) or None


def _read(kind: str, given: _Given) -> Given:
    if not 0 <= given.minor < MAX_MINORS:
        raise ValueError(f"invalid {kind} minor {given.minor}: at most {MAX_MINORS} devices of a type are supported")
    amounts: dict[str, int] = {}
    for name, quantity in (given.resources or {}).items():
        try:
            amount = value(quantity)
        except QuantityError as error:
            raise ValueError(f"{name} of {kind} {given.minor}: {error}") from error
        if amount < 0:
            raise ValueError(f"{name} of {kind} {given.minor} is negative")
        renamed = DEPRECATED.get(name, name)
        if renamed == name or renamed not in (given.resources or {}):
            amounts[renamed] = amount
    extension = given.extension or _Extension()
    return Given(
        kind,
        given.minor,
        tuple(sorted(amounts.items())),
        given.id or "",
        tuple((function.bus_id, function.minor) for function in extension.vfs or ()),
        extension.gpu_shared_resource_template,
    )


def text(allocation: Allocation) -> str:
    """The annotation of an allocation."""
    found: dict[str, list[_Given]] = {}
    for given in allocation:
        extension: _Extension | msgspec.UnsetType = msgspec.UNSET
        if given.functions or given.template:
            functions = [_VirtualFunction(minor, bus_id) for bus_id, minor in given.functions]
            extension = _Extension(functions or None, given.template)
        found.setdefault(given.type, []).append(
            _Given(
                given.minor,
                {name: quantity_of(name, amount) for name, amount in given.amounts},
                given.id or msgspec.UNSET,
                extension,
            )
        )
    return _encoder.encode(dict(sorted(found.items()))).decode()


def less(allocation: Allocation, used: Iterable[Allocation]) -> Allocation | None:
    """What is left of an allocation without what others have of it, None if nothing is.

    Devices of which nothing is left are not in it. What others have beyond it, of these devices or of others, does not
    matter.
    """
    taken: Counter[tuple[str, int, str]] = Counter()
    functions = set()
    for each in (each for other in used for each in other):
        for name, amount in each.amounts:
            taken[each.type, each.minor, name] += amount
        functions |= {(each.type, each.minor, bus_id) for bus_id, _ in each.functions}
    found = []
    for each in allocation:
        amounts = []
        for name, amount in each.amounts:
            gone = min(amount, taken[each.type, each.minor, name])
            taken[each.type, each.minor, name] -= gone
            if amount > gone:
                amounts.append((name, amount - gone))
        kept = tuple(one for one in each.functions if (each.type, each.minor, one[0]) not in functions)
        if amounts or kept:
            found.append(each._replace(amounts=tuple(amounts), functions=kept))
    return tuple(found) or None


def quantity_of(name: str, amount: int) -> str:
    """The canonical text of an amount."""
    return format_bytes(amount) if name == GPU_MEMORY else format_nano(amount * 10**9)
