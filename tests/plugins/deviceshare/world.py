"""A cluster whose nodes report devices and NUMA nodes, to which objects come, change and go as watches have it."""

import asyncio
import json
from functools import lru_cache
from random import Random

from koordsched import config
from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.framework.interface import CycleState
from koordsched.framework.status import PASS, SKIP
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.harness import StoppedClock

DEVICES, NUMA = "DeviceShare", "NodeNUMAResource"
PROFILE = "koord-scheduler"
API_VERSION = "kubescheduler.config.k8s.io/v1"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


IGNORED = {
    "ignoredResourceGroups": ["koordinator.sh", "nvidia.com", "amd.com", "dcu.com", "huawei.com", "kubernetes.io"]
}


def profile(args=None, numa_args=None, *, name=PROFILE, numa=True, devices=True, fit=False, more=None, **points):
    """The default plugins, NodeNUMAResource and DeviceShare; `more`: the arguments of others that are enabled, too, by
    name; `points`: further plugin sets. `fit`: whether nodes must offer the sums of what their devices have."""
    given = {**({NUMA: numa_args} if numa else {}), **({DEVICES: args} if devices else {}), **(more or {})}
    if not fit:
        given["NodeResourcesFit"] = IGNORED
    kind = {"apiVersion": API_VERSION}
    return {
        "schedulerName": name,
        "plugins": {
            "multiPoint": {"enabled": [{"name": each} for each in given if each != "NodeResourcesFit"]},
            **points,
        },
        "pluginConfig": [
            {"name": each, "args": {**kind, "kind": f"{each}Args", **(args or {})}} for each, args in given.items()
        ],
    }


def configuration(*profiles):
    """A configuration of profiles."""
    return {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": list(profiles)}


@lru_cache(maxsize=64)
def _resolved(text):
    return config.resolve(config.load(text, catalog=CATALOG), catalog=CATALOG)


class World:
    """The scheduler's state, as watches leave it."""

    def __init__(self, *objects, args=None, document=None, **options):
        document = document or configuration(profile(args, **options))
        self.offline = OfflineScheduler(
            _resolved(json.dumps(document)), IN_TREE, (), clock=StoppedClock(), rng=Random(1)
        )
        self.cluster, self.table = self.offline.cluster, self.offline.cluster.table
        self.profile = next(iter(self.offline.profiles.values()))
        self.plugin = self.profile.plugins.get(DEVICES)
        for thing in objects:
            self.put(thing)

    def put(self, thing):
        """An object appeared or changed; a pod whose phase is final leaves its node."""
        if thing["kind"] == "Pod":
            if (thing.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                return self.remove(thing)
            if thing["spec"].get("nodeName"):
                self.offline.pending.pop(key(thing), None)
        return self.offline.add(thing)

    def remove(self, thing):
        """An object is gone."""
        metadata = thing["metadata"]
        if thing["kind"] == "Node":
            self.cluster.remove_node(metadata["name"])
        elif thing["kind"] == "Pod":
            self.offline.pending.pop(key(thing), None)
            self.cluster.pod_gone(metadata["uid"])
            self.cluster.remove_pod(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            self.cluster.objects.of(kind).delete(metadata.get("namespace", ""), metadata["name"])

    def row(self, name="n"):
        """The row of a node."""
        return self.table.row_of[name]

    def pod(self, thing):
        """The scheduler's view of a pod."""
        return self.cluster.pods.build(convert(thing, core.Pod))

    def verdicts(self, thing):
        """Node -> (plugin, code, *reasons) of the whole profile; () where the pod passes."""
        self.put(thing)
        attempt = self.offline.attempt(key(thing))
        verdicts = attempt.filter(all_nodes=True)
        early = verdicts.pre_filtered.status
        found = {}
        for name, row in self.table.row_of.items():
            if early.code.rejects or early.code.text == "Error":
                found[name] = (early.plugin, early.code.text, *early.reasons)
                continue
            code = int(verdicts.codes[row])
            reason = self.profile.handle.reasons[code] if code != PASS else None
            found[name] = (reason.plugin, reason.code.text, *reason.texts) if reason is not None else ()
        return found

    def place(self, thing, name="n", *, keep=True):
        """What Reserve gives the pod on a node, {type: [minors]}, or (plugin, code, *reasons)."""
        pod, row = self.pod(thing), self.row(name)
        cycle = CycleState(pod)
        self.profile.filtering.filter(cycle)
        self.cluster.assume(pod, row)
        for plugin in self.profile.reserve_plugins:
            status = plugin.reserve(cycle, pod, row)
            if not status.ok:
                self.profile.run_unreserve(cycle, pod, row)
                self.cluster.forget(pod)
                return (plugin.name, status.code.text, *status.reasons)
        given = self.given(pod)
        if not keep:
            self.profile.run_unreserve(cycle, pod, row)
            self.cluster.forget(pod)
        return given

    def written(self, thing, name="n"):
        """The annotations that PreBind writes."""
        pod, row = self.pod(thing), self.row(name)
        cycle = CycleState(pod)
        self.profile.filtering.filter(cycle)
        self.cluster.assume(pod, row)
        try:
            for plugin in self.profile.reserve_plugins:
                assert plugin.reserve(cycle, pod, row).ok
            for plugin in self.profile.pre_bind_plugins:
                if plugin.pre_bind_pre_flight(cycle, pod, name) != SKIP:
                    assert asyncio.run(plugin.pre_bind(cycle, pod, name)).ok
        finally:
            self.profile.run_unreserve(cycle, pod, row)
            self.cluster.forget(pod)
        return cycle.patch.changes(None).get("annotations", {})

    def given(self, pod):
        """{type: [minors]} of a pod on a node."""
        found = {}
        for each in self.plugin.columns.allocation.of(pod) or ():
            found.setdefault(each.type, []).append(each.minor)
        return found

    def books(self):
        """All that the columns say, by node."""
        columns, found = self.plugin.columns, {}
        for name, row in sorted(self.table.row_of.items()):
            inventory = columns.inventory(row)
            used, offered = {}, {}
            for kind in columns.used:
                for column, into in ((columns.used[kind], used), (columns.offered[kind], offered)):
                    empty = 0 if into is used else -1
                    listed = columns.by_minor(column, kind, slice(row, row + 1))[0].tolist()
                    into.update({(kind, minor): a for minor, a in enumerate(listed) if any(x != empty for x in a)})
            held = {(kind, minor) for kind, minor, _ in columns._taken.get(row, ())}
            functions = {each: frozenset(columns.taken(row, *each)) for each in held}
            found[name] = {
                "equipment": inventory.equipment,
                "number": columns.number.data.item(row) == inventory.number,
                "used": used,
                "offered": offered,
                "holders": columns.holders.data.item(row),
                "functions": functions,
                "any functions": bool(columns.functions.data.item(row)),
            }
        return found

    def explain(self, thing):
        """What would be done with a pod that waits."""
        self.put(thing)
        return self.offline.explain(key(thing))


def key(thing):
    """namespace/name."""
    metadata = thing["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"
