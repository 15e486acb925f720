"""Plays a record of koord-scheduler on the naive model alone, and says what differs."""

import itertools

from tests.plugins.nodenumaresource.naive import Naive
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING, Machine, amounts

NAME = "NodeNUMAResource"
WRITTEN = (f"{SCHEDULING}resource-spec", f"{SCHEDULING}resource-status")


class Play:
    """A record under way: the objects as they are, the pods in the order they were bound."""

    def __init__(self, record):
        self.record = record
        profile = record["config"]["profiles"][0]
        configs = {config["name"]: config["args"] for config in profile.get("pluginConfig", ())}
        self.model = Naive(configs.get(NAME))
        self.nodes, self.topologies, self.bound = {}, {}, []
        self.empty = {}
        self.differences = []
        self.compared = {"verdicts": 0, "scores": 0, "annotations": 0, "messages": 0, "debug": 0}

    def play(self):
        """Returns the differences."""
        things = self.record["objects"]
        for thing in things:
            if not self.waits(thing):
                self.put(thing)
        for thing in things:
            if self.waits(thing):
                self.decide(thing)
        for step in self.record.get("steps", ()):
            self.do(step)
        for node, recorded in (self.record["expected"].get("debug") or {}).items():
            ours = self.model.debug(self.machine(node), self.empty.get(node, ()))
            self.same("debug", node, comparable(ours), comparable(recorded))
        return self.differences

    @staticmethod
    def waits(thing):
        return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")

    def put(self, thing):
        name = thing["metadata"]["name"]
        if thing["kind"] == "Node":
            self.nodes[name] = thing
        elif thing["kind"] == "NodeResourceTopology":
            self.topologies[name] = thing
        elif thing["kind"] == "Pod":
            self.bound.append(thing)
        else:
            raise ValueError(f"{thing['kind']} is not known to the model")

    def machine(self, name):
        pods = [pod for pod in self.bound if pod["spec"]["nodeName"] == name]
        return Machine(self.nodes[name], self.topologies.get(name), pods)

    def same(self, what, where, ours, recorded):
        self.compared[what] += 1
        if ours != recorded:
            self.differences.append(f"{what} of {where}:\n  model    {ours}\n  recorded {recorded}")

    def do(self, step):
        unknown = set(step) - {"create", "delete", "wait", "settle"}
        if unknown:
            raise ValueError(f"steps of {unknown} are not known to the model")
        if "delete" in step:
            gone = step["delete"]["name"]
            self.bound = [pod for pod in self.bound if pod["metadata"]["name"] != gone]
        if "create" in step:
            self.decide(step["create"])

    def decide(self, pod):
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        expected = self.record["expected"][key]
        if expected.get("deleted"):
            expected = {**expected, "bound": self.only_node(), "annotations": None}
        verdict, asked = self.model.pre_filter(pod)
        if asked is None:
            self.compare_condition(key, expected, [f"{' '.join(verdict.reasons)}"])
            self.same("verdicts", key, None, expected["bound"])
            return
        machines = {name: self.machine(name) for name in self.nodes}
        verdicts = {name: self.model.filter(asked, machine) for name, machine in machines.items()}
        victims = self.record["expected"].get("victims")
        if victims:
            self.preempt(key, asked, machines, verdicts, expected, victims)
            machines = {name: self.machine(name) for name in self.nodes}
        else:
            self.compare_filtered(key, expected, verdicts)
        self.compare_scores(key, asked, machines, expected)
        if expected["bound"]:
            self.bind(key, pod, asked, machines[expected["bound"]], expected)
        elif not expected.get("filtered"):
            self.compare_reserve(key, asked, machines, expected)

    def only_node(self):
        (name,) = self.nodes
        return name

    def compare_filtered(self, key, expected, verdicts):
        filtered = expected.get("filtered") or {}
        reasons = []
        for name, verdict in verdicts.items():
            recorded = filtered.get(name)
            if recorded is None:
                self.same("verdicts", f"{key} on {name}", verdict.reasons, ())
            elif recorded["plugin"] == NAME:
                self.same("verdicts", f"{key} on {name}", ", ".join(verdict.reasons), recorded["reason"])
                reasons += verdict.reasons
            else:
                reasons.append(recorded["reason"])
        if filtered and expected["condition"]:
            self.compare_condition(key, expected, counted(reasons))

    def compare_condition(self, key, expected, reasons):
        text = f"0/{len(self.nodes)} nodes are available: {', '.join(reasons)}."
        self.same("messages", key, text, expected["condition"]["message"].partition(" preemption: ")[0])

    def compare_reserve(self, key, asked, machines, expected):
        """A pod that passed everywhere and is bound nowhere was refused when something was reserved for it."""
        (machine,) = machines.values()
        verdict, _ = self.model.reserve(asked, machine)
        self.compare_condition(key, expected, counted(verdict.reasons))

    def compare_scores(self, key, asked, machines, expected):
        recorded = (expected.get("scores") or {}).get(NAME, {})
        for name, score in recorded.items():
            if score is not None:
                self.same("scores", f"{key} on {name}", self.model.score(asked, machines[name]), score)

    def bind(self, key, pod, asked, machine, expected):
        verdict, allocation = self.model.reserve(asked, machine)
        self.same("verdicts", f"{key}, reserving", verdict.reasons, ())
        written = self.model.written(asked, machine, allocation)
        if allocation is not None and not allocation.cpus and not allocation.numa:
            self.empty.setdefault(machine.name, []).append(allocation)
        if expected["annotations"] is not None:
            given = pod["metadata"].get("annotations", {})
            kept = {name: text for name, text in given.items() if name not in WRITTEN}
            recorded = {name: text for name, text in expected["annotations"].items() if kept.get(name) != text}
            unchanged = {
                name for name in set(WRITTEN) & set(recorded) - set(written) if recorded[name] == given.get(name)
            }
            self.same("annotations", key, written, {n: text for n, text in recorded.items() if n not in unchanged})
        annotations = {**pod["metadata"].get("annotations", {}), **written}
        self.bound.append(
            {
                **pod,
                "metadata": {**pod["metadata"], "annotations": annotations},
                "spec": {**pod["spec"], "nodeName": machine.name},
            }
        )

    def preempt(self, key, asked, machines, verdicts, expected, victims):
        """Whether the recorded victims are those that a dry run on the pod's node finds (no budgets, other plugins)."""
        machine = machines[expected["bound"]]
        self.same("verdicts", f"{key} before preemption", any(verdict.passed for verdict in verdicts.values()), False)
        lower = [pod for pod in machine.pods if pod["spec"]["priority"] < asked.pod["spec"]["priority"]]
        removed = sorted(lower, key=lambda pod: -pod["spec"]["priority"])
        self.same("verdicts", f"{key} without all lower pods", self.model.filter(asked, machine, removed).passed, True)
        for pod in list(removed):
            fewer = [other for other in removed if other is not pod]
            if self.model.filter(asked, machine, fewer).passed:
                removed = fewer
        self.same("verdicts", f"victims of {key}", [pod["metadata"]["name"] for pod in removed], victims)
        self.bound = [pod for pod in self.bound if not any(pod is victim for victim in removed)]


def counted(reasons):
    """Reasons as a condition counts them."""
    groups = itertools.groupby(sorted(reasons))
    return sorted(f"{len(list(group))} {reason}" for reason, group in groups)


def comparable(debug):
    """A debug answer with quantities by value."""

    def by_value(value):
        if isinstance(value, list):
            return [by_value(entry) for entry in value]
        if isinstance(value, dict):
            return {key: numbers(entry) if key == "resources" else by_value(entry) for key, entry in value.items()}
        return value

    def numbers(resources):
        if all(isinstance(amount, int) for amount in resources.values()):
            return resources
        return amounts(resources)

    return by_value(debug)
