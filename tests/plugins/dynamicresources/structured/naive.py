"""The allocator as the dra spec (3.6) describes it, device by device: no columns, no pruning, no memory.

It reads the wire types, and is written apart from the package: it shares no code with it but quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

from koordsched.api.quantity import parse
from koordsched.api.resource import AllocationResult, Device, DeviceClass, ResourceClaim, ResourceSlice
from koordsched.plugins.dynamicresources.structured import Features
from koordsched.plugins.dynamicresources.structured.selectors import SelectorFailure

Selects = Callable[[str, str, Device], bool]
Pick = tuple[int, str, str, str, str]
"""Claim, request, driver, pool, device."""


MOST_TRIES = 3000


class TooHard(Exception):
    """The search takes too many steps."""


class Failed(Exception):
    """The attempt fails."""


@dataclass
class NaivePool:
    """A pool of the node."""

    driver: str
    name: str
    slices: list[ResourceSlice]
    everything: list[ResourceSlice]
    state: str = "usable"

    @property
    def conditional(self) -> bool:
        return any(device.binding_conditions for each in self.slices for device in each.spec.devices)


@dataclass
class Want:
    """A request or sub-request."""

    claim: int
    name: str
    of_class: DeviceClass
    wire: Any
    sub: int
    chosen: list[tuple[NaivePool, ResourceSlice, Device]] = field(default_factory=list)

    @property
    def admin(self) -> bool:
        return bool(getattr(self.wire, "admin_access", None))

    @property
    def parent(self) -> str:
        return self.name.split("/")[0]


@dataclass
class Picked:
    """A device of the solution so far."""

    want: Want
    pool: NaivePool
    device: Device
    consumed: dict[str, Fraction]

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.pool.driver, self.pool.name, self.device.name)


class Naive:
    """One node, one attempt."""

    def __init__(
        self,
        features: Features,
        slices: Sequence[ResourceSlice],
        allocated: Sequence[AllocationResult],
        classes: dict[str, DeviceClass],
        selects: Selects,
        node: str,
        labels: dict[str, str],
    ) -> None:
        self.features = features
        self.all_slices = slices
        self.classes = classes
        self.selects = selects
        self.node = node
        self.labels = labels
        self.exclusive: set[tuple[str, str, str]] = set()
        self.shares: list[tuple[tuple[str, str, str], dict[str, Fraction]]] = []
        for allocation in allocated:
            for each in allocation.devices.results:
                identity = (each.driver, each.pool, each.device)
                if each.admin_access:
                    continue
                if each.share_id and features.consumable_capacity:
                    self.shares.append((identity, {name: parse(text) for name, text in each.consumed_capacity.items()}))
                else:
                    self.exclusive.add(identity)
        self.pools = self._pools()
        self.picked: list[Picked] = []
        self.tries = 0

    # --- pools ---

    def _reaches(self, where: Any) -> bool:
        if where.node_name:
            return bool(where.node_name == self.node)
        if where.all_nodes:
            return True
        if where.node_selector is None:
            return False
        (term,) = where.node_selector.node_selector_terms
        return all(self.labels.get(each.key) in each.values for each in term.match_expressions)

    def _pools(self) -> list[NaivePool]:
        found = []
        by_pool = sorted(self.all_slices, key=lambda each: (each.spec.driver, each.spec.pool.name, each.metadata.name))
        for (driver, name), group in groupby(by_pool, key=lambda each: (each.spec.driver, each.spec.pool.name)):
            everything = list(group)
            newest = max(each.spec.pool.generation for each in everything)
            everything = [each for each in everything if each.spec.pool.generation == newest]
            slices = [each for each in everything if self._takes(each)]
            if not slices:
                continue
            pool = NaivePool(driver, name, slices, everything)
            expected = slices[0].spec.pool.resource_slice_count
            if expected not in (len(slices), len(everything)):
                pool.state = "incomplete"
            elif not self._valid(pool):
                pool.state = "invalid"
            found.append(pool)
        return sorted(found, key=lambda pool: (pool.conditional, pool.driver, pool.name))

    def _takes(self, each: ResourceSlice) -> bool:
        spec = each.spec
        if not self.features.partitionable_devices and (
            spec.per_device_node_selection is not None or spec.shared_counters
        ):
            return False
        if spec.shared_counters:
            return True
        if spec.per_device_node_selection:
            return any(self._reaches(device) for device in spec.devices)
        return self._reaches(spec)

    def _valid(self, pool: NaivePool) -> bool:
        names = [device.name for each in pool.slices for device in each.spec.devices]
        if len(names) != len(set(names)):
            return False
        if not self.features.partitionable_devices:
            return True
        sets = [each for part in pool.slices for each in part.spec.shared_counters]
        known = {each.name: set(each.counters) for each in sets}
        if len(known) != len(sets):
            return False
        return all(
            use.counter_set in known and set(use.counters) <= known[use.counter_set]
            for part in pool.everything
            for device in part.spec.devices
            for use in device.consumes_counters
        )

    def _devices(self) -> Iterator[tuple[NaivePool, ResourceSlice, Device]]:
        for pool in self.pools:
            if pool.state == "usable":
                for each in pool.slices:
                    for device in each.spec.devices:
                        yield pool, each, device

    # --- requests ---

    def allocate(self, claims: Sequence[ResourceClaim]) -> tuple[list[Pick], int] | None:
        """The devices, and the score. Raises Failed."""
        self.claims = claims
        self.requests: list[list[Want]] = []
        for number, claim in enumerate(claims):
            fewest = 0
            for request in claim.spec.devices.requests:
                wants = []
                if request.exactly is not None:
                    wants.append(
                        Want(number, request.name, self.classes[request.exactly.device_class_name], request.exactly, -1)
                    )
                for sub, each in enumerate(request.first_available):
                    name = f"{request.name}/{each.name}"
                    wants.append(Want(number, name, self.classes[each.device_class_name], each, sub))
                for want in wants:
                    if want.wire.allocation_mode == "All":
                        want.chosen = self._all(want)
                fewest += min(self._number(want) for want in wants)
                self.requests.append(wants)
            if fewest > 32:
                raise Failed("limit")
        score = self._go(0, 0)
        if score is None:
            return None
        picks = [(each.want.claim, each.want.name, *each.identity) for each in self.picked]
        return picks, score

    def _number(self, want: Want) -> int:
        return len(want.chosen) if want.wire.allocation_mode == "All" else max(1, want.wire.count)

    def _all(self, want: Want) -> list[tuple[NaivePool, ResourceSlice, Device]]:
        for pool in self.pools:
            if pool.state != "usable":
                raise Failed(f"pool {pool.name} {pool.state}")
        return [
            each
            for each in self._devices()
            if self._selectable(want, *each) and self._consumption(want, each[2]) is not None
        ]

    def _selectable(self, want: Want, pool: NaivePool, part: ResourceSlice, device: Device) -> bool:
        if device.binding_conditions and not self.features.binding_conditions:
            return False
        # The order of the checks matters only for errors: a device that this node does not reach raises none here.
        if part.spec.per_device_node_selection and not self._reaches(device):
            return False
        for selector in (*want.of_class.spec.selectors, *want.wire.selectors):
            assert selector.cel is not None
            try:
                if not self.selects(selector.cel.expression, pool.driver, device):
                    return False
            except SelectorFailure as failure:
                raise Failed(str(failure)) from failure
        return True

    # --- search ---

    def _go(self, at: int, score: int) -> int | None:
        if at == len(self.requests):
            return score
        for want in self.requests[at]:
            mine = sum(each.want.claim == want.claim for each in self.picked)
            number = self._number(want)
            if mine + number > 32 or number == 0:
                continue
            more = 8 - want.sub if want.sub >= 0 else 0
            if want.wire.allocation_mode == "All":
                found = self._everything(want, at, score + more)
            else:
                found = self._some(want, number, list(self._devices()), at, score + more)
            if found is not None:
                return found
        return None

    def _everything(self, want: Want, at: int, score: int) -> int | None:
        before = len(self.picked)
        for pool, _, device in want.chosen:
            refusal = self._refusal(want, pool, device)
            if refusal == "constraint":
                raise Failed(f"constraint {device.name}")
            if refusal:
                break
            self._pick(want, pool, device)
        else:
            found = self._go(at + 1, score)
            if found is not None:
                return found
        del self.picked[before:]
        return None

    def _some(self, want: Want, number: int, devices: list[Any], at: int, score: int) -> int | None:
        if number == 0:
            return self._go(at + 1, score)
        for index, (pool, part, device) in enumerate(devices):
            self.tries += 1
            if self.tries > MOST_TRIES:
                raise TooHard
            if self._in_use(want, pool, device) or not self._selectable(want, pool, part, device):
                continue
            if self._refusal(want, pool, device):
                continue
            self._pick(want, pool, device)
            found = self._some(want, number - 1, devices[index + 1 :], at, score)
            if found is not None:
                return found
            self.picked.pop()
        return None

    def _pick(self, want: Want, pool: NaivePool, device: Device) -> None:
        consumed = self._consumption(want, device)
        assert consumed is not None
        self.picked.append(Picked(want, pool, device, consumed))

    def _multi(self, device: Device) -> bool:
        return bool(device.allow_multiple_allocations) and self.features.consumable_capacity

    def _in_use(self, want: Want, pool: NaivePool, device: Device) -> bool:
        identity = (pool.driver, pool.name, device.name)
        if want.admin:
            return any(each.want.claim == want.claim and each.identity == identity for each in self.picked)
        if identity in self.exclusive:
            return True
        if not self._multi(device):
            if any(shared == identity for shared, _ in self.shares):
                return True
            return any(each.identity == identity and not each.want.admin for each in self.picked)
        return False

    def _refusal(self, want: Want, pool: NaivePool, device: Device) -> str:
        if self._in_use(want, pool, device):
            return "in use"
        if not self._has_capacity(want, pool, device):
            return "capacity"
        if not self._has_counters(pool, device):
            return "counters"
        if self.features.device_taints and not all(
            taint.effect not in ("NoSchedule", "NoExecute")
            or any(_tolerates(each, taint) for each in want.wire.tolerations)
            for taint in device.taints
        ):
            return "taint"
        constraints = self.claims[want.claim].spec.devices.constraints
        if not all(self._allows(constraint, want, pool, device) for constraint in constraints):
            return "constraint"
        return ""

    # --- capacity ---

    def _consumption(self, want: Want, device: Device) -> dict[str, Fraction] | None:
        if not self.features.consumable_capacity:
            return {}
        asked = dict(want.wire.capacity.requests) if want.wire.capacity is not None else {}
        if not asked.keys() <= device.capacity.keys():
            return None
        found = {}
        for name, capacity in device.capacity.items():
            value, policy = parse(capacity.value), capacity.request_policy
            if name in asked:
                amount = parse(asked[name])
                if policy is not None and policy.valid_range is not None and policy.valid_range.min is not None:
                    least = parse(policy.valid_range.min)
                    if amount < least:
                        amount = least
                    elif policy.valid_range.step is not None:
                        step = parse(policy.valid_range.step)
                        amount = least + -((least - amount) // step) * step
                if policy is not None and policy.valid_values:
                    amount = next((parse(each) for each in policy.valid_values if parse(each) >= amount), amount)
            else:
                amount = parse(policy.default) if policy is not None and policy.default is not None else value
            if policy is not None and (policy.default is None or amount != parse(policy.default)):
                if policy.valid_values and amount not in [parse(each) for each in policy.valid_values]:
                    return None
                between = policy.valid_range
                if between is not None and between.max is not None and amount > parse(between.max):
                    return None
            if amount > value:
                return None
            found[name] = amount
        return found

    def _has_capacity(self, want: Want, pool: NaivePool, device: Device) -> bool:
        consumed = self._consumption(want, device)
        if consumed is None:
            return False
        if want.admin or not self._multi(device):
            return True
        identity = (pool.driver, pool.name, device.name)
        for name, amount in consumed.items():
            total = amount + sum(used.get(name, 0) for shared, used in self.shares if shared == identity)
            for each in self.picked:
                if each.identity == identity and not each.want.admin:
                    total += each.consumed.get(name, 0)
            if total > parse(device.capacity[name].value):
                return False
        return True

    # --- counters ---

    def _has_counters(self, pool: NaivePool, device: Device) -> bool:
        if not device.consumes_counters:
            return True
        if not self.features.partitionable_devices:
            return False
        identity = (pool.driver, pool.name, device.name)
        shared = {each for each, _ in self.shares}
        shared |= {each.identity for each in self.picked if self._multi(each.device) and not each.want.admin}
        if self._multi(device) and identity in shared:
            return True
        left = {
            (each.name, name): parse(counter.value)
            for part in pool.slices
            for each in part.spec.shared_counters
            for name, counter in each.counters.items()
        }
        for part in pool.everything:
            for other in part.spec.devices:
                key = (pool.driver, pool.name, other.name)
                if key in self.exclusive or any(key == each for each, _ in self.shares):
                    _consume(left, other)
        seen: set[tuple[str, str, str]] = {each for each, _ in self.shares}
        for each in self.picked:
            if each.pool is pool and not each.want.admin:
                if self._multi(each.device):
                    if each.identity in seen:
                        continue
                    seen.add(each.identity)
                _consume(left, each.device)
        _consume(left, device)
        return all(amount >= 0 for amount in left.values())

    # --- constraints ---

    def _allows(self, constraint: Any, want: Want, pool: NaivePool, device: Device) -> bool:
        if not _covers(constraint, want):
            return True
        name = constraint.match_attribute or constraint.distinct_attribute
        mine = self._values(name, pool.driver, device)
        if mine is None:
            return False
        others = [
            self._values(name, each.pool.driver, each.device)
            for each in self.picked
            if each.want.claim == want.claim and _covers(constraint, each.want)
        ]
        if constraint.match_attribute:
            common = set(mine)
            for other in others:
                assert other is not None
                common &= other
            return bool(common)
        return not any(other is not None and other & mine for other in others)

    def _values(self, name: str, driver: str, device: Device) -> set[tuple[str, Any]] | None:
        domain, _, bare = name.rpartition("/")
        found = device.attributes.get(name)
        if found is None and domain == driver:
            found = device.attributes.get(bare)
        if found is None:
            return None
        for kind in ("int", "bool", "string", "version"):
            value = getattr(found, f"{kind}_value")
            if value is not None:
                return {(kind, value)}
        return None


def _covers(constraint: Any, want: Want) -> bool:
    listed = constraint.requests
    return not listed or want.name in listed or want.parent in listed


def _consume(left: dict[tuple[str, str], Fraction], device: Device) -> None:
    for use in device.consumes_counters:
        for name, counter in use.counters.items():
            left[use.counter_set, name] -= parse(counter.value)


def _tolerates(toleration: Any, taint: Any) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (
            toleration.operator == "Exists"
            or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
        )
    )
