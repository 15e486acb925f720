"""Nodes with GPUs and pods that want some, and schedulers that know them."""

import json
from random import Random

from koordsched.framework.interface import PodScore
from koordsched.framework.status import Code, Status
from koordsched.scheduling.offline import OfflineScheduler
from tests.engine.gpushare import ALLOCATED, GPUS, HINT, REQUEST, GpuBooks, GpuShare
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, pod

CONFIGURATION = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def gpu_node(name, gpus=8, cpu="64", **more):
    """A node with so many GPUs."""
    made = node(name, cpu=cpu, **{REQUEST: str(100 * gpus)}, **more)
    made["metadata"]["annotations"] = {GPUS: str(gpus)}
    return made


def gpu_pod(name, core=None, *, on=None, allocated=None, hint=None, cpu="1", **more):
    """A pod that wants so many hundredths of GPUs, or has been allocated ((minor, hundredths), ...).

    It requests them as a resource as well: that is what holds room for it while it is nominated.
    """
    wanted = core if isinstance(core, int) else sum(amount for _, amount in allocated or ())
    runs = container(cpu=cpu, **({REQUEST: wanted} if wanted else {}))
    if wanted:
        runs["resources"]["limits"] = {REQUEST: str(wanted)}
    made = pod(name, runs, on=on, **more)
    annotations = {REQUEST: core and str(core), HINT: hint, ALLOCATED: allocated and json.dumps(allocated)}
    made["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    return made


def offline(*objects, seed=1, plugins=(GpuShare,)):
    """An offline scheduler with the plugin; objects in this order."""
    resolved = resolved_with(CONFIGURATION, plugins)
    return OfflineScheduler(resolved, registry_with(plugins), objects, clock=StoppedClock(), rng=Random(seed))


def books(scheduler):
    """The plugin's books."""
    return scheduler.cluster.shared(GpuBooks)


def used(scheduler):
    """Node -> hundredths allocated of each GPU that it has, by the plugin's columns."""
    state = books(scheduler).state.data
    return {name: state[row, 1 : 1 + state[row, 0]].tolist() for name, row in scheduler.cluster.table.row_of.items()}


class Fussy(PodScore):
    """Scores no pod."""

    name = "Fussy"

    def __init__(self, args, handle):
        pass

    def pre_score(self, cycle, pod, rows):
        return Status(Code.ERROR, ("no scores",))

    def score(self, cycle, pod, table, rows):
        raise AssertionError("its PreScore has failed")
