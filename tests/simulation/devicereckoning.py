"""The naive model of DeviceShare as a plugin of the naive reference."""

from tests.plugins.deviceshare.naive.books import Books, World, held_by
from tests.plugins.deviceshare.naive.model import Naive
from tests.plugins.deviceshare.naive.numa import Aligned
from tests.plugins.deviceshare.naive.request import Refused
from tests.plugins.nodenumaresource import naive as numa
from tests.plugins.nodenumaresource.naive import ERROR
from tests.plugins.nodenumaresource.naive import SKIP as SKIPPED
from tests.reference.status import SKIP, Status
from tests.simulation.configuration import DEVICES
from tests.simulation.deviceusers import KIND
from tests.simulation.numareckoning import machine_of, pods_holding


class NaiveDevices:
    """PreFilter and Filter. `numa_args`: those of NodeNUMAResource, None where it is not enabled. `adapts`: whether
    allocations are written for vendors' device plugins."""

    def __init__(self, args, numa_args, *, adapts=False):
        self._args = args
        self._gates = ("DevicePluginAdaption",) if adapts else ()
        self._numa = None if numa_args is None else numa.Naive(numa_args)

    def pre_filter(self, pod, world):
        verdict, _ = Naive(World(*world.kind("ConfigMap")), self._args).pre_filter(pod)
        if verdict.code == SKIPPED:
            return SKIP
        return None if verdict.passed else Status(verdict.code, verdict.reasons)

    def filter(self, pod, node, world):
        model, name = self._model(node, world), node["metadata"]["name"]
        _, asked = model.pre_filter(pod)
        if self._numa is None:
            verdict = model.filter(asked, name)
        else:
            _, wanted = self._numa.pre_filter(pod)
            (_, verdict), _ = Aligned(self._numa, model).filter(wanted, asked, machine_of(node, world))
        return None if verdict.passed else Status(verdict.code, verdict.reasons)

    def reserves(self, pod, node, world):
        """Whether the pod would get on the node what it wants: pods that would not are not tried there."""
        model, name = self._model(node, world), node["metadata"]["name"]
        _, asked = model.pre_filter(pod)
        if self._numa is None:
            verdict, given = model.reserve(asked, name)
        else:
            _, wanted = self._numa.pre_filter(pod)
            (_, verdict), given, _ = Aligned(self._numa, model).reserve(wanted, asked, machine_of(node, world))
        return verdict.passed and _is_written(model, asked, name, given)

    def _model(self, node, world):
        """What there is on the one node."""
        name = node["metadata"]["name"]
        devices = [thing for thing in world.kind(KIND) if thing["metadata"]["name"] == name]
        there = World(node, *devices, *world.kind("ConfigMap"), *pods_holding(node, world))
        if any(held_by(pod) for pod in pods_holding(node, world.origin)):
            there.books.setdefault(name, Books())  # that devices are known does not end with a dry run
        return Naive(there, self._args, self._gates)


def _is_written(model, asked, name, given):
    """Whether PreBind writes what the pod was given: for some device plugins not everything can be."""
    try:
        model.written(asked, name, given)
    except Refused:
        return False
    return True


def not_adapted(pod):
    """Whether a pod was refused last because a device plugin cannot serve it on the node that was best; as upstream, no
    other node is tried."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any("failed to adapt for GPU device plugin" in each.get("message", "") for each in conditions)


def fails(outcome):
    """Whether a filter fails on a node, which ends the attempt, as upstream: designated devices may be sick there."""
    return any(status.code == ERROR for _, status in outcome.filtered.values())


def with_devices(profile, args, numa_args, *, adapts=False):
    """The profile with DeviceShare at the end."""
    profile.plugins[DEVICES] = NaiveDevices(args, numa_args, adapts=adapts)
    for point in ("preFilter", "filter"):
        profile.points[point].append(DEVICES)
    return profile
