"""The whole: what is decided about a pod, or about a Reservation, and what the cluster is afterwards."""

import json
from dataclasses import dataclass, field

from tests.plugins.reservation.naive import names, preallocation
from tests.plugins.reservation.naive.cluster import View
from tests.plugins.reservation.naive.controller import available
from tests.plugins.reservation.naive.decision import Decision
from tests.plugins.reservation.naive.devices import DeviceShare
from tests.plugins.reservation.naive.matching import Rejected
from tests.plugins.reservation.naive.plugin import Reservation, nominated
from tests.plugins.reservation.naive.reasons import after_filter
from tests.reference.evaluation import Outcome, evaluate, fit_error
from tests.reference.plugins import REGISTRY
from tests.reference.profile import Profile
from tests.reference.status import ERROR


@dataclass
class Settings:
    """Arguments and gates."""

    ignored: tuple = ()
    ignored_groups: tuple = ()
    cluster_mode: bool = False
    candidate_label: str = names.CANDIDATE
    candidate_priority: str = names.CANDIDATE_PRIORITY
    prefers_none: bool = False
    omit_node_labels: bool = False
    skip_node_check: bool = False

    @classmethod
    def of(cls, args, gates=()):
        """From ReservationArgs and the names of the gates that are on."""
        pre = (args or {}).get("preAllocationConfig") or {}
        return cls(
            ignored=tuple((args or {}).get("ignoredResources") or ()),
            ignored_groups=tuple((args or {}).get("ignoredResourceGroups") or ()),
            cluster_mode=bool(pre.get("enableClusterMode")),
            candidate_label=pre.get("clusterLabelKey") or names.CANDIDATE,
            candidate_priority=pre.get("clusterPriorityAnnotationKey") or names.CANDIDATE_PRIORITY,
            prefers_none=bool(pre.get("preferNoPreAllocatedPods")),
            omit_node_labels="OmitNodeLabelsForReservation" in gates,
            skip_node_check="SkipReservationFitsNode" in gates,
        )

    def ignores(self, resource):
        return resource in self.ignored or ("/" in resource and resource.split("/")[0] in self.ignored_groups)


@dataclass
class Decided:
    """The outcome about a pod; `reasons`: what PostFilter adds if no node is feasible."""

    outcome: Outcome
    world: View
    decision: Decision = None
    reasons: list = field(default_factory=list)

    @property
    def error(self):
        """Whether the attempt ended with an error, not with a verdict."""
        return self.outcome.rejected is not None and self.outcome.rejected[1].code == ERROR

    @property
    def message(self):
        """The condition of a pod that no node is feasible for, without what other PostFilter plugins say."""
        if self.error:
            return ", ".join(self.outcome.rejected[1].reasons)
        text = fit_error(self.outcome, self.world)
        return f"{text} {', '.join(self.reasons)}" if self.reasons else text


class Model:
    """A profile (JSON of its configuration) and a cluster."""

    def __init__(self, cluster, configured, gates=()):
        self.cluster, self.configured, self.gates = cluster, configured, gates
        args = {entry["name"]: entry.get("args") or {} for entry in configured.get("pluginConfig") or []}
        self.settings = Settings.of(args.get(names.PLUGIN), gates)
        self.profile = Profile(configured, {**REGISTRY, names.PLUGIN: Reservation, names.DEVICES: DeviceShare})

    def on(self, cluster):
        """The same on another cluster."""
        return Model(cluster, self.configured, self.gates)

    def decide(self, pod):
        """What is decided about a pod, or a reserve pod; nothing changes."""
        try:
            decision = Decision(self.cluster, pod, self.settings, self.profile)
        except Rejected as rejected:
            return Decided(Outcome(rejected=(names.PLUGIN, rejected.status)), self.cluster.view())
        outcome = evaluate(pod, decision.view, self.profile)
        for node, refusal in outcome.filtered.items():
            if decision.refused_by.get(node, ("", None))[1] is refusal[1]:
                outcome.filtered[node] = decision.refused_by[node]
        decided = Decided(outcome, decision.view, decision)
        if outcome.feasible or decided.error:
            return decided
        if outcome.rejected is not None:
            filtered = dict.fromkeys(self.cluster.nodes, outcome.rejected[1])
        else:
            filtered = {node: status for node, (_, status) in outcome.filtered.items()}
        decided.reasons = after_filter(decision, filtered)
        return decided

    def reserve_pod(self, name):
        """The pod of a Reservation that waits for a node."""
        return self.cluster.info(name).reserve_pod()

    def nominated(self, decided, node):
        """What the pod uses on the node: the Reservation's name, None for none; for a reserve pod the pods it takes."""
        thing = self.cluster.nodes[node]
        if decided.decision.is_reserve:
            return preallocation.nominated(decided.decision, thing) if decided.decision.pre_allocates else []
        if decided.decision.wish.ignores:
            return None
        info = nominated(decided.decision, thing)
        return info.name if info else None

    def place(self, decided, node, used=None, annotations=None):
        """The pod is on the node from now on; returns what it uses there, see `nominated`.

        `used`: what it uses, where that is given; `annotations`: what other plugins write.
        """
        used = self.nominated(decided, node) if used is None else used
        pod = annotated(decided.decision.pod, annotations)
        if decided.decision.is_reserve:
            name = decided.decision.info.name
            for each in used:
                self.cluster.put(self.owner(each, name))
            self.cluster.put(available(annotated(self.cluster.reservations[name], annotations), node))
            return used
        placed = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        self.cluster.put(self.owner(placed, used) if used else placed)
        return used

    def owner(self, pod, name):
        """The pod as it uses the Reservation."""
        uid = self.cluster.reservations[name]["metadata"]["uid"]
        text = json.dumps({"name": name, "uid": uid}, separators=(",", ":"))
        return annotated(pod, {names.ALLOCATED: text})


def annotated(thing, annotations):
    """The object with more annotations."""
    both = {**(thing["metadata"].get("annotations") or {}), **(annotations or {})}
    return {**thing, "metadata": {**thing["metadata"], "annotations": both}}
