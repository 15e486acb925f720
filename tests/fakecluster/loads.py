"""A cluster whose hollow nodes report their load, and the same reports worked out naively from what can be watched."""

import json
import math
from pathlib import Path

from koordsched.api import quantity
from koordsched.fakecluster.clock import parse_rfc3339
from tests.fakecluster.timeline import Cluster
from tests.yamlfiles import documents

ROOT = Path(__file__).parents[2]
(DEFINITION,) = documents(ROOT / "manifests" / "crds" / "nodemetrics.yaml")
STEP = 15


class LoadCluster(Cluster):
    """With the definition of NodeMetric from the start, unless `defined` is False; keeps the reports."""

    def __init__(self, nodes=1, defined=True, **options):
        options.setdefault("bind", False)
        super().__init__(nodes, **options)
        self.reports = {}
        """By node: the times of its reports, what they said, and what `beside` made of the time."""
        self.beside = lambda now: None
        if defined:
            self.define()

    def define(self):
        """Installs the definition."""
        self.create(DEFINITION)
        self.registry.subscribe_changes(self.resource("nodemetrics"), self._changed)

    def _changed(self, change):
        metric, before = change.new, change.old or {}
        if change.type == "MODIFIED" and metric["status"] != before.get("status"):
            now = self.time.now()
            self.reports.setdefault(metric["metadata"]["name"], []).append((now, metric["status"], self.beside(now)))

    def metric(self, node="node-0"):
        """The node's NodeMetric."""
        return self.get("nodemetrics", node)

    def times(self, node="node-0"):
        """When the node reported."""
        return [at for at, *_ in self.reports.get(node, ())]

    def last(self, node="node-0"):
        """What the node said last."""
        return self.reports[node][-1][1]

    def node_cpu(self, node="node-0"):
        """Milli-cores, as reported last."""
        return quantity.milli_value(self.last(node)["nodeMetric"]["nodeUsage"]["resources"]["cpu"])

    def pods_cpu(self, node="node-0"):
        """Milli-cores by pod name, as reported last."""
        metrics = self.last(node)["podsMetric"]
        return {each["name"]: quantity.milli_value(each["podUsage"]["resources"]["cpu"]) for each in metrics}

    def until_report(self, node="node-0"):
        """Lets time pass until the node reports once more."""
        count = len(self.times(node))
        self.until(lambda: len(self.times(node)) > count)

    def annotate(self, kind, name, annotations):
        """Sets annotations; None takes one away."""
        self.patch(kind, name, {"metadata": {"annotations": annotations}})


def pod(name, usage=None, node="node-0", requests=None, limits=None, annotations=None, labels=None, **spec):
    """A pod bound to a node; `usage` is the annotation, as an object or as text."""
    annotations = dict(annotations or {})
    if usage is not None:
        annotations["koordsched.io/usage"] = usage if isinstance(usage, str) else json.dumps(usage)
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": labels or {}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }


class Diary:
    """What each pod of a node used when, from a watch of the pods alone."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._runs = {}
        """By uid: [begin, end or None, start of the containers, pod]."""
        self._gone = {}
        cluster.registry.subscribe_changes(cluster.resource("pods"), self._changed)

    def _changed(self, change):
        thing, now = change.new, self._cluster.time.now()
        uid = thing["metadata"]["uid"]
        runs = self._runs.setdefault(uid, [])
        status = thing.get("status") or {}
        running = [s["state"]["running"] for s in status.get("containerStatuses", ()) if "running" in s["state"]]
        over = change.type == "DELETED" or status.get("phase") in ("Succeeded", "Failed")
        if over:
            self._gone.setdefault(uid, now)
        started = None if over or not running else parse_rfc3339(running[0]["startedAt"])
        if runs and runs[-1][1] is None:
            if started == runs[-1][2]:
                return
            runs[-1][1] = now
        if started is not None:
            runs.append([started, None, started, thing])

    def samples(self, begin, now):
        """The times of all samples."""
        first = math.floor(begin / STEP) + 1
        return [number * STEP for number in range(first, math.floor(now / STEP) + 1)]

    def amounts(self, uid, at, resource):
        """What a pod used then; None if it had not started."""
        runs = self._runs[uid]
        if not runs or at < runs[0][0]:
            return None
        for begin, end, started, thing in runs:
            if begin <= at and (end is None or at < end):
                return naive_usage(thing, resource, at, started)
        return 0.0

    def report(self, begin, now, window=300.0, durations=(300.0, 600.0, 1800.0), capacity=math.inf, system=(0.0, 0.0)):
        """(node's averages, [percentiles by duration], averages by pod name); CPU in milli-cores, memory in bytes."""
        taken = self.samples(begin, now)
        rows = []
        for at in taken:
            cpu, memory = system
            for uid in self._runs:
                cpu += self.amounts(uid, at, "cpu") or 0.0
                memory += self.amounts(uid, at, "memory") or 0.0
            rows.append((at, min(cpu, capacity), memory))
        recent = [row for row in rows if row[0] > now - window]
        node = tuple(sum(row[column] for row in recent) / len(recent) for column in (1, 2))
        return node, [naive_percentiles(rows, now, seconds) for seconds in durations], self._pods(taken, now, window)

    def _pods(self, taken, now, window):
        found = {}
        for uid, runs in self._runs.items():
            if not runs or self._gone.get(uid, math.inf) <= now:
                continue
            used = [
                (self.amounts(uid, at, "cpu"), self.amounts(uid, at, "memory")) for at in taken if at > now - window
            ]
            used = [each for each in used if each[0] is not None]
            if used:
                found[runs[0][3]["metadata"]["name"]] = tuple(
                    sum(column) / len(used) for column in zip(*used, strict=True)
                )
        return found


def naive_percentiles(rows, now, seconds):
    """By name, (CPU, memory); None while there are too few samples."""
    recent = [row for row in rows if row[0] > now - seconds]
    names = {"avg": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    if not recent or recent[-1][0] - recent[0][0] < seconds / 2:
        return dict.fromkeys(names)
    found = {}
    for name, share in names.items():
        pair = []
        for column in (1, 2):
            values = sorted(row[column] for row in recent)
            number = max(1, math.floor(len(values) * share + 1e-9)) if share else 0
            pair.append(values[number - 1] if share else sum(values) / len(values))
        found[name] = tuple(pair)
    return found


def naive_usage(thing, resource, at, started):
    """Milli-cores or bytes of a pod with one container, without traces."""
    resources = thing["spec"]["containers"][0]["resources"]
    read = quantity.milli_value if resource == "cpu" else quantity.value
    stated = json.loads(thing["metadata"]["annotations"].get("koordsched.io/usage", "{}")).get(resource)
    if stated is None:
        share = {"cpu": 0.6, "memory": 0.8}[resource]
        used = share * read(resources.get("requests", {}).get(resource, "0"))
    elif isinstance(stated, str):
        used = read(stated)
    elif "from" in stated:
        used = read(stated["from"] if at - started < seconds_of(stated["after"]) else stated["to"])
    else:
        period = seconds_of(stated["period"])
        # Of the full turns since the epoch nothing is left but their rounding errors.
        turns = math.fmod(at + seconds_of(stated.get("phase", "0s")), period) / period
        used = max(0.0, read(stated["mean"]) + read(stated["amplitude"]) * math.sin(2 * math.pi * turns))
    limit = resources.get("limits", {}).get(resource)
    return min(used, read(limit)) if limit is not None else used


def seconds_of(text):
    """Of `5m` or `90s`."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
