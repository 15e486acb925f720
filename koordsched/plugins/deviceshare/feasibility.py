"""Which nodes can serve a pod, many at once (deviceshare spec 3.3).

What a node's inventory decides is decided once per inventory. Whether enough devices have enough left is a comparison
of arrays over rows and devices. The rest (partitions, scopes, switches, virtual functions) takes a trial, which nodes
in the same state share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koordsched.cluster.changelog import RowArray
from koordsched.cluster.nodetable import NodeTable, Rows
from koordsched.cluster.shape import PodShape
from koordsched.framework.keyed import Answers
from koordsched.framework.status import PASS, Codes, ReasonTable
from koordsched.plugins.deviceshare.allocating import Allocating
from koordsched.plugins.deviceshare.compiled import CompiledRequests, PodRequest
from koordsched.plugins.deviceshare.reasons import (
    INSUFFICIENT_GPUS,
    NOT_ISOLATED,
    NOT_ISOLATED_HERE,
    Refusal,
    cannot_share,
    insufficient,
)
from koordsched.plugins.deviceshare.supply import fits
from koordsched.plugins.deviceshare.templates import Templates
from koordsched.plugins.shared.devices.inventory import Inventory
from koordsched.plugins.shared.devices.request import DeviceRequest
from koordsched.plugins.shared.devices.resources import ABSENT, GPU, MEMORY, NAMES, RATIO
from koordsched.plugins.shared.matching.rows import count_of, single

_PLANS_KEPT = 4096


class Enough(NamedTuple):
    """A number of devices of a type must have these amounts left. `amounts`: (position among the type's resources,
    amount); `code`: the reason where they have not."""

    kind: str
    number: int
    amounts: tuple[tuple[int, int], ...]
    code: int


class Plan(NamedTuple):
    """How the verdict on nodes of one inventory is found: it is `code`; or, if there are any, `counts` are asked one
    after the other; or else there is a trial."""

    code: int = PASS
    counts: tuple[Enough, ...] = ()
    trial: bool = False
    if_unknown: bool = False
    """Where no pod holds devices the node passes: nothing is known of it."""


class _Plans:
    """The plans for one shape, by number of inventory."""

    __slots__ = ("by_number", "serial")

    def __init__(self) -> None:
        self.by_number: dict[int, Plan] = {}
        self.serial = -1


class Feasibility:
    """The verdicts of one profile. `unsupported`: (vendor, model) of GPUs that are not shared."""

    def __init__(
        self,
        plugin: str,
        compiled: CompiledRequests,
        allocating: Allocating,
        templates: Templates,
        reasons: ReasonTable,
        unsupported: frozenset[tuple[str, str]],
        *,
        improved: bool,
    ) -> None:
        self._plugin = plugin
        self._compiled = compiled
        self._allocating = allocating
        self._columns = allocating.columns
        self._templates = templates
        self._reasons = reasons
        self._unsupported = unsupported
        self._improved = improved
        self._trials = Answers(self._try_rows)

    def codes(self, shape: PodShape, table: NodeTable, rows: Rows) -> Codes | None:
        """See `ShapeFilter`."""
        request = self._compiled.of(shape)
        row = single(rows)
        if row >= 0:
            code = self._of_one(shape, request, table, row)
            return None if code == PASS else np.array((code,), dtype=np.int32)
        every = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        found = np.zeros(count_of(rows), dtype=np.int32)
        numbers = self._columns.number.data[rows]
        tried: list[RowArray] = []
        counted: dict[tuple[Enough, ...], list[RowArray]] = {}
        for number in np.unique(numbers).tolist():
            at = np.flatnonzero(numbers == number)
            plan = self._plan(shape, request, self._columns.inventory(int(every[at[0]])))
            if plan.if_unknown:
                at = at[self._columns.holders.data[every[at]] > 0]
            if plan.counts:
                counted.setdefault(plan.counts, []).append(at)
            elif plan.trial:
                tried.append(at)
            else:
                found[at] = plan.code
        for counts, groups in counted.items():
            at = np.concatenate(groups)
            found[at] = self._count(counts, every[at])
        if tried and len(at := np.concatenate(tried)):
            found[at] = self._tried(shape, request, table, every[at])
        return found if found.any() else None

    def refusal_code(self, refusal: Refusal) -> int:
        """The number of its reason."""
        return self._reasons.intern(self._plugin, refusal.code, *refusal.texts)

    # --- one inventory -----------------------------------------------------------------------------------

    def _plan(self, shape: PodShape, request: PodRequest, inventory: Inventory) -> Plan:
        plans = shape.compiled(self, lambda _: _Plans())
        if plans.serial != self._templates.serial or len(plans.by_number) >= _PLANS_KEPT:
            plans.by_number.clear()
            plans.serial = self._templates.serial
        found = plans.by_number.get(inventory.number)
        if found is None:
            found = plans.by_number[inventory.number] = self._planned(request, inventory)
        return found

    def _planned(self, request: PodRequest, inventory: Inventory) -> Plan:
        equipment, devices = inventory.equipment, request.devices
        if (refusal := self._ruled_out(devices, inventory)) is not None:
            return Plan(self.refusal_code(refusal))
        if not equipment.reported:
            return Plan(trial=True, if_unknown=True)
        if request.designated is not None or request.templated or not self._sums_decide(devices, inventory):
            return Plan(trial=True)
        if not all(inventory.places[kind] for kind in devices.types):
            return Plan(trial=True)  # devices that are not reported, but that pods hold, are known, too
        order = (*devices.joint, *(kind for kind in devices.types if kind not in devices.joint))
        return Plan(counts=tuple(self._enough(devices, kind, inventory) for kind in order))

    def _enough(self, devices: DeviceRequest, kind: str, inventory: Inventory) -> Enough:
        asked = devices.types[kind]
        refusal = insufficient(kind)
        if kind == GPU and devices.gpus is not None and inventory.scopes is not None:
            refusal = refusal if devices.gpus.shared and asked.number > 1 else INSUFFICIENT_GPUS
        amounts = tuple((at, amount) for at, amount in enumerate(asked.amounts) if amount)
        return Enough(kind, asked.number, amounts, self.refusal_code(refusal))

    def _sums_decide(self, devices: DeviceRequest, inventory: Inventory) -> bool:
        """Whether it is enough to count the devices that have enough left."""
        gpus = devices.gpus
        if gpus is not None and (gpus.scoped or (not gpus.shared and (gpus.honours or inventory.honours))):
            return False
        if gpus is not None and not gpus.shared and not _fits_empty(devices.types[GPU].amounts, inventory):
            return False  # a partition is given out whatever is asked of each GPU
        if devices.joint and (devices.same_pcie or inventory.equipment.well_planned):
            return False
        for kind, asked in devices.types.items():
            hint = devices.hint(kind)
            if (
                not asked.number
                or not any(asked.amounts)
                or hint.selector is not None
                or hint.function_selector is not None
            ):
                return False
            if self._improved and hint.exclusive_pcie:
                return False
            for place in inventory.places[kind].values():
                if place.amounts and any(
                    wanted and there < 0 for wanted, there in zip(asked.amounts, place.amounts, strict=True)
                ):
                    return False  # what a device does not list is not asked of it
        return True

    # --- rows --------------------------------------------------------------------------------------------

    def _of_one(self, shape: PodShape, request: PodRequest, table: NodeTable, row: int) -> int:
        columns = self._columns
        plan = self._plan(shape, request, columns.inventory(row))
        if plan.if_unknown and not columns.holders.data.item(row):
            return PASS
        if plan.trial:
            return self._tried(shape, request, table, np.array((row,), dtype=np.intp)).item(0)
        for kind, number, amounts, code in plan.counts:
            if self._improved:
                if self.fitting(kind, amounts, slice(row, row + 1)).sum() < number:
                    return code
                continue
            width, fitting = len(NAMES[kind]), 0
            offered, used = columns.offered[kind].data[row].tolist(), columns.used[kind].data[row].tolist()
            for start in range(0, len(offered), width):
                fitting += all(offered[start + at] - used[start + at] >= amount for at, amount in amounts)
            if fitting < number:
                return code
        return plan.code

    def _count(self, counts: tuple[Enough, ...], rows: RowArray) -> Codes:
        codes = np.zeros(len(rows), dtype=np.int32)
        for kind, number, amounts, code in reversed(counts):
            codes[self.fitting(kind, amounts, rows).sum(axis=1) < number] = code
        return codes

    def fitting(self, kind: str, amounts: tuple[tuple[int, int], ...], rows: Rows) -> npt.NDArray[np.bool_]:
        """bool[rows, minors]: which devices have so much left; those that do not list one of the resources have not."""
        left = self._consistent_left(rows) if self._improved and kind == GPU else {}
        found = np.ones(1, dtype=np.bool_)
        for at, amount in amounts:
            found = found & ((left[at] if at in left else self._columns.left(kind, at, rows)) >= amount)
        return found

    def _consistent_left(self, rows: Rows) -> dict[int, npt.NDArray[np.int64]]:
        """What is left of the memory of GPUs, and of the share of it, as `supply.consistent` has it for one."""
        columns = self._columns
        memory, ratio = (columns.left(GPU, at, rows) for at in (MEMORY, RATIO))
        total, listed = (columns.of_resource(columns.offered[GPU], GPU, at, rows) for at in (MEMORY, RATIO))
        both = (total > 0) & (listed != ABSENT)
        most_memory = np.maximum(ratio, 0) * total // 100
        most_ratio = np.maximum(memory, 0) * 100 // np.maximum(total, 1)
        return {
            MEMORY: np.where(both, np.minimum(memory, most_memory), memory),
            RATIO: np.where(both, np.minimum(ratio, most_ratio), ratio),
        }

    def refused_first(self, request: PodRequest, rows: Rows) -> npt.NDArray[np.bool_]:
        """bool[rows]: where labels of the node rule a pod out, before any device is looked at."""
        devices = request.devices
        every = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        if devices.gpus is None or not devices.gpus.shared or not (devices.isolation or self._unsupported):
            return np.zeros(len(every), dtype=np.bool_)
        return np.array([self._ruled_out(devices, self._columns.inventory(row)) is not None for row in every])

    def _ruled_out(self, devices: DeviceRequest, inventory: Inventory) -> Refusal | None:
        equipment = inventory.equipment
        if devices.isolation and devices.isolation != equipment.isolation:
            return NOT_ISOLATED_HERE if self._improved else NOT_ISOLATED
        shared = devices.gpus is not None and devices.gpus.shared
        if shared and (equipment.vendor, equipment.model) in self._unsupported:
            return cannot_share(equipment.model, equipment.vendor)
        return None

    def is_known(self, row: int) -> bool:
        """Whether the node reports devices, or pods hold some there; elsewhere the kubelet decides."""
        return self._columns.inventory(row).equipment.reported or bool(self._columns.holders.data.item(row))

    def keys(self, request: PodRequest, rows: RowArray) -> npt.NDArray[np.int64]:
        """int64[rows, width]: all that the verdict on a row depends on, for `framework.keyed`."""
        keys = self._columns.keys(request.types, rows)
        if not request.templated:
            return keys
        return np.concatenate((keys, np.full((len(rows), 1), self._templates.serial)), axis=1)

    def _tried(self, shape: PodShape, request: PodRequest, table: NodeTable, rows: RowArray) -> npt.NDArray[np.int64]:
        """The verdicts of trials."""
        if request.designated is not None:
            return self._try_rows(shape, table, rows)  # a refusal may name the node
        keys = self.keys(request, rows)
        if len(rows) == 1:
            return np.array((self._trials.of_one(shape, keys, table, rows),), dtype=np.int64)
        return self._trials.of(shape, keys, table, rows)

    def _try_rows(self, shape: PodShape, table: NodeTable, rows: RowArray) -> npt.NDArray[np.int64]:
        codes = []
        for row in rows.tolist():
            found = self._allocating.trial(shape, row)
            codes.append(self.refusal_code(found) if isinstance(found, Refusal) else PASS)
        return np.array(codes, dtype=np.int64)


def _fits_empty(asked: tuple[int, ...], inventory: Inventory) -> bool:
    """Whether every healthy GPU would have enough if nothing of it was in use."""
    places = inventory.places[GPU].values()
    return all(fits(asked, place.amounts) for place in places if place.amounts)
