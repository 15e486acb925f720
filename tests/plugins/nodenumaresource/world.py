"""A cluster with reports about CPUs and NUMA nodes, to which objects come, change and go as watches would have it."""

import asyncio
import json
from functools import lru_cache
from random import Random

import numpy as np

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.framework.interface import CycleState
from koordsched.framework.status import SKIP
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.allocation import quantity_of
from koordsched.plugins.nodenumaresource.supply import supply_of
from koordsched.plugins.shared import cpuset
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.harness import StoppedClock
from tests.plugins.nodenumaresource import machines

NAME = "NodeNUMAResource"
POINTS = ("preFilter", "filter", "reserve", "preBind")


def profile(args=None, name="default-scheduler", **points):
    """A profile with the plugin; `points`: further plugin sets."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{NAME}Args"}
    enabled = {"enabled": [{"name": NAME}]}
    return {
        "schedulerName": name,
        "plugins": {
            **dict.fromkeys(POINTS, enabled),
            "preBind": {"enabled": [{"name": NAME}, {"name": "DefaultPreBind"}]},
            "score": {"enabled": [{"name": NAME, "weight": 1}]},
            **points,
        },
        "pluginConfig": [{"name": NAME, "args": {**kind, **(args or {})}}],
    }


def configuration(args=None, **points):
    """A configuration of that profile; `args` are those of the plugin."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile(args, **points)],
    }


def resolved(document):
    """The configuration as the scheduler reads it."""
    return _resolved(json.dumps(document))


@lru_cache(maxsize=16)
def _resolved(text):
    return config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)


def complete(thing):
    """A pod as the API server has it: with a uid, the name of its scheduler, an image, a phase."""
    if thing["kind"] != "Pod":
        return thing
    metadata = thing["metadata"]
    containers = [{"image": "img:1", **container} for container in thing["spec"]["containers"]]
    spec = {"schedulerName": "default-scheduler", **thing["spec"], "containers": containers}
    status = thing.get("status", {"phase": "Running" if spec.get("nodeName") else "Pending"})
    metadata = {"uid": f"uid-{metadata['name']}", "namespace": "default", **metadata}
    return {**thing, "metadata": metadata, "spec": spec, "status": status}


def named(thing, name):
    """The same node or report, of another name."""
    return {**thing, "metadata": {**thing["metadata"], "name": name}}


def on(thing, node):
    """The same pod, bound to a node."""
    return {**thing, "spec": {**thing["spec"], "nodeName": node}}


def annotated(thing, **annotations):
    """The same object with more annotations; `resource_spec` is resource-spec of `scheduling.koordinator.sh`."""
    texts = {f"scheduling.koordinator.sh/{key.replace('_', '-')}": text for key, text in annotations.items()}
    metadata = thing["metadata"]
    return {**thing, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **texts}}}


def lsr(name="p", cpu="4", **more):
    """A pod that gets CPUs of its own."""
    return machines.pod(name, cpu, **{"qos": "LSR", "memory": None, **more})


