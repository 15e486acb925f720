"""What a pod is given on a node: the chosen devices, with the amounts that count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordsched.cluster.shape import PodShape
from koordsched.framework.status import Code
from koordsched.plugins.deviceshare.allocator import Allocator, Choices, DesignatedFunctions, Task, requests_on
from koordsched.plugins.deviceshare.compiled import CompiledRequests, PodRequest
from koordsched.plugins.deviceshare.devicescore import DeviceScore
from koordsched.plugins.deviceshare.reasons import INSUFFICIENT_GPUS, Refusal
from koordsched.plugins.deviceshare.reserved import NO_SHARE, Share
from koordsched.plugins.deviceshare.supply import Required, Supplies, Supply, only
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.shared.devices.allocation import Allocation, Given
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.request import TypeRequest
from koordsched.plugins.shared.devices.resources import GPU, GPU_MEMORY, GPU_MEMORY_RATIO, MEMORY, NAMES


class Allocating:
    """Tries allocations on rows; it changes nothing."""

    def __init__(
        self,
        columns: DeviceColumns,
        compiled: CompiledRequests,
        templates: Templates,
        score: DeviceScore,
        *,
        improved: bool,
    ) -> None:
        self.columns = columns
        self._compiled = compiled
        self._supplies = Supplies(columns, improved=improved)
        self._allocator = Allocator(templates)
        self._score = score
        self._improved = improved

    def requests_on(self, request: PodRequest, row: int) -> Mapping[str, TypeRequest] | Refusal:
        """What is to be taken of each type on a row before the node is chosen."""
        return requests_on(request.devices, self.supply(request, row), reserving=False)

    def supply(self, request: PodRequest, row: int, numa_nodes: int = 0, required: Required | None = None) -> Supply:
        """What the devices of a row have left for a pod; see `Supplies.of`."""
        return self._supplies.of(request.devices, row, numa_nodes, required)

    def trial(self, shape: PodShape, row: int, numa_nodes: int = 0, share: Share = NO_SHARE) -> Choices | Refusal:
        """The devices that a pod of the shape would get before the node is chosen."""
        request = self._compiled.of(shape)
        if request.designated is not None:
            return self._designated(request, request.designated, row, numa_nodes, reserving=False)
        task = Task(request.devices, request.templated, improved=self._improved, preferred=share.preferred)
        return self._chosen(task, self._supplies.of(request.devices, row, numa_nodes, share.required), share)

    def allocate(
        self,
        shape: PodShape,
        row: int,
        numa_nodes: int = 0,
        preferred: Iterable[int] = (),
        share: Share = NO_SHARE,
    ) -> Allocation | Refusal:
        """What a pod of the shape gets on the node that was chosen: of the `preferred` GPUs the first that will do."""
        request = self._compiled.of(shape)
        if request.designated is not None:
            choices = self._designated(request, request.designated, row, numa_nodes, reserving=True)
        else:
            task = Task(
                request.devices,
                request.templated,
                self._score,
                reserving=True,
                improved=self._improved,
                preferred=share.preferred,
            )
            supply = self._supplies.of(request.devices, row, numa_nodes, share.required)
            for minor in preferred:
                choices = self._chosen(task, only(supply, {GPU: (minor,)}), share)
                if not isinstance(choices, Refusal):
                    break
            else:
                choices = self._chosen(task, supply, share)
        if isinstance(choices, Refusal):
            return choices
        return self._given(request, choices, row)

    def _chosen(self, task: Task, supply: Supply, share: Share) -> Choices | Refusal:
        """The devices, with those that the pod has to have."""
        reserved = {kind: share.preferred[kind] for kind in share.preferred if kind in supply.types}
        if self._improved and reserved:
            choices = self._allocator.allocate(task, only(supply, reserved))
            if not isinstance(choices, Refusal) and _includes(choices, share):
                return choices
        choices = self._allocator.allocate(task, supply)
        if isinstance(choices, Refusal) or _includes(choices, share):
            return choices
        choices = self._allocator.allocate(task, only(supply, reserved))
        return choices if not isinstance(choices, Refusal) and _includes(choices, share) else INSUFFICIENT_GPUS

    def _designated(
        self, request: PodRequest, designated: Allocation, row: int, numa_nodes: int, *, reserving: bool
    ) -> Choices | Refusal:
        required: dict[str, dict[int, Mapping[str, int]]] = {}
        functions: dict[str, dict[int, frozenset[str]]] = {}
        for given in designated:
            amounts = dict(given.amounts)
            if given.type == GPU and (problem := self._complete(amounts, given.minor, row)) is not None:
                return problem
            required.setdefault(given.type, {})[given.minor] = amounts
            if given.functions:
                functions.setdefault(given.type, {})[given.minor] = frozenset(bus_id for bus_id, _ in given.functions)
        limits: Required = required
        allowed: DesignatedFunctions = functions
        supply = self._supplies.of(request.devices, row, numa_nodes, limits)
        task = Task(request.devices, request.templated, self._score, reserving, self._improved, allowed)
        return self._allocator.allocate(task, supply)

    def _given(self, request: PodRequest, choices: Choices, row: int) -> Allocation | Refusal:
        found = []
        for kind, choice in choices.items():
            asked = request.devices.types[kind].amounts
            plain = {name: amount for name, amount in zip(NAMES[kind], asked, strict=True) if amount}
            for minor, functions in choice.chosen:
                amounts = dict(plain)
                if kind == GPU and (problem := self._complete(amounts, minor, row)) is not None:
                    return problem
                found.append(Given(kind, minor, tuple(sorted(amounts.items())), "", functions, choice.template))
        return tuple(found)

    def _complete(self, amounts: dict[str, int], minor: int, row: int) -> Refusal | None:
        """Adds the memory, or its share, that goes with the other (deviceshare spec 2.3)."""
        places = self.columns.inventory(row).places[GPU]
        if not places and not self.columns.used[GPU].data[row].any():
            return None  # no GPU is known there at all
        place = places.get(minor)
        if place is None or not any(amount > 0 for amount in place.amounts):
            node = self.columns.table.names[row]
            text = f"no healthy gpu device with minor {minor} of allocation"
            return Refusal(Code.ERROR, (f"fillGPUTotalMem failed: {text}, node: {node}",))
        memory, ratio = amounts.get(GPU_MEMORY), amounts.get(GPU_MEMORY_RATIO)
        total = max(0, place.amounts[MEMORY])
        if memory is not None and ratio is not None:
            return None
        if memory is not None:
            amounts[GPU_MEMORY_RATIO] = share_of(memory, total)
        else:
            amounts[GPU_MEMORY] = (ratio or 0) * total // 100
        return None


def _includes(choices: Choices, share: Share) -> bool:
    return all(kind in choices and minors.issubset(choices[kind].minors) for kind, minors in share.entire.items())


def share_of(memory: int, total: int) -> int:
    """Per cent of a GPU's memory, truncated; computed in floating point, as upstream does."""
    return int(memory / total * 100) if total else 0
