"""GPUs by the hundredth, allocated minor by minor: a plugin with an allocation, from request to restart.

CONTRIBUTING.md walks through it. A node says how many GPUs it has, a pod how many hundredths it wants; whole GPUs must
be a partition of neighbours.
"""

import json

import numpy as np

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.cluster.events import ASSIGNED_POD, NODE, ActionType, ClusterEvent
from koordsched.framework.interface import PreBind, Reserve, ShapePreFilter
from koordsched.framework.keyed import KeyedFilter
from koordsched.framework.status import SKIP, SUCCESS, Code, Status
from koordsched.queue.hints import HintRegistration

GPUS = "example.com/gpus"
REQUEST = "example.com/gpu-core"
HINT = "example.com/gpu-hint"
ALLOCATED = "example.com/gpu-allocated"
WHOLE, MOST = 100, 8


class GpuBooks(ColumnAccountant):
    """How many GPUs each row has, and how much of each is allocated; one for all profiles."""

    def __init__(self, cluster):
        table = cluster.table
        self.facets = table.add_facet()
        self.total, self.used = table.column(np.int64), table.column(np.int64, width=MOST)
        self.allocation = cluster.pod_facts.declare(ALLOCATED, parsed)
        cluster.add_accountant(self, reads=[self.allocation])
        table.on_node(lambda row, node: self.node_changed(table, row, node))

    def node_changed(self, table, row, node):
        total = min(int(node.metadata.annotations.get(GPUS, 0)), MOST)
        if total != self.total.data[row]:
            self.total.data[row] = total
            table.touch(row, self.facets)

    def columns(self):
        return (self.used,)

    def amounts(self, pod):
        allocation = self.allocation.of(pod)
        if allocation is None:
            return None
        amounts = np.zeros(MOST, dtype=np.int64)
        for minor, amount in allocation:
            amounts[minor] += amount
        return (amounts,)


class GpuShare(KeyedFilter, ShapePreFilter, Reserve, PreBind):
    """Filters by what is free on each GPU, allocates in Reserve, writes the allocation in PreBind."""

    name = "GpuShare"

    def __init__(self, args, handle):
        super().__init__()
        self.cluster, self.books = handle.cluster, handle.cluster.shared(GpuBooks)
        self.facets = self.books.facets
        self.code = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "Insufficient example.com/gpu-core")
        handle.cluster.shape_facts.declare(annotations=[REQUEST, HINT])

    def events_to_register(self):
        freed = ClusterEvent(ASSIGNED_POD, ActionType.DELETE)
        added = ClusterEvent(NODE, ActionType.ADD | ActionType.UPDATE_NODE_ANNOTATION)
        return [HintRegistration(self.name, freed), HintRegistration(self.name, added)]

    def pre_filter_shape(self, shape):
        request = shape.meta.annotations.get(REQUEST)
        if request is not None and not (request.isdecimal() and 0 < int(request) <= MOST * WHOLE):
            return Status(Code.UNRESOLVABLE, (f"annotation {REQUEST} must be a number of hundredths",))
        return SKIP if request is None else SUCCESS

    def key(self, shape, table, rows):
        return np.column_stack((self.books.total.data[rows], self.books.used.data[rows]))

    def evaluate_one(self, shape, table, row):
        return self.code if self.choice(shape, row) is None else 0

    def choice(self, shape, row):
        """((minor, hundredths), ...) for a pod of the shape on a row; None if it does not fit."""
        wanted, free = int(shape.meta.annotations[REQUEST]), WHOLE - self.books.used.data[row]
        free = free[: self.books.total.data[row]].tolist()
        if wanted < WHOLE:
            fitting = [minor for minor, left in enumerate(free) if left >= wanted]
            emptiest = shape.meta.annotations.get(HINT) == "spread"
            best = min(fitting, key=lambda minor: (-free[minor] if emptiest else free[minor], minor), default=None)
            return None if best is None else ((best, wanted),)
        count = wanted // WHOLE
        for first in range(0, len(free) - count + 1, count):
            if all(left == WHOLE for left in free[first : first + count]):
                return tuple((minor, WHOLE) for minor in range(first, first + count))
        return None

    def reserve(self, cycle, pod, row):
        if REQUEST not in pod.shape.meta.annotations:
            return SUCCESS
        choice = self.choice(pod.shape, row)
        if choice is None:
            return Status(Code.UNSCHEDULABLE, ("Insufficient example.com/gpu-core",))
        self.cluster.allocate(pod, self.books.allocation, choice)
        return SUCCESS

    def unreserve(self, cycle, pod, row):
        if self.books.allocation.of(pod) is not None:
            self.cluster.allocate(pod, self.books.allocation, None)

    def pre_bind_pre_flight(self, cycle, pod, node):
        return SKIP if self.books.allocation.of(pod) is None else SUCCESS

    async def pre_bind(self, cycle, pod, node):
        cycle.patch.annotate(ALLOCATED, json.dumps(self.books.allocation.of(pod)))
        return SUCCESS


def parsed(text):
    """The allocation of an annotation. Raises ValueError if it is malformed."""
    allocation = tuple((int(minor), int(amount)) for minor, amount in json.loads(text))
    if not all(0 <= minor < MOST and 0 < amount <= WHOLE for minor, amount in allocation):
        raise ValueError(f"no allocation of GPUs: {text[:64]}")
    return allocation
