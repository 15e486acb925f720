"""The naive model of NodeNUMAResource as a plugin of the naive reference."""

from tests.plugins.nodenumaresource.naive import SKIP as SKIPPED
from tests.plugins.nodenumaresource.naive import Naive
from tests.reference.status import SKIP, Status
from tests.simulation.configuration import NUMA
from tests.simulation.numainvariants import KnownMachine
from tests.simulation.numausers import KIND


class NaiveNUMA:
    """Filter; `reserves` says whether Reserve would succeed, too."""

    def __init__(self, args):
        self._model = Naive(args)

    def pre_filter(self, pod, world):
        verdict, _ = self._model.pre_filter(pod)
        if verdict.code == SKIPPED:
            return SKIP
        return None if verdict.passed else Status(verdict.code, verdict.reasons)

    def filter(self, pod, node, world):
        _, asked = self._model.pre_filter(pod)
        return _status(self._model.filter(asked, self._machine(node, world)))

    def reserves(self, pod, node, world):
        _, asked = self._model.pre_filter(pod)
        return asked.skip or self._model.reserve(asked, self._machine(node, world))[0].passed

    @staticmethod
    def _machine(node, world):
        """What an earlier attempt wrote on a pod that is only nominated holds nothing."""
        name = node["metadata"]["name"]
        report = next((thing for thing in world.kind(KIND) if thing["metadata"]["name"] == name), None)
        bound = {pod["metadata"]["uid"] for pod in world.origin.placed}
        pods = [pod if pod["metadata"]["uid"] in bound else _bare(pod) for pod in world.pods_on(node)]
        return KnownMachine(node, report, pods)


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


def with_reserve(pod, places, world, profile):
    """Those of the nodes, by name, on which Reserve succeeds as well."""
    nodes = [node for node in world.nodes if node["metadata"]["name"] in places]
    return {node["metadata"]["name"] for node in nodes if profile.plugins[NUMA].reserves(pod, node, world)}
