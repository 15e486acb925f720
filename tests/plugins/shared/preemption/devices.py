"""A plugin with columns of its own: devices in whole or in part, and partitions that go together."""

from functools import cache
from itertools import combinations

import numpy as np

from koordsched.cluster.accounting import ColumnAccountant
from koordsched.framework.interface import ShapePreFilter
from koordsched.framework.keyed import KeyedFilter, KeyedScore
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code
from koordsched.plugins import IN_TREE
from tests.plugins.harness import scheduler

WHOLE = 100
MOST = 16
POINTS = ("preFilter", "filter", "score")
ENABLED = {"plugins": {point: {"enabled": [{"name": "DeviceShare"}]} for point in POINTS}}


class Devices(ColumnAccountant):
    """Labels of a node: `devices`, how many it has, `tenants`, how many pods may use them. Labels of a pod: `minors`,
    which it has (0.1.2), `share`, how much of each.
    """

    def __init__(self, cluster):
        table = cluster.table
        self.facets = table.add_facet()
        self.size = table.column(np.int32, width=1)
        self.used = table.column(np.int32, width=1)
        self.limit = table.column(np.int64)
        self.tenants = table.column(np.int64)
        self._table = table
        table.on_node(self._on_node)
        cluster.add_accountant(self)

    def _on_node(self, row, node):
        labels = node.metadata.labels
        count = int(labels.get("devices", 0))
        self.size.widen(count)
        self.size.data[row] = 0
        self.size.data[row, :count] = WHOLE
        self.limit.data[row] = int(labels.get("tenants", 99))
        self._table.touch(row, self.facets)

    def columns(self):
        return self.used, self.tenants

    def amounts(self, pod):
        minors = pod.labels.labels.get("minors")
        if minors is None:
            return None
        numbers = [int(minor) for minor in minors.split(".")]
        amounts = np.zeros(max(numbers) + 1, dtype=np.int64)
        amounts[numbers] = int(pod.labels.labels.get("share", WHOLE))
        self.used.widen(len(amounts))
        return amounts, 1


@cache
def partitions(count):
    """Which devices may be given to a pod together: pairs and fours that are next to each other."""
    if count in (2, 4, 8):
        return [range(start, start + count) for start in range(0, MOST, count)]
    return list(combinations(range(MOST), count))


class DeviceShare(ShapePreFilter, KeyedFilter, KeyedScore):
    """A pod wants what the name of its first image says: `devices-2`, or `share-30` of one."""

    name = "DeviceShare"

    def __init__(self, args, handle):
        super().__init__()
        self.devices = handle.cluster.shared(Devices)
        self.facets = self.devices.facets
        self.asked = 0
        self._no_device = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "no devices together")
        self._no_tenant = handle.reasons.intern(self.name, Code.UNSCHEDULABLE, "too many tenants")

    @staticmethod
    def wanted(shape):
        kind, _, amount = shape.spec.containers[0].image.partition("-")
        return (kind, int(amount)) if kind in ("devices", "share") else None

    def pre_filter_shape(self, shape):
        return SKIP if self.wanted(shape) is None else SUCCESS

    def key(self, shape, table, rows):
        devices = self.devices
        size, used = devices.size.data[rows], devices.used.data[rows]
        free = np.zeros((len(size), MOST + 1), dtype=np.int64)
        free[:, : size.shape[1]] = size
        free[:, : used.shape[1]] -= used
        free[:, MOST] = devices.limit.data[rows] - devices.tenants.data[rows]
        return free

    def evaluate_one(self, shape, table, row):
        self.asked += 1
        free = self.key(shape, table, slice(row, row + 1))[0]
        if free[MOST] <= 0:
            return self._no_tenant
        kind, amount = self.wanted(shape)
        if kind == "share":
            return PASS if (free[:MOST] >= amount).any() else self._no_device
        whole = (free[:MOST] == WHOLE).tolist()
        return PASS if any(all(whole[minor] for minor in each) for each in partitions(amount)) else self._no_device

    def skips(self, shape):
        return self.wanted(shape) is None

    def score_one(self, shape, table, row):
        return int(np.count_nonzero(self.key(shape, table, slice(row, row + 1))[0, :MOST] == WHOLE))


def scheduler_with_devices(objects, **config):
    """An offline scheduler with the plugin."""
    return scheduler(objects, {**ENABLED, **config}, {**IN_TREE, "DeviceShare": DeviceShare})


def device_plugin(offline):
    """The plugin of the only profile."""
    return offline.profiles["default-scheduler"].plugins["DeviceShare"]
