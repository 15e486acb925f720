"""Plays a record of koord-scheduler on the naive model, and says what differs."""

import json
import re
from collections import Counter
from datetime import UTC, datetime

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.cluster import Cluster, key_of
from tests.plugins.reservation.naive.controller import synchronise
from tests.plugins.reservation.naive.info import quantities
from tests.plugins.reservation.naive.model import Model
from tests.plugins.reservation.naive.preemption import victims
from tests.plugins.reservation.naive.reasons import event

START = 1_900_000_000.0
TIMES = re.compile(r"\{\{now([+-]\d+)s\}\}")
UIDS = re.compile(r"\{\{uid:([^}]*)\}\}")
SETTLES = 15.0
"""Seconds that pass after the last step."""
BALANCED = "NodeResourcesBalancedAllocation"
"""Its formula is another one in the libraries that koord-scheduler was built with."""


class Play:
    """A record under way."""

    def __init__(self, record):
        self.record = record
        self.profile = record["config"]["profiles"][0]
        flags = [flag.partition("=")[2] for flag in record.get("flags") or ()]
        self.gates = [flag.removesuffix("=true") for flag in flags if flag.endswith("=true")]
        self.cluster = Cluster(now=START)
        self.model = Model(self.cluster, self.profile, self.gates)
        self.waiting, self.differences, self.seen = [], [], set()
        self.told = {}
        self.compared = Counter()

    def play(self):
        """Returns the differences."""
        things = [self.real(thing) for thing in self.record["objects"]]
        for thing in things:
            if not (waits(thing) or unplaced(thing)):
                self.cluster.put(thing)
        synchronise(self.cluster)
        later = [thing for thing in things if unplaced(thing)] + [thing for thing in things if waits(thing)]
        if self.record.get("prestart"):
            for thing in later:
                if unplaced(thing):
                    self.cluster.put(thing)
            later.sort(key=lambda thing: -self.pod_of(thing)["spec"].get("priority", 0))
        for thing in later:
            self.attempt(thing)
        for step in self.record.get("steps", ()):
            self.do(step)
        self.cluster.now += SETTLES
        synchronise(self.cluster)
        left = [thing["metadata"]["name"] for thing in self.waiting if self.expected(thing).get("bound")]
        self.same("verdicts", "pods that wait", left, [])
        for recorded in self.record["expected"]["objects"]:
            self.compare_object(recorded)
        for recorded in self.record["expected"]["debug"].values():
            if isinstance(recorded, dict):  # upstream fails to show host ports
                self.compare_debug(recorded.get("items", []))
        self.compare_events()
        return self.differences

    def real(self, thing):
        """With times and uids in place of the placeholders."""
        text = UIDS.sub(lambda found: found[1], json.dumps(thing))
        text = TIMES.sub(lambda found: at(START + float(found[1])), text)
        thing = json.loads(text)
        metadata = thing["metadata"]
        where = [metadata["namespace"]] if "namespace" in metadata else []
        metadata["uid"] = "/".join([thing["kind"], *where, metadata["name"]])
        metadata.setdefault("creationTimestamp", at(self.cluster.now))
        return thing

    def same(self, what, where, ours, recorded):
        self.compared[what] += 1
        if ours != recorded:
            self.differences.append(f"{what} of {where}:\n  model    {ours}\n  recorded {recorded}")

    def do(self, step):
        unknown = set(step) - {"create", "delete", "patch", "wait", "settle", "restartScheduler"}
        if unknown:
            raise ValueError(f"steps of {unknown} are not known to the model")
        if "delete" in step:
            self.cluster.remove({"kind": step["delete"]["kind"], "metadata": step["delete"]})
        if "create" in step:
            thing = self.real(step["create"])
            if waits(thing) or unplaced(thing):
                self.attempt(thing)
            else:
                self.cluster.put(thing)
        self.cluster.now += step.get("wait", 0)
        synchronise(self.cluster)
        waiting, self.waiting = self.waiting, []
        for thing in waiting:
            if self.expected(thing).get("bound"):
                self.attempt(thing)

    def expected(self, thing):
        expected = self.record["expected"]
        if thing["kind"] == "Reservation":
            (found,) = [each for each in expected["objects"] if each["name"] == thing["metadata"]["name"]]
            return {"bound": found["status"].get("nodeName"), "status": found["status"]}
        found = expected[f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"]
        if found.get("deleted"):
            (node,) = self.cluster.nodes
            return {**found, "bound": node}
        return found

    def pod_of(self, thing):
        return self.model.reserve_pod(thing["metadata"]["name"]) if thing["kind"] == "Reservation" else thing

    def attempt(self, thing):
        if thing["kind"] == "Reservation":
            self.cluster.put(thing)
        key, expected, first = (
            thing["metadata"]["name"],
            self.expected(thing),
            thing["metadata"]["uid"] not in self.seen,
        )
        self.seen.add(thing["metadata"]["uid"])
        decided = self.model.decide(self.pod_of(thing))
        if not decided.outcome.feasible:
            self.told.setdefault(thing["metadata"]["uid"], []).append(decided.message)
        if expected["bound"] and not decided.outcome.feasible and not expected.get("filtered"):
            self.preempt(thing)
            self.waiting.append(thing)  # a later attempt placed it
            return
        if thing["kind"] == "Reservation":
            self.compare_reservation(key, expected, decided)
        elif first or expected["bound"]:
            self.compare_pod(key, expected, decided)
        if not expected["bound"]:
            self.waiting.append(thing)
        elif expected["bound"] in decided.outcome.feasible:
            self.bind(thing, expected, decided)

    def compare_pod(self, key, expected, decided):
        filtered = expected.get("filtered") or {}
        ours = {node: told(*refusal) for node, refusal in decided.outcome.filtered.items() if refusal[0]}
        recorded = {node: (each["plugin"], each["reason"]) for node, each in filtered.items()}
        if not expected["bound"] or filtered:
            self.same("verdicts", key, ours, recorded)
        if expected.get("condition") and not expected["bound"]:
            self.same("messages", key, decided.message, cut(expected["condition"]["message"]))
        if not expected.get("deleted"):
            feasible = sorted(expected.get("feasible") or [])
            self.same("verdicts", f"{key}, feasible", sorted(decided.outcome.feasible), feasible)
        scores = decided.outcome.scores or {}
        for plugin, each in (expected.get("scores") or {}).items():
            if plugin in scores and plugin != BALANCED:
                ours = {node: weighted for node, (_, _, weighted) in scores[plugin].items()}
                self.same("scores", f"{key} by {plugin}", ours, each)
        if names.PLUGIN in (expected.get("scores") or {}) and names.PLUGIN not in scores:
            self.same("scores", key, "no score of Reservation", each)

    def compare_reservation(self, key, expected, decided):
        if expected["bound"]:
            self.same("verdicts", f"{key} on its node", expected["bound"] in decided.outcome.feasible, True)
            return
        self.same("verdicts", key, decided.outcome.feasible, [])
        (condition,) = expected["status"]["conditions"]
        self.same("messages", key, decided.message, cut(condition["message"]))

    def bind(self, thing, expected, decided):
        used = self.model.place(decided, expected["bound"])
        if thing["kind"] == "Pod" and "annotations" in expected:
            text = expected["annotations"].get(names.ALLOCATED)
            self.same("nominated", thing["metadata"]["name"], used, json.loads(text)["name"] if text else None)
        synchronise(self.cluster)

    def preempt(self, thing):
        """Pods that are recorded as deleted have to be the victims."""
        expected = self.record["expected"]
        recorded = [key for key in self.cluster.pods if expected.get(key, {}).get("deleted")]
        if recorded:
            (node,) = self.cluster.nodes
            found = [key_of(pod) for pod in victims(self.model, self.pod_of(thing), node)]
            self.same("verdicts", f"victims of {thing['metadata']['name']}", found, recorded)
            for key in recorded:
                self.cluster.pods.pop(key)

    def compare_object(self, recorded):
        name = recorded["name"]
        if recorded["kind"] == "Pod":
            pod = self.cluster.pods.get(f"default/{name}")
            if recorded.get("gone"):
                self.same("status", name, pod, None)
            else:
                text = recorded["annotations"].get(names.ALLOCATED)
                ours = (pod["metadata"].get("annotations") or {}).get(names.ALLOCATED)
                name_of = [json.loads(each)["name"] if each else None for each in (ours, text)]
                self.same("status", name, *name_of)
            return
        ours = by_value(self.cluster.reservations[name].get("status") or {})
        self.same("status", name, ours, by_value(recorded["status"]))

    def compare_debug(self, items):
        """What is known of the Reservations of a node; the debug endpoint says it."""
        for item in items:
            if item["kind"] != "Reservation" or item["name"] not in self.cluster.reservations:
                continue
            info = self.cluster.info(item["name"])
            recorded = {
                "available": bool(item.get("available")),
                "allocatable": quantities(item.get("allocatable")),
                "allocated": {name: n for name, n in quantities(item.get("allocated")).items() if n},
                "owners": sorted(pod["Name"] for pod in item.get("assignedPods") or ()),
            }
            ours = {
                "available": info.available,
                "allocatable": info.allocatable if info.available else recorded["allocatable"],
                "allocated": {name: n for name, n in info.allocated.items() if n},
                "owners": sorted(pod["metadata"]["name"] for pod in info.owners),
            }
            self.same("debug", item["name"], ours, recorded)

    def compare_events(self):
        """The first event about Reservations of each pod."""
        recorded = {}
        for each in self.record["expected"].get("events", ()):
            if each["reason"] == "FailedScheduling-Reservation":
                recorded.setdefault(each["regarding"], set()).add(each["note"])
        for regarding, notes in recorded.items():
            kind, _, name = regarding.partition("/")
            messages = self.told.get(f"{kind}/default/{name}", ())
            self.same("events", regarding, {event(message) for message in messages} <= notes and bool(messages), True)


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def waits(thing):
    return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")


def unplaced(thing):
    return thing["kind"] == "Reservation" and not (thing.get("status") or {}).get("nodeName")


def told(plugin, status):
    return plugin, ", ".join(status.reasons)


def cut(message):
    """Without what preemption says."""
    return message.partition("preemption: ")[0].rstrip(", ")


def by_value(status):
    """A status with quantities as numbers, without times and messages."""
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()]
    return {
        "phase": status.get("phase") or "Pending",
        "node": status.get("nodeName") or "",
        "allocatable": quantities(status.get("allocatable")),
        "allocated": {name: n for name, n in quantities(status.get("allocated")).items() if n},
        "owners": sorted(each["name"] for each in status.get("currentOwners") or ()),
        "conditions": [each for each in conditions if each[2] != "Unschedulable"],
    }
