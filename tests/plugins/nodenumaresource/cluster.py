"""A cluster whose nodes report CPUs and NUMA nodes, to which objects come, change and go as watches would have it."""

import json
from functools import lru_cache
from random import Random

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.harness import StoppedClock

NAME = "NodeNUMAResource"
API_VERSION = "kubescheduler.config.k8s.io/v1"
POINTS = ("preFilter", "filter", "score", "reserve", "preBind")


def configuration(args=None):
    """A configuration with the plugin; `args` are those of the plugin."""
    kind = {"apiVersion": API_VERSION, "kind": f"{NAME}Args"}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {point: {"enabled": [{"name": NAME}]} for point in POINTS},
        "pluginConfig": [{"name": NAME, "args": {**kind, **(args or {})}}],
    }
    return {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


def resolved(document):
    """The configuration as the scheduler reads it."""
    return _resolved(json.dumps(document))


@lru_cache(maxsize=16)
def _resolved(text):
    return config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)


class Cluster:
    """The scheduler's state, as watches leave it."""

    def __init__(self, *objects, args=None):
        document = resolved(configuration(args))
        self.offline = OfflineScheduler(document, IN_TREE, (), clock=StoppedClock(), rng=Random(1))
        self.state, self.table = self.offline.cluster, self.offline.cluster.table
        self.profile = self.offline.profiles["default-scheduler"]
        self.plugin = self.profile.plugins[NAME]
        self.columns = self.plugin.columns
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed."""
        if thing["kind"] == "Pod" and thing["spec"].get("nodeName"):
            self.offline.pending.pop(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}", None)
        return self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata = thing["metadata"]
        if thing["kind"] == "Node":
            self.state.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            self.offline.pending.pop(f"{metadata['namespace']}/{metadata['name']}", None)
            self.state.pod_gone(metadata["uid"])
            self.state.remove_pod(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            self.state.objects.of(kind).delete("", metadata["name"])

    def pod(self, thing):
        """The scheduler's view of a pod."""
        return self.state.pods.build(convert(thing, core.Pod))

    def states(self):
        """Node -> all that the columns say of it."""
        return {name: row_state(self.columns, row) for name, row in self.table.row_of.items()}

    def explain(self, thing):
        """What would be done with a pod that waits."""
        return self.offline.explain(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}")


def row_state(columns, row):
    """All that the columns say of a row, by names: equal however the same objects came."""
    layout = columns.layout(row)

    def by_name(column):
        (amounts,) = columns.amounts_of(column, slice(row, row + 1)).tolist()
        absent = [column.fill] * len(amounts[0])
        return {name: listed for name, listed in zip(columns.resources, amounts, strict=True) if listed != absent}

    return {
        "mode": columns.mode.data.item(row),
        "ratios": (columns.ratio.data.item(row), columns.node_ratio.data.item(row)),
        "zones": (columns.zone_count.data.item(row), by_name(columns.zones)),
        "used": by_name(columns.used),
        "holders": {cpu: count for cpu, count in enumerate(columns.holders.data[row].tolist()) if count},
        "sharing": (columns.single.data[row].tolist(), columns.shared.data[row].tolist()),
        "layout": layout and (layout.topology.members, layout.reserved),
    }
