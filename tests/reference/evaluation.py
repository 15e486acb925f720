"""One scheduling attempt, node by node (core spec 3.6, steps 3 to 10)."""

from collections import Counter
from dataclasses import dataclass, field

from tests.reference.status import SKIP, UNRESOLVABLE, Status, unresolvable


@dataclass
class Outcome:
    """What is decided about a pod.

    `rejected`: the PreFilter status that rejected the pod as a whole, with the plugin; `filtered`: node name ->
    (plugin, Status); `scores`: plugin -> node name -> (raw, normalised, weighted), None with fewer than two
    feasible nodes; `skipped`: plugins whose PreFilter said Skip; `not_pre_filtered`: those whose PreFilter was not
    reached.
    """

    rejected: tuple = None
    filtered: dict = field(default_factory=dict)
    feasible: list = field(default_factory=list)
    scores: dict = None
    totals: dict = None
    skipped: set = field(default_factory=set)
    not_pre_filtered: list = field(default_factory=list)

    @property
    def any_of(self):
        """All nodes that are right."""
        if self.totals is None:
            return self.feasible
        return [node for node in self.feasible if self.totals[node] == max(self.totals.values())]


def evaluate(pod, world, profile, nominated=()):
    """The outcome for a pending pod; `nominated`: (pod, node name) of the other nominated pods."""
    outcome = Outcome()
    names, naming = None, []
    chain = profile.points["preFilter"]
    for position, name in enumerate(chain):
        answer = profile.plugins[name].pre_filter(pod, world)
        if answer is SKIP:
            outcome.skipped.add(name)
        elif isinstance(answer, Status):
            outcome.rejected = (name, answer)
        elif answer is not None:
            names = answer if names is None else names & answer
            naming.append(name)
            if not names:
                outcome.rejected = (name, unresolvable(_nobody_left(naming)))
        if outcome.rejected is not None and outcome.rejected[1].code == UNRESOLVABLE:
            outcome.not_pre_filtered = chain[position + 1 :]
            break
    if outcome.rejected is not None:
        return outcome

    filters = participating(profile, outcome)
    wished = pod.get("status", {}).get("nominatedNodeName")
    candidates = world.nodes
    if names is not None:
        candidates = [node for node in world.nodes if node["metadata"]["name"] in names]
        absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(naming)}]")
        outcome.filtered = {n["metadata"]["name"]: ("", absent) for n in world.nodes if n not in candidates}
    verdicts = {n["metadata"]["name"]: verdict(pod, n, world, filters, nominated) for n in candidates}
    if wished in verdicts and verdicts[wished] is None:
        outcome.feasible = [wished]
    else:
        outcome.feasible = [node for node, refusal in verdicts.items() if refusal is None]
    outcome.filtered |= {node: refusal for node, refusal in verdicts.items() if refusal is not None}
    if len(outcome.feasible) > 1:
        _score(pod, world, profile, outcome)
    return outcome


def participating(profile, outcome):
    """(name, plugin) of the filters that PreFilter did not skip."""
    return [(name, profile.plugins[name]) for name in profile.points["filter"] if name not in outcome.skipped]


def verdict(pod, node, world, filters, nominated):
    """The first rejection; with nominated pods of at least the pod's priority, and without them."""
    there = [(other, name) for other, name in nominated if name == node["metadata"]["name"]]
    there = [(other, name) for other, name in there if priority(other) >= priority(pod) and other is not pod]
    for state in [world.with_pods(there), world] if there else [world]:
        for name, plugin in filters:
            status = plugin.filter(pod, node, state)
            if status is not None:
                return name, status
    return None


def _score(pod, world, profile, outcome):
    nodes = [node for node in world.nodes if node["metadata"]["name"] in outcome.feasible]
    outcome.scores = {}
    outcome.totals = dict.fromkeys(outcome.feasible, 0)
    for name in profile.points["score"]:
        plugin, weight = profile.plugins[name], profile.weights[name]
        if hasattr(plugin, "pre_score") and plugin.pre_score(pod, world, nodes) is SKIP:
            continue
        raw = {node["metadata"]["name"]: plugin.score(pod, node, world, nodes) for node in nodes}
        normalised = plugin.normalize(pod, dict(raw), world) if hasattr(plugin, "normalize") else raw
        outcome.scores[name] = {node: (raw[node], normalised[node], weight * normalised[node]) for node in raw}
        for node in raw:
            outcome.totals[node] += weight * normalised[node]


def priority(pod):
    return pod["spec"].get("priority") or 0


def _nobody_left(naming):
    if len(naming) == 1:
        return f"node(s) didn't satisfy plugin {naming[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(naming)}] simultaneously"


def fit_error(outcome, world):
    """The message without the part of the PostFilter plugins (core spec 5.1)."""
    text = f"0/{len(world.nodes)} nodes are available:"
    if outcome.rejected is not None:
        return f"{text} {', '.join(outcome.rejected[1].reasons)}."
    counts = Counter(reason for _, status in outcome.filtered.values() for reason in status.reasons)
    return f"{text} {', '.join(sorted(f'{count} {reason}' for reason, count in counts.items()))}."
