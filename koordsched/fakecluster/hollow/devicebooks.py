"""The devices of a hollow node and what its pods hold of them: whether a pod can be given what the scheduler chose.

It detects a scheduler that allocates devices twice, or devices that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from koordsched.api import quantity
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.devicelayout import GPU_MEMORY, Key, Machine

Object = dict[str, Any]

DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
"""Pod annotation: the devices that the scheduler chose."""
_LONGEST_TEXT = 65536


class _Function(msgspec.Struct, frozen=True, rename={"bus_id": "busID"}):
    bus_id: str = ""


class _Extension(msgspec.Struct, frozen=True):
    vfs: list[_Function] | None = None


class _Entry(msgspec.Struct, frozen=True):
    minor: int = 0
    resources: dict[str, str | int | float] | None = None
    extension: _Extension | None = None


class _Held(NamedTuple):
    """What a pod holds of a device."""

    amounts: dict[str, int]
    functions: frozenset[str]
    """Virtual functions, by PCI address."""


class _Holder(NamedTuple):
    namespace: str
    name: str
    devices: Mapping[Key, _Held]


class DeviceBooks:
    """Of one node."""

    def __init__(self) -> None:
        self.texts: tuple[str | None, ...] = ()
        """The node's annotations that the following was read from."""
        self.machine: Machine | None = None
        """None: not known."""
        self.failures: dict[Key, str] = {}
        """Why each device that failed did."""
        self._holders: dict[str, _Holder] = {}
        """By the uid of the pod."""

    def problem(self, pod: Object) -> str | None:
        """Why the pod cannot have the devices it was given; None if it can, or if the node's devices are unknown."""
        text = _annotation(pod)
        if text is None or self.machine is None:
            return None
        try:
            wanted = _read(text)
        except ValueError as error:
            return f"{DEVICE_ALLOCATED}: {error}"
        problems = (self._problem_with(self.machine, key, held) for key, held in wanted.items())
        return next((problem for problem in problems if problem is not None), None)

    def take(self, pod: Object) -> None:
        """Records what a pod holds."""
        text = _annotation(pod)
        if text is None:
            return
        metadata = pod["metadata"]
        try:
            devices = _read(text)
        except ValueError:
            return
        self._holders[metadata["uid"]] = _Holder(metadata["namespace"], metadata["name"], devices)

    def give_back(self, uid: str) -> None:
        """The pod holds nothing any longer."""
        self._holders.pop(uid, None)

    def holders(self, key: Key) -> Iterator[tuple[str, str]]:
        """Namespace and name of the pods that hold a part of the device."""
        for holder in self._holders.values():
            if key in holder.devices:
                yield holder.namespace, holder.name

    def _problem_with(self, machine: Machine, key: Key, wanted: _Held) -> str | None:
        device, name = machine.devices.get(key), f"{key[0]} {key[1]}"
        if device is None:
            return f"there is no {name}"
        if key in self.failures:
            return f"{name} is unhealthy: {self.failures[key]}"
        others = [(holder, holder.devices[key]) for holder in self._holders.values() if key in holder.devices]
        for resource, total in device.group.amounts.items():
            capacity, requested = quantity.value(total), wanted.amounts.get(resource, 0)
            used = sum(held.amounts.get(resource, 0) for _, held in others)
            # Shares of the memory are whole percents, rounded down: each pod may have up to one percent more than is
            # counted.
            slack = capacity * (len(others) + 1) // 100 if resource == GPU_MEMORY else 0
            if requested and used + requested > capacity + slack:
                numbers = f"requested: {requested}, used: {used}, capacity: {capacity}"
                return f"{name} does not have enough {resource}, {numbers}"
        unknown = sorted(wanted.functions.difference(device.virtual_functions))
        if unknown:
            return f"{name} has no virtual function {unknown[0]}"
        for holder, held in others:
            for function in sorted(wanted.functions & held.functions):
                return f"virtual function {function} of {name} belongs to {holder.namespace}/{holder.name}"
        return None


def _annotation(pod: Object) -> str | None:
    text: str | None = (pod["metadata"].get("annotations") or {}).get(DEVICE_ALLOCATED)
    return None if text in (None, "", "null") else text


@lru_cache(maxsize=256)
def _read(text: str) -> Mapping[Key, _Held]:
    """What is held of each device, those that come twice added up. Raises ValueError."""
    found: dict[Key, _Held] = {}
    for kind, entries in decode_text(text, dict[str, list[_Entry] | None], _LONGEST_TEXT).items():
        for entry in entries or ():
            amounts, functions = found.get((kind, entry.minor), _Held({}, frozenset()))
            for resource, amount in (entry.resources or {}).items():
                if quantity.parse(amount) < 0:
                    raise ValueError(f"{resource}: {amount!r} must not be negative")
                amounts[resource] = amounts.get(resource, 0) + quantity.value(amount)
            vfs = (entry.extension.vfs if entry.extension is not None else None) or ()
            found[kind, entry.minor] = _Held(amounts, functions.union(vf.bus_id for vf in vfs))
    return found
