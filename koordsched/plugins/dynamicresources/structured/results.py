"""Allocation results: what is written about the devices of a claim (dra spec 3.6, result per claim)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from koordsched.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Quantity
from koordsched.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
)
from koordsched.plugins.dynamicresources.structured.footprint import (
    UNMEASURED,
    Footprint,
    Mappings,
    footprint,
    unmeasured,
)
from koordsched.plugins.dynamicresources.structured.plans import Plan
from koordsched.plugins.dynamicresources.structured.requests import Alternative, Demand, Prepared
from koordsched.plugins.dynamicresources.structured.search import Solution
from koordsched.plugins.dynamicresources.structured.slices import PooledDevice

ShareId = Callable[[], str]
"""Makes the id of a share."""

Pick = tuple[Alternative, PooledDevice, int]
"""What was requested, the device, and its position in the plan."""


def result_of(
    demand: Demand,
    claim: int,
    picks: Sequence[Pick],
    chosen: Sequence[Alternative],
    plan: Plan,
    node: str,
    share: ShareId,
) -> AllocationResult:
    """The allocation of a claim. `chosen`: the alternatives of its requests, in order."""
    results = tuple(_device(pick, plan, share) for pick in picks)
    config = (*_of_classes(chosen), *_of_claim(demand, claim, chosen))
    return AllocationResult(DeviceAllocationResult(results, config), _selector(picks, node))


def _device(pick: Pick, plan: Plan, share: ShareId) -> DeviceRequestAllocationResult:
    alternative, device, position = pick
    kind = plan.kinds[position]
    multi = kind.equipment.model.multi
    consumed = kind.consumes[alternative.number] if multi else ()
    return DeviceRequestAllocationResult(
        request=alternative.name,
        driver=device.part.key[0],
        pool=device.part.key[1],
        device=device.name,
        admin_access=True if alternative.admin else None,
        tolerations=alternative.tolerations,
        binding_conditions=device.wire.binding_conditions,
        binding_failure_conditions=device.wire.binding_failure_conditions,
        share_id=share() if multi else None,
        consumed_capacity={name: amount.text for name, amount in consumed},
    )


def footprints_of(prepared: Prepared, plan: Plan, solution: Solution) -> tuple[Footprint, ...]:
    """What the devices of each claim take of the node; UNMEASURED where that cannot be said."""
    devices: list[list[tuple[Mappings, dict[str, Quantity] | None]]] = [[] for _ in prepared.claims]
    for number, position in solution.picks:
        kind = plan.kinds[position]
        model = kind.equipment.model
        if model.mappings:
            consumed: dict[str, Quantity] | None = None
            if model.multi:
                consumed = {name: amount.text for name, amount in kind.consumes[number]}
            devices[prepared.alternatives[number].claim].append((model.mappings, consumed))
    return tuple(
        UNMEASURED if any(unmeasured(*device) is not None for device in own) else footprint(own) for own in devices
    )


def _of_classes(chosen: Sequence[Alternative]) -> Iterator[DeviceAllocationConfiguration]:
    requests: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for alternative in chosen:
        name = alternative.device_class.metadata.name
        classes.setdefault(name, alternative.device_class)
        requests.setdefault(name, []).append(alternative.name)
    for name, found in classes.items():
        for config in found.spec.config:
            yield DeviceAllocationConfiguration("FromClass", tuple(requests[name]), config.opaque)


def _of_claim(demand: Demand, claim: int, chosen: Sequence[Alternative]) -> Iterator[DeviceAllocationConfiguration]:
    """The claim's own configuration; upstream has an entry once per request that it is for."""
    for config in demand.claims[claim].spec.devices.config:
        times = 1
        if config.requests:
            times = sum(each.name in config.requests or _parent(each) in config.requests for each in chosen)
        for _ in range(times):
            yield DeviceAllocationConfiguration("FromClaim", config.requests, config.opaque)


def _parent(alternative: Alternative) -> str:
    return alternative.name.partition("/")[0]


def _selector(picks: Sequence[Pick], node: str) -> NodeSelector | None:
    """The nodes that can reach all devices; None if these are all nodes."""
    requirements: list[NodeSelectorRequirement] = []
    for _, device, _ in picks:
        reach = device.part.reach if device.reach is None else device.reach
        if reach.node or device.wire.binds_to_node:
            name = NodeSelectorRequirement("metadata.name", "In", (node,))
            return NodeSelector((NodeSelectorTerm(match_fields=(name,)),))
    fields: list[NodeSelectorRequirement] = []
    for _, device, _ in picks:
        reach = device.part.reach if device.reach is None else device.reach
        if reach.selector is None:
            continue
        for term in reach.selector.compiled.selector.node_selector_terms:
            requirements += [each for each in term.match_expressions if each not in requirements]
            fields += [each for each in term.match_fields if each not in fields]
    if not requirements and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(requirements), tuple(fields)),))