class World:
    """The scheduler's state, as watches leave it."""

    def __init__(self, *objects, args=None, document=None):
        document = document or configuration(args)
        self.offline = OfflineScheduler(
            _resolved(json.dumps(document)), IN_TREE, (), clock=StoppedClock(), rng=Random(1)
        )
        self.cluster, self.table = self.offline.cluster, self.offline.cluster.table
        self.profile = self.offline.profiles["default-scheduler"]
        self.plugin = self.profile.plugins[NAME]
        self.nodes, self.columns = self.plugin.nodes, self.plugin.columns
        self.said = []
        """(name of the node, message) of events."""
        self.nodes._events.event = lambda kind, meta, level, reason, text, **more: self.said.append((meta.name, text))
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed; a pod whose phase is final leaves its node."""
        thing = complete(thing)
        if thing["kind"] == "Pod":
            if thing.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                self.remove(thing)
                return
            if thing["spec"].get("nodeName"):
                self.offline.pending.pop(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}", None)
        self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata = complete(thing)["metadata"]
        if thing["kind"] == "Node":
            self.cluster.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            self.offline.pending.pop(f"{metadata['namespace']}/{metadata['name']}", None)
            self.cluster.pod_gone(metadata["uid"])
            self.cluster.remove_pod(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            self.cluster.objects.of(kind).delete("", metadata["name"])

    def row(self, name="m1"):
        """The row of a node."""
        return self.table.row_of[name]

    def pod(self, thing):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(complete(thing), core.Pod))

    def early(self, thing):
        """PreFilter's (status, *reasons)."""
        return told(self.plugin.pre_filter_shape(self.pod(thing).shape))

    def verdicts(self, thing):
        """Node name -> (status, *reasons) of the plugin's Filter; the same by all rows and by one row at a time."""
        shape, found = self.pod(thing).shape, {}
        every = self.plugin.filter_rows(shape, self.table, self.table.all_rows)
        for name, row in self.table.row_of.items():
            one = self.plugin.filter_rows(shape, self.table, slice(row, row + 1))
            code = 0 if one is None else int(one[0])
            assert code == (0 if every is None else int(every[row]))
            reason = self.profile.handle.reasons[code] if code else None
            found[name] = ("Success",) if reason is None else (reason.code.text, *reason.texts)
        return found

    def scores(self, thing):
        """Node name -> score; the same by all rows and by one row at a time."""
        shape, found = self.pod(thing).shape, {}
        if self.plugin.skips(shape):
            return {}
        every = self.plugin.score_rows(shape, self.table, self.table.all_rows)
        for name, row in self.table.row_of.items():
            one = self.plugin.score_rows(shape, self.table, slice(row, row + 1))
            found[name] = one if isinstance(one, int) else int(one[0])
            assert found[name] == (every if isinstance(every, int) else int(every[row]))
        return found

    def place(self, thing, name="m1", keep=False):
        """(status of Reserve, annotations that PreBind writes); the pod leaves the node again unless it is kept."""
        pod, row = self.pod(thing), self.row(name)
        cycle = CycleState(pod)
        self.cluster.assume(pod, row)
        status = self.plugin.reserve(cycle, pod, row)
        if status.ok and self.plugin.pre_bind_pre_flight(cycle, pod, name) != SKIP:
            assert asyncio.run(self.plugin.pre_bind(cycle, pod, name)).ok
        if not keep or not status.ok:
            self.plugin.unreserve(cycle, pod, row)
            self.cluster.forget(pod)
        annotations = cycle.patch.changes(None).get("annotations", {})
        return told(status), {key.partition("/")[2]: json.loads(text) for key, text in annotations.items()}

    def outcome(self, thing, name="m1"):
        """What the first of PreFilter, Filter and Reserve says that refuses, and what is written otherwise."""
        said = self.early(thing)
        if said[0] == "Skip":
            return ("Success",), {}
        if said == ("Success",):
            said = self.verdicts(thing)[name]
        return self.place(thing, name) if said == ("Success",) else (said, {})

    def cpus(self, thing, name="m1"):
        """The list of the CPUs that a pod gets, None if it gets none of its own."""
        said, written = self.outcome(thing, name)
        assert said == ("Success",), said
        return written.get("resource-status", {}).get("cpuset")

    def numa(self, thing, name="m1"):
        """{NUMA node: {resource: quantity}} that a pod gets."""
        said, written = self.outcome(thing, name)
        assert said == ("Success",), said
        return {each["node"]: each["resources"] for each in written["resource-status"].get("numaNodeResources", ())}

    def refusal(self, thing, name="m1"):
        """(status, *reasons) of a pod that does not get onto a node."""
        said, written = self.outcome(thing, name)
        assert not written
        return said

    def free(self, name="m1"):
        """The list of the CPUs that pods may get."""
        row = self.row(name)
        layout = self.columns.layout(row)
        return "" if layout is None else cpuset.text(self.columns.free(row, layout))

    def held(self, name="m1"):
        """The list of the CPUs that pods hold."""
        return cpuset.text(self.columns.held(self.row(name)))

    def zones(self, name="m1"):
        """Per NUMA node: {resource: (what it has, what is in use, what is left)} as quantities."""
        columns, row = self.columns, self.row(name)
        count = columns.zone_count.data.item(row)
        supply = supply_of(columns, np.array([row]), count, range(len(columns.resources)))
        return [
            {
                resource: tuple(
                    quantity_of(resource, int(amounts[0, at, numa]))
                    for amounts in (supply.capacity, supply.used, supply.available)
                )
                for at, resource in enumerate(columns.resources)
                if supply.present[0, at, numa]
            }
            for numa in range(count)
        ]

    def readings(self):
        """All that decides about nodes, by name."""
        columns = self.columns
        found = {}
        for name, row in sorted(self.table.row_of.items()):
            layout, node = columns.layout(row), self.nodes.of_node(name)
            found[name] = {
                "mode": columns.mode.data.item(row),
                "ratios": (columns.ratio.data.item(row), columns.node_ratio.data.item(row)),
                "layout": layout and (layout.topology.members, layout.reserved),
                "strategy": node.strategy,
                "holders": {cpu: n for cpu, n in enumerate(columns.holders.data[row].tolist()) if n},
                "sharing": (columns.single.data[row].tolist(), columns.shared.data[row].tolist()),
                "zones": self._by_resource(columns.zones, row, -1),
                "used": self._by_resource(columns.used, row, 0),
            }
        return found

    def _by_resource(self, column, row, absent):
        amounts = self.columns.amounts_of(column, slice(row, row + 1))[0].tolist()
        return {
            (resource, numa): amount
            for resource, of_nodes in zip(self.columns.resources, amounts, strict=True)
            for numa, amount in enumerate(of_nodes)
            if amount != absent
        }

    def explain(self, thing):
        """What would be done with a pod that waits."""
        return self.offline.explain(f"{thing['metadata']['namespace']}/{thing['metadata']['name']}")


def told(status):
    """(code, *reasons) of a status."""
    return (status.code.text, *status.reasons)


def cpuset_of(thing):
    """The list of CPUs that a pod's annotation says, None without."""
    text = thing["metadata"].get("annotations", {}).get(kinds.RESOURCE_STATUS)
    return json.loads(text).get("cpuset") if text else None
