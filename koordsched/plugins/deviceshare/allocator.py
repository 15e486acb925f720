"""Which devices of one node a pod gets (deviceshare spec 3.4).

Source: koordinator `pkg/scheduler/plugins/deviceshare/device_allocator.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from koordsched.plugins.deviceshare import gpus
from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.generic import Chosen, FunctionChoice, Order, take
from koordsched.plugins.deviceshare.jointsearch import narrowed
from koordsched.plugins.deviceshare.reasons import (
    INSUFFICIENT_PRIMARY,
    NO_MATCHED_TEMPLATE,
    NOT_JOINT,
    Refusal,
    no_functions,
    none_known,
)
from koordsched.plugins.deviceshare.supply import Supply, TypeSupply
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.shared.devices.inventory import Inventory
from koordsched.plugins.shared.devices.request import DeviceRequest, TypeRequest
from koordsched.plugins.shared.devices.resources import GPU

_MOST_COMBINATIONS = 1024
"""Ways to allocate devices jointly that are tried on a node."""


class TypeChoice(NamedTuple):
    """The devices chosen of one type. `template`: that of shared GPUs, "" if there is none."""

    chosen: Chosen
    template: str = ""

    @property
    def minors(self) -> list[int]:
        """Their minors."""
        return [minor for minor, _ in self.chosen]


Choices = Mapping[str, TypeChoice]
"""By type."""

DesignatedFunctions = Mapping[str, Mapping[int, frozenset[str]]]
"""By type and minor, the bus ids of the virtual functions that are to be given."""


class Task(NamedTuple):
    """What is to be allocated, and how.

    `templated`: shared GPUs must match a template. `reserving`: it is for good, with the score that is configured.
    `improved`: joint allocations are looked for on all switches, not only where the primary device would go first.
    `preferred`: by type, the minors that come first where the place of devices does not matter.
    """

    request: DeviceRequest
    templated: bool = False
    score: DeviceScore | None = None
    reserving: bool = False
    improved: bool = False
    functions: DesignatedFunctions = {}
    preferred: Mapping[str, frozenset[int]] = {}


class Allocator:
    """Chooses devices; it changes nothing."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    def allocate(self, task: Task, supply: Supply) -> Choices | Refusal:
        """The devices of every type that the pod asks for."""
        requests = requests_on(task.request, supply, reserving=task.reserving)
        if isinstance(requests, Refusal):
            return requests
        found: dict[str, TypeChoice] = {}
        if len(requests) > 1 and task.request.joint:
            joint = self._joint(task, supply, requests)
            if isinstance(joint, Refusal) and task.improved:
                joint = self._joint_elsewhere(task, supply, requests, joint)
            if isinstance(joint, Refusal):
                return joint
            found.update(joint)
        for kind, request in requests.items():
            if kind not in found:
                choice = self._take(task, supply, kind, request, request.number)
                if isinstance(choice, Refusal):
                    return choice
                found[kind] = choice
        return {kind: found[kind] for kind in requests}

    def _joint(self, task: Task, supply: Supply, requests: Mapping[str, TypeRequest]) -> Choices | Refusal:
        """The primary type first, then the others on the PCIe switches of what was chosen."""
        primary, *secondary = (kind for kind in task.request.joint if kind in requests)
        first = self._take(task, supply, primary, requests[primary], requests[primary].number)
        if isinstance(first, Refusal):
            return first
        if not first.chosen:
            return INSUFFICIENT_PRIMARY
        found = {primary: first}
        switches = switches_of(supply.types[primary], first.minors)
        for kind in secondary:
            request = requests[kind]
            desired = max(request.number, len(switches)) if task.request.same_pcie else request.number
            choice = self._take(task, supply, kind, request, desired, switches)
            if isinstance(choice, Refusal):
                return choice
            found[kind] = choice
        if task.request.same_pcie and any(
            switches_of(supply.types[kind], found[kind].minors) != switches for kind in secondary
        ):
            return NOT_JOINT
        return found

    def _joint_elsewhere(
        self, task: Task, supply: Supply, requests: Mapping[str, TypeRequest], refusal: Refusal
    ) -> Choices | Refusal:
        """The same where else the devices are together; if nowhere, the refusal."""
        if not task.request.same_pcie:
            return refusal  # the others may be anywhere: the choice of primary devices was not the reason

        def fits(kind: str, minor: int) -> bool:
            of_type = supply.types[kind]
            alone = of_type._replace(free={minor: of_type.free[minor]})
            functions = self._functions(task, supply, kind)
            return not isinstance(take(kind, requests[kind].amounts, alone, 1, 1, Order(), functions), Refusal)

        for narrow in islice(narrowed(task.request, supply, requests, fits), _MOST_COMBINATIONS):
            found = self._joint(task, narrow, requests)
            if not isinstance(found, Refusal):
                return found
        return refusal

    @staticmethod
    def _functions(task: Task, supply: Supply, kind: str) -> FunctionChoice:
        return FunctionChoice(
            task.request.hint(kind), lambda minor: supply.taken(kind, minor), task.functions.get(kind, {})
        )

    def _take(
        self,
        task: Task,
        supply: Supply,
        kind: str,
        request: TypeRequest,
        desired: int,
        switches: frozenset[str] = frozenset(),
    ) -> TypeChoice | Refusal:
        desired, most = max(desired, 1), max(desired, len(switches), 1)
        of_type = supply.types[kind]
        order = Order(task.score, switches if kind != GPU else frozenset(), task.preferred.get(kind, frozenset()))
        functions = self._functions(task, supply, kind)
        template = ""
        if kind == GPU:
            if task.templated:
                equipment = supply.inventory.equipment
                names = self._templates.of(equipment.vendor, equipment.model, request.amounts)
                if not names:
                    return NO_MATCHED_TEMPLATE
                template = names[0] if len(names) == 1 else ""
            minors = self._gpus(task, supply, of_type, request)
            if isinstance(minors, Refusal):
                return minors
            if minors:
                return TypeChoice([(minor, ()) for minor in minors], template)
        chosen = take(kind, request.amounts, of_type, desired, most, order, functions)
        return chosen if isinstance(chosen, Refusal) else TypeChoice(chosen, template)

    @staticmethod
    def _gpus(task: Task, supply: Supply, of_type: TypeSupply, request: TypeRequest) -> list[int] | Refusal | None:
        """Minors of a partition, or of GPUs near each other; None if they are to be taken one after the other."""
        wanted = task.request.gpus
        assert wanted is not None, "the pod asks for GPUs"
        if not wanted.shared:
            minors = gpus.partitioned(request, wanted, supply.inventory, of_type)
            if not isinstance(minors, Refusal):
                return minors
            if wanted.honours or supply.inventory.honours:
                return minors
        return gpus.scoped(request, wanted, supply.inventory, of_type, task.score)


