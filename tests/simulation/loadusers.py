"""The agents of nodes, which report what nodes use, and administrators who set thresholds of nodes."""

import json
from random import Random

from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins.loadaware.columns import PLAIN, PROD
from tests.simulation.configuration import LOADS, load_args
from tests.simulation.definitions import definitions

API_VERSION, KIND = "slo.koordinator.sh/v1alpha1", "NodeMetric"
THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
LONG = 1e6
"""Seconds: a report of that far in the future does not expire, one of that long ago has, by any replica's clock, which
the weather moves by some 1,000 s, and more than once.
"""


class LoadUsers:
    """Acts on the objects. What pods use is reported of those alone whose status says when they were placed: for the
    others it matters since when a replica has known them."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.args = load_args(simulation.plan)
        self.rng = Random(f"{simulation.plan.seed} load users")
        for thing in definitions("nodemetrics"):
            self.server.insert(thing)

    def settle_in(self):
        """What exists before any scheduler starts."""
        for node in self.server.objects("Node"):
            if self.rng.random() < 0.8:
                self._report(node["metadata"]["name"])

    def actions(self):
        """(weight, action) of what happens."""
        return [(8, self._report_some), (0.7, self._lose_report), (1, self._set_thresholds)]

    def tidy_up(self):
        """Reports do not expire from now on, or have expired long since."""
        for thing in self.server.objects(KIND, API_VERSION):
            at = self.rng.choice([LONG, LONG, LONG, -LONG])
            if not thing["status"].get("lasting"):
                self._report(thing["metadata"]["name"], at)

    def profile(self):
        """The reference's profile that all pods have."""
        plugins = {"filter": {"enabled": [{"name": LOADS}]}}
        return {"plugins": plugins, "pluginConfig": [{"name": LOADS, "args": self.args}]}

    def objects(self):
        """The reports."""
        return self.server.objects(KIND, API_VERSION)

    def now(self):
        """By the server's clock."""
        return self.server.clock.wall()

    def _some_node(self):
        names = sorted(node["metadata"]["name"] for node in self.server.objects("Node"))
        return self.rng.choice(names) if names else None

    def _report_some(self):
        name = self._some_node()
        if name is not None:
            self._report(name, self.rng.choice([0, -10, -25, LONG, LONG]))

    def _report(self, name, at=LONG):
        rng = self.rng
        cpu, memory = rng.choice([0, 500, 1000, 2000, 4000]), rng.choice([0, 1, 2, 5])
        status = {
            "updateTime": rfc3339(self.now() + at),
            "lasting": at == LONG,
            "nodeMetric": {"nodeUsage": _usage(cpu, memory)},
            "podsMetric": [
                {
                    "namespace": pod["metadata"]["namespace"],
                    "name": pod["metadata"]["name"],
                    "priority": rng.choice(["koord-prod", "koord-batch"]),
                    "podUsage": _usage(rng.choice([10, 300, 5000]), rng.choice([0, 1])),
                }
                for pod in self.server.objects("Pod")
                if pod["spec"].get("nodeName") == name and _says_when(pod) and rng.random() < 0.7
            ],
        }
        if rng.random() < 0.5:
            statistics = {kind: _usage(rng.choice([500, 2000]), 1) for kind in ("p50", "p95") if rng.random() < 0.8}
            status["nodeMetric"]["aggregatedNodeUsages"] = [{"duration": "5m0s", "usage": statistics}]
        if self.server.get(KIND, name, api_version=API_VERSION) is None:
            thing = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}, "status": status}
            self.server.insert(thing)
        else:
            self.server.change(KIND, name, lambda thing: thing.update(status=status), api_version=API_VERSION)

    def _lose_report(self):
        found = sorted(thing["metadata"]["name"] for thing in self.objects())
        if found:
            self.server.remove(KIND, self.rng.choice(found), api_version=API_VERSION)

    def _set_thresholds(self):
        name = self._some_node()
        if name is not None:
            section = {"usageThresholds": {"cpu": self.rng.choice([0, 20, 50, 90])}}
            text = self.rng.choice([json.dumps(section), json.dumps(section), "{", "{}"])
            self.server.change("Node", name, lambda node: _annotate(node, text))


def believed(scheduler):
    """Node -> what decides about its load, without numbers that decide nothing."""
    found = {}
    for profile in scheduler.profiles.values():
        plugin = profile.plugins.get(LOADS)
        if plugin is None:
            continue
        columns, table = plugin.loads.columns, scheduler.cluster.table
        for name, row in table.row_of.items():
            numbers = [(columns.room(row, kind), columns.left(row, kind)) for kind in (PLAIN, PROD)]
            gates, total = columns.gate.data[row].tolist(), columns.total.data[row].tolist()
            found[name] = gates, total, [[_bounded(amounts) for amounts in each] for each in numbers]
    return found


def _bounded(amounts):
    return [amount if abs(amount) < 1 << 58 else None for amount in amounts]


def _usage(cpu, memory):
    return {"resources": {"cpu": f"{cpu}m", "memory": f"{memory}Gi"}}


def _says_when(pod):
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions)


def _annotate(node, text):
    node["metadata"].setdefault("annotations", {})[THRESHOLDS] = text
