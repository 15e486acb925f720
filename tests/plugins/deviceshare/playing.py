"""Plays a record of koord-scheduler on the naive models of DeviceShare and NodeNUMAResource, and says what differs."""

from tests.plugins.deviceshare.implementation import NUMA_KEYS, TIMES, allocation_by_value
from tests.plugins.deviceshare.naive.adapters import LOCKS
from tests.plugins.deviceshare.naive.amounts import read
from tests.plugins.deviceshare.naive.books import VENDOR, World
from tests.plugins.deviceshare.naive.model import Naive
from tests.plugins.deviceshare.naive.numa import Aligned
from tests.plugins.deviceshare.naive.request import ALLOCATED, JSON_ERROR, Refused
from tests.plugins.deviceshare.naive.scoring import normalised
from tests.plugins.nodenumaresource import naive as numa
from tests.plugins.nodenumaresource.naivemachine import Machine
from tests.plugins.nodenumaresource.playing import counted

NAME = "DeviceShare"
OURS = (NAME, "NodeNUMAResource")


class Play:
    """A record under way."""

    def __init__(self, record):
        self.record = record
        self.profile = record["config"]["profiles"][0]
        self.world = World()
        self.aligned = self.models()
        self.waiting = []
        self.differences = []
        self.compared = {"verdicts": 0, "scores": 0, "annotations": 0, "messages": 0, "debug": 0}

    def models(self):
        configs = {config["name"]: config["args"] for config in self.profile.get("pluginConfig", ())}
        gates = [
            flag.partition("=")[2].split("=")[0] for flag in self.record.get("flags", ()) if flag.endswith("=true")
        ]
        self.model = Naive(self.world, configs.get(NAME), gates)
        return Aligned(numa.Naive(configs.get("NodeNUMAResource")), self.model)

    def play(self):
        """Returns the differences."""
        things = self.record["objects"]
        for thing in things:
            if not waits(thing):
                self.world.put(thing)
        for thing in things:
            if waits(thing):
                self.decide(thing)
        for step in self.record.get("steps", ()):
            self.do(step)
        self.same("verdicts", "pods that wait", [thing["metadata"]["name"] for thing in self.waiting], [])
        for node, recorded in self.record["expected"]["debug"].items():
            self.same("debug", node, self.debug(node), by_value(recorded))
        return self.differences

    def same(self, what, where, ours, recorded):
        self.compared[what] += 1
        if ours != recorded:
            self.differences.append(f"{what} of {where}:\n  model    {ours}\n  recorded {recorded}")

    def do(self, step):
        unknown = set(step) - {"create", "delete", "wait", "settle", "restartScheduler"}
        if unknown:
            raise ValueError(f"steps of {unknown} are not known to the model")
        if "delete" in step:
            self.world.remove({"kind": step["delete"]["kind"], "metadata": {"namespace": "default", **step["delete"]}})
        if step.get("restartScheduler"):
            self.world = self.world.restarted()
            self.aligned = self.models()
        if "create" in step:
            if waits(step["create"]):
                self.decide(step["create"])
            else:
                self.world.put(step["create"])
        waiting, self.waiting = self.waiting, []
        for thing in waiting:
            self.decide(thing)

    def expected(self, pod):
        expected = self.record["expected"][f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"]
        if expected.get("deleted"):
            (node,) = self.world.nodes
            return {**expected, "bound": node, "annotations": None, "condition": None}
        return expected

    def machine(self, name):
        return Machine(self.world.nodes[name], self.world.topologies.get(name), self.world.pods_on(name))

    def decide(self, pod):
        key, expected = pod["metadata"]["name"], self.expected(pod)
        verdict, asked = self.model.pre_filter(pod)
        if asked is None:
            self.compare_condition(key, expected, [" ".join(verdict.reasons)])
            self.same("verdicts", key, None, expected["bound"])
            return
        _, wanted = self.aligned.numa.pre_filter(pod)
        found = {name: self.aligned.filter(wanted, asked, self.machine(name)) for name in self.world.nodes}
        verdicts = {name: said for name, (said, _) in found.items()}
        refused = not any(verdict.passed for _, verdict in verdicts.values())
        if expected["bound"] and refused and self.record["expected"].get("victims"):
            self.preempt(key, wanted, asked, verdicts)
        elif expected["bound"] and refused and not expected.get("filtered"):
            self.waiting.append(pod)  # a later attempt placed it
            return
        else:
            self.compare_filtered(key, expected, verdicts)
        self.compare_scores(key, asked, expected, {name: attempt.affinity for name, (_, attempt) in found.items()})
        if expected["bound"]:
            self.bind(key, pod, wanted, asked, expected)
        elif not expected.get("filtered"):
            self.compare_refusal(key, wanted, asked, expected)

    def compare_filtered(self, key, expected, verdicts):
        filtered, reasons = expected.get("filtered") or {}, []
        for name, (plugin, verdict) in verdicts.items():
            recorded = filtered.get(name)
            if recorded is None:
                self.same("verdicts", f"{key} on {name}", verdict.reasons, ())
            elif recorded["plugin"] in OURS:
                said = plugin, ", ".join(verdict.reasons)
                self.same("verdicts", f"{key} on {name}", said, (recorded["plugin"], recorded["reason"]))
                reasons += verdict.reasons
            else:
                reasons.append(recorded["reason"])
        if filtered and expected["condition"]:
            self.compare_condition(key, expected, counted(reasons))

    def compare_condition(self, key, expected, reasons):
        text = f"0/{len(self.world.nodes)} nodes are available: {', '.join(reasons)}."
        recorded = expected["condition"]["message"].partition(" preemption: ")[0]
        head, decoder, _ = text.partition(JSON_ERROR)
        self.same("messages", key, head, recorded[: len(head)] if decoder else recorded)

    def compare_scores(self, key, asked, expected, masks):
        recorded = {name: n for name, n in ((expected.get("scores") or {}).get(NAME) or {}).items() if n is not None}
        if recorded:
            raw = {name: self.model.score(asked, name, masks[name]) for name in recorded}
            self.same("scores", key, normalised(raw), recorded)

    def compare_refusal(self, key, wanted, asked, expected):
        """A pod that passed everywhere and is bound nowhere was refused later, on the only node."""
        (name,) = self.world.nodes
        (_, verdict), allocation, _ = self.aligned.reserve(wanted, asked, self.machine(name))
        if not verdict.passed:
            self.compare_condition(key, expected, counted(verdict.reasons))
            return
        try:
            self.model.written(asked, name, allocation)
        except Refused as refused:
            text = f'running PreBind plugin "{NAME}": {refused.verdict.reasons[0]}'
            self.same("messages", key, text, expected["condition"]["message"])
        else:
            self.same("verdicts", key, "bound", None)

    def bind(self, key, pod, wanted, asked, expected):
        name = expected["bound"]
        (_, verdict), allocation, _ = self.aligned.reserve(wanted, asked, self.machine(name))
        self.same("verdicts", f"{key}, reserving", verdict.reasons, ())
        written = self.model.written(asked, name, allocation)
        if expected["annotations"] is not None:
            self.same("annotations", key, parsed(written["annotations"]), parsed(expected["annotations"]))
            self.same("annotations", f"labels of {key}", written["labels"], expected["labels"])
        self.lock(name)
        kept = {k: text for k, text in (expected["annotations"] or {}).items() if k in NUMA_KEYS}
        annotations = {**pod["metadata"].get("annotations", {}), **kept, **written["annotations"]}
        metadata, spec = {**pod["metadata"], "annotations": annotations}, {**pod["spec"], "nodeName": name}
        self.world.put({**pod, "metadata": metadata, "spec": spec})

    def lock(self, name):
        """The node as PreBind leaves it for the vendor's device plugin."""
        vendor = (self.world.devices.get(name, {}).get("metadata", {}).get("labels") or {}).get(VENDOR)
        if self.model.adapts and vendor in LOCKS:
            (pod,) = [thing for thing in self.record["objects"] if waits(thing)][:1]
            text = f"2030-03-17T17:46:30Z,{pod['metadata']['namespace']},{pod['metadata']['name']}"
            node = self.world.nodes[name]
            metadata = {**node["metadata"], "annotations": {LOCKS[vendor]: text}}
            self.world.nodes[name] = {**node, "metadata": metadata}

    def preempt(self, key, wanted, asked, verdicts):
        """Whether the recorded victims are those that a dry run on the only node finds."""
        (name,) = verdicts
        machine, priority = self.machine(name), asked.pod["spec"].get("priority", 0)
        removed = [pod for pod in machine.pods if pod["spec"].get("priority", 0) < priority]
        removed.sort(key=lambda pod: -pod["spec"].get("priority", 0))
        for pod in [None, *removed]:
            fewer = [other for other in removed if other is not pod]
            (_, verdict), _ = self.aligned.filter(wanted, asked, machine, fewer)
            if verdict.passed:
                removed = fewer
            elif pod is None:
                self.same("verdicts", f"{key} without all lower pods", verdict.reasons, ())
        names = [pod["metadata"]["name"] for pod in removed]
        self.same("verdicts", f"victims of {key}", names, self.record["expected"]["victims"])
        for pod in removed:
            self.world.remove(pod)

    def debug(self, name):
        """The books of a node as the debug endpoint has them."""
        books = self.world.books.get(name)
        if books is None:
            return {"message": f"cannot find node {name}"}
        found = {}
        for word, of in (
            ("Total", books.total),
            ("Free", {k: books.free(k) for k in books.total}),
            ("Used", books.used),
        ):
            devices = {kind: {str(minor): amounts for minor, amounts in each.items()} for kind, each in of.items()}
            found[f"device{word}Detail"] = devices
            total = found[f"device{word}"] = {}
            for each in devices.values():
                for amounts in each.values():
                    for resource, amount in amounts.items():
                        total[resource] = total.get(resource, 0) + amount
        found["allocateSet"] = {
            kind: {key: {str(minor): amounts for minor, amounts in each.items()} for key, each in holders.items()}
            for kind, holders in books.holders.items()
        }
        return without_empty(found)


def waits(thing):
    return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")


def parsed(annotations):
    """Annotations by value, without times and what other plugins write."""
    found = {name: text for name, text in annotations.items() if name not in (*TIMES, *NUMA_KEYS)}
    if ALLOCATED in found:
        found[ALLOCATED] = allocation_by_value(found[ALLOCATED])
    return found


def by_value(debug):
    """A debug answer with quantities as numbers."""

    def value(thing):
        if isinstance(thing, dict) and thing and all(isinstance(each, str) for each in thing.values()):
            return read(thing)
        return {key: value(each) for key, each in thing.items()}

    return debug if "message" in debug else without_empty({key: value(each) for key, each in debug.items()})


def without_empty(debug):
    """Without device types of which nothing is said."""
    return {key: {kind: each for kind, each in of.items() if each != {}} for key, of in debug.items()}
