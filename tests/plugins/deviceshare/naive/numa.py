"""NUMA nodes: the hints of deviceshare spec 3.7, merged with those of NodeNUMAResource."""

import itertools

from tests.plugins.deviceshare.naive.request import UAU, Refused, U
from tests.plugins.nodenumaresource import naive as numa
from tests.plugins.nodenumaresource.naive import Hint, Verdict

SCORE = 500


def hints_of(model, asked, name, returned=()):
    """{device type: [Hint]}; empty where there is no preference. Raises Refused."""
    if model.unaligned or asked.skip or name not in model.world.books:
        return {}
    books = model.world.books[name]
    if asked.designated is not None:
        return designated_hints(asked, books)
    every, feasible, refused = sorted(books.numa), [], None
    given = model.given_back(name, returned)
    for size in range(1, len(every) + 1):
        for mask in itertools.combinations(every, size):
            try:
                allocator = model.allocator(asked, name, frozenset(mask))
                for kind, count in allocator.count.items():
                    there = [books.numa[numa_id].get(kind) for numa_id in mask if kind in books.numa[numa_id]]
                    if there and sum(map(len, there)) < count:
                        raise Refused(UAU, "Insufficient NUMA Scoped Devices")
                feasible.append((frozenset(mask), gpus_in(allocator.allocate(given))))
            except Refused as error:
                refused = error  # in the end, of all NUMA nodes together
            else:
                refused = None
    if refused is not None:
        raise refused
    if not feasible:
        return {}
    best, smallest = feasible[-1][1], min(len(mask) for mask, _ in feasible)
    hints = [Hint(mask, len(mask) == smallest, SCORE if gpus == best else 0) for mask, gpus in feasible]
    return dict.fromkeys(model.allocator(asked, name).each, hints)


def gpus_in(allocation):
    return {each["minor"] for each in allocation.get("gpu", ())}


def designated_hints(asked, books):
    mask = set()
    for kind, listed in asked.designated.items():
        for each in listed:
            found = [numa_id for numa_id, kinds in books.numa.items() if each["minor"] in kinds.get(kind, ())]
            if not found:
                raise Refused(U, "Designated Allocation Lack NUMA Node ID")
            mask |= set(found)
    return {kind: [Hint(frozenset(mask), True, SCORE)] for kind in asked.designated}


class Attempt(numa.Attempt):
    """One pod on one machine, whose devices have a say in the NUMA nodes."""

    def with_devices(self, model, asked):
        self.devices, self.asked_devices = model, asked
        return self

    def hints(self):
        found, reasons = {}, []
        try:
            found = super().hints()
        except numa.Refused as refused:
            reasons += refused.verdict.reasons
        try:
            found |= hints_of(self.devices, self.asked_devices, self.machine.name, self.returned)
        except Refused as refused:
            reasons.append(", ".join(refused.verdict.reasons))
        if reasons:
            raise Refused(U, *reasons)
        return found

    def admit(self):
        self.settled = False
        super().admit()
        if not self.devices.unaligned and not self.asked_devices.skip:
            self.devices.try_allocation(self.asked_devices, self.machine.name, self.affinity, self.returned)
        self.settled = True

    settled = False
    """Whether the NUMA nodes that the pod may use are known."""


class Aligned:
    """NodeNUMAResource and DeviceShare, in this order."""

    def __init__(self, numa_model, model):
        self.numa, self.devices = numa_model, model

    def attempt(self, asked, asked_devices, machine, returned=()):
        return Attempt(self.numa, asked, machine, returned).with_devices(self.devices, asked_devices)

    def filter(self, asked, asked_devices, machine, returned=()):
        """((plugin, Verdict), Attempt): the first refusal, or that of DeviceShare's success."""
        attempt = self.attempt(asked, asked_devices, machine, returned)
        try:
            attempt.filter()
        except numa.Refused as refused:
            return ("NodeNUMAResource", refused.verdict), attempt
        verdict = self.devices.filter(asked_devices, machine.name, returned, attempt.settled)
        return ("DeviceShare", verdict), attempt

    def reserve(self, asked, asked_devices, machine):
        """((plugin, Verdict), device allocation, Attempt) on a machine that passed the filter."""
        attempt = self.attempt(asked, asked_devices, machine)
        try:
            attempt.filter()
            attempt.reserve()
        except numa.Refused as refused:
            return ("NodeNUMAResource", refused.verdict), None, attempt
        verdict, allocation = self.devices.reserve(asked_devices, machine.name, attempt.affinity)
        return ("DeviceShare", verdict), allocation, attempt


__all__ = ["Aligned", "Attempt", "Verdict", "hints_of"]
