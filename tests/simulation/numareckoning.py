"""The naive model of NodeNUMAResource as a plugin of the naive reference."""

from tests.plugins.nodenumaresource.naive import SKIP as SKIPPED
from tests.plugins.nodenumaresource.naive import Naive
from tests.reference.status import SKIP, Status
from tests.simulation.configuration import NUMA
from tests.simulation.numainvariants import KnownMachine
from tests.simulation.numausers import KIND


class NaiveNUMA:
    """PreFilter and Filter."""

    def __init__(self, args):
        self._model = Naive(args)

    def pre_filter(self, pod, world):
        verdict, _ = self._model.pre_filter(pod)
        if verdict.code == SKIPPED:
            return SKIP
        return None if verdict.passed else Status(verdict.code, verdict.reasons)

    def filter(self, pod, node, world):
        _, asked = self._model.pre_filter(pod)
        return _status(self._model.filter(asked, machine_of(node, world)))

    def reserves(self, pod, node, world):
        """Whether the pod would get on the node what it wants: pods that would not are not tried there."""
        _, asked = self._model.pre_filter(pod)
        return self._model.reserve(asked, machine_of(node, world))[0].passed


def machine_of(node, world):
    """The machine of a node."""
    name = node["metadata"]["name"]
    report = next((thing for thing in world.kind(KIND) if thing["metadata"]["name"] == name), None)
    return KnownMachine(node, report, pods_holding(node, world))


def pods_holding(node, world):
    """The pods on a node. What an earlier attempt wrote on a pod that is only nominated holds nothing."""
    bound = {pod["metadata"]["uid"] for pod in world.origin.placed}
    return [pod if pod["metadata"]["uid"] in bound else _bare(pod) for pod in world.pods_on(node)]


def _bare(pod):
    return {**pod, "metadata": {**pod["metadata"], "annotations": {}}}


def _status(verdict):
    return None if verdict.passed else Status(verdict.code, verdict.reasons)


def with_numa(profile, args):
    """The profile with NodeNUMAResource at the end."""
    profile.plugins[NUMA] = NaiveNUMA(args)
    for point in ("preFilter", "filter"):
        profile.points[point].append(NUMA)
    return profile


def refused_by_reserve(pod):
    """Whether a pod was refused last when something was to be reserved for it on the node that was best.

    Filter lets pods onto nodes with too few CPUs where their policy is only preferred, or the nodes' is best effort. As
    upstream, no other node is tried then, no pod is preempted, and what could help elsewhere wakes no pod.
    """
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
    return said.startswith("0/1 nodes are available: ") and "preemption" not in said
