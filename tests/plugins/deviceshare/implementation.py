"""What tests ask of an implementation of DeviceShare, and the naive model as one.

An implementation sees API objects in the order in which they came and went, and decides about one pod.
"""

import contextlib
import json
from dataclasses import dataclass, field
from typing import Protocol

from tests.plugins.deviceshare.naive.amounts import read
from tests.plugins.deviceshare.naive.books import World
from tests.plugins.deviceshare.naive.model import Naive
from tests.plugins.deviceshare.naive.numa import Aligned
from tests.plugins.deviceshare.naive.request import ALLOCATED, SUCCESS, Refused, U
from tests.plugins.deviceshare.naive.scoring import normalised
from tests.plugins.nodenumaresource import naive as numa
from tests.plugins.nodenumaresource.naivemachine import Machine

DEVICES, NUMA = "DeviceShare", "NodeNUMAResource"
NUMA_KEYS = ("scheduling.koordinator.sh/resource-status", "scheduling.koordinator.sh/resource-spec")
TIMES = ("predicate-time", "scheduling.koordinator.sh/bind-timestamp")
TIME = "<time>"


@dataclass(frozen=True)
class Gone:
    """An object that is gone, among objects that came."""

    thing: dict


@dataclass(frozen=True)
class Said:
    """A status: who refuses ("" where all pass), the code, the reasons."""

    plugin: str = ""
    code: str = SUCCESS
    reasons: tuple = ()

    @property
    def passed(self):
        return self.code == SUCCESS


@dataclass(frozen=True)
class Placed:
    """What became of a pod on a node: the refusal of Reserve or PreBind, or what these two plugins write.

    `devices`: {device type: [entry]} of the allocation, quantities as numbers, None if none is written. `numa`: the
    other annotations of NodeNUMAResource as JSON values. `annotations`: all others. `labels`: of the pod.
    """

    said: Said = Said()
    devices: dict | None = None
    numa: dict = field(default_factory=dict)
    annotations: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)

    @property
    def minors(self):
        """{device type: [minors]}."""
        return {kind: [entry["minor"] for entry in entries] for kind, entries in (self.devices or {}).items()}


class Decision(Protocol):
    """About one pod. `early`: PreFilter's Said; `verdicts`: {node: Said}; `raw`, `scores`: {feasible node: score}.

    Nodes on which upstream's Score fails, and the attempt with it, may be left out of `raw`; then `scores` is empty.
    """

    early: Said
    verdicts: dict
    raw: dict
    scores: dict

    def place(self, node: str) -> Placed:
        """The pod on a node that passed."""


class Implementation(Protocol):
    """Of NodeNUMAResource and DeviceShare, in this order."""

    def decide(self, events, pod, args=None, numa_args=None, gates=()) -> Decision:
        """`events`: objects and Gone; `args`, `numa_args`: of the plugins; `gates`: names of gates that are on."""

    def victims(self, events, pod, args=None, numa_args=None, gates=()) -> list:
        """The names of the pods that preemption would take away, on a cluster of one node."""


def placed(annotations, labels):
    """What is written, as Placed."""
    devices = annotations.get(ALLOCATED)
    return Placed(
        devices=None if devices is None else allocation_by_value(devices),
        numa={key: json.loads(text) for key, text in annotations.items() if key in NUMA_KEYS},
        annotations={
            key: TIME if key in TIMES else text
            for key, text in annotations.items()
            if key not in (ALLOCATED, *NUMA_KEYS)
        },
        labels=labels,
    )


def allocation_by_value(text):
    """{device type: [entry]} of an annotation with quantities as numbers."""
    return {
        kind: [{**entry, "resources": read(entry["resources"])} for entry in entries]
        for kind, entries in json.loads(text).items()
    }


class NaiveDecision:
    """A decision of the naive models."""

    def __init__(self, events, pod, args, numa_args, gates):
        self.world = World(templates_at=templates_at(args))
        for event in events:
            if isinstance(event, Gone):
                self.world.remove(event.thing)
            else:
                self.world.put(event)
        self.devices = Naive(self.world, args, gates)
        self.aligned = Aligned(numa.Naive(numa_args), self.devices)
        self.verdicts, self.raw, self.scores = {}, {}, {}
        self.early = self.ask_first(pod)
        if not self.early.passed:
            return
        masks = {}
        for name in self.world.nodes:
            (plugin, verdict), attempt = self.aligned.filter(self.wanted, self.asked, self.machine(name))
            self.verdicts[name] = told(plugin, verdict)
            if verdict.passed:
                masks[name] = attempt.affinity
        for name, mask in masks.items():
            with contextlib.suppress(Refused):
                self.raw[name] = self.devices.score(self.asked, name, mask)
        if len(self.raw) == len(masks):
            self.scores = normalised(self.raw)

    def ask_first(self, pod):
        verdict, self.wanted = self.aligned.numa.pre_filter(pod)
        if self.wanted is None:
            return told(NUMA, verdict)
        verdict, self.asked = self.devices.pre_filter(pod)
        return told(DEVICES, verdict) if self.asked is None else Said()

    def machine(self, name):
        return Machine(self.world.nodes[name], self.world.topologies.get(name), self.world.pods_on(name))

    def place(self, node):
        machine = self.machine(node)
        (plugin, verdict), allocation, attempt = self.aligned.reserve(self.wanted, self.asked, machine)
        if not verdict.passed:
            return Placed(told(plugin, verdict))
        try:
            written = self.devices.written(self.asked, node, allocation)
        except Refused as refused:
            return Placed(told(DEVICES, refused.verdict))
        of_numa = self.aligned.numa.written(self.wanted, machine, attempt.allocation)
        return placed({**written["annotations"], **of_numa}, written["labels"])


class NaiveImplementation:
    """The naive models."""

    def decide(self, events, pod, args=None, numa_args=None, gates=()):
        return NaiveDecision(events, pod, args, numa_args, gates)

    def victims(self, events, pod, args=None, numa_args=None, gates=()):
        decision = NaiveDecision(events, pod, args, numa_args, gates)
        if not decision.early.passed:
            return []
        ((name, said),) = decision.verdicts.items()
        if said.passed or said.code != U:
            return []
        machine, priority = decision.machine(name), pod["spec"].get("priority", 0)
        removed = [each for each in machine.pods if each["spec"].get("priority", 0) < priority]
        removed.sort(key=lambda each: -each["spec"].get("priority", 0))
        if not self.fits(decision, machine, removed):
            return []
        for each in list(removed):
            fewer = [other for other in removed if other is not each]
            if self.fits(decision, machine, fewer):
                removed = fewer
        return [each["metadata"]["name"] for each in removed]

    @staticmethod
    def fits(decision, machine, removed):
        (_, verdict), _ = decision.aligned.filter(decision.wanted, decision.asked, machine, removed)
        return verdict.passed


def told(plugin, verdict):
    return Said() if verdict.passed else Said(plugin, verdict.code, verdict.reasons)


def templates_at(args):
    """(namespace, name) of the ConfigMap with the templates."""
    given = (args or {}).get("gpuSharedResourceTemplatesConfig")
    if given is None:
        return "koordinator-system", "gpu-shared-resource-templates"
    return given.get("configMapNamespace", ""), given.get("configMapName", "")