def skips_secondary(request: DeviceRequest, inventory: Inventory) -> bool:
    """Whether only the primary devices of a joint allocation are looked at before the node is chosen: there are enough
    others there (well planned).
    """
    whole = request.gpus is not None and not request.gpus.shared
    return inventory.equipment.well_planned and whole and bool(request.joint)


def requests_on(request: DeviceRequest, supply: Supply, *, reserving: bool) -> Mapping[str, TypeRequest] | Refusal:
    """What is to be taken of each type on a node."""
    found: dict[str, TypeRequest] = {}
    planned = not reserving and skips_secondary(request, supply.inventory)
    for kind, asked in request.types.items():
        if planned and kind != request.joint[0]:
            continue
        of_type = supply.types[kind]
        if not of_type.known:
            return none_known(kind)
        if not asked.number:
            selector = request.hint(kind).selector
            number = of_type.known
            if selector is not None:
                number = sum(selector.matches(dict(place.labels)) for place in of_type.places.values())
            if not number:
                return none_known(kind)
            asked = asked._replace(number=number)
        found[kind] = asked
    for kind in found:
        if request.hint(kind).function_selector is not None and not supply.inventory.has_functions(kind):
            return no_functions(kind)
    return found


def switches_of(supply: TypeSupply, minors: Sequence[int]) -> frozenset[str]:
    """The PCIe switches of devices."""
    places = (supply.places.get(minor) for minor in minors)
    return frozenset(place.pcie for place in places if place is not None and place.pcie is not None)
