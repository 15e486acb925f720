"""The plugin and the naive model say the same about random states: verdicts, scores, what pods get."""

import asyncio
import json

import numpy as np
import pytest

from koordsched.api.quantity import nano_value
from koordsched.framework.interface import CycleState
from koordsched.plugins.nodenumaresource import kinds
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from tests.depth import quick_first
from tests.plugins.harness import Bench
from tests.plugins.nodenumaresource.naive import ERROR, SKIP, Naive
from tests.plugins.nodenumaresource.naivemachine import Malformed, texts
from tests.plugins.nodenumaresource.randomstates import random_state

NAME = NodeNUMAResource.name
WISHES = ("requiredCPUBindPolicy", "preferredCPUBindPolicy", "preferredCPUExclusivePolicy")


def placed(bench, plugin, pod, node):
    """(status, annotations that PreBind writes) of a pod on a node; the pod leaves it again."""
    row = bench.cluster.table.row_of[node]
    cycle = CycleState(pod)
    bench.cluster.assume(pod, row)
    status = plugin.reserve(cycle, pod, row)
    if status.ok and plugin.pre_bind_pre_flight(cycle, pod, node).ok:
        assert asyncio.run(plugin.pre_bind(cycle, pod, node)).ok
    plugin.unreserve(cycle, pod, row)
    bench.cluster.forget(pod)
    written = cycle.patch.changes(None).get("annotations", {})
    return status, {key: text for key, text in written.items() if text is not None}


def everything(bench, columns):
    """All that is counted; columns may have become wider meanwhile."""
    table = bench.cluster.table
    counted = (columns.mode, columns.zones, columns.used, columns.holders, columns.single, columns.shared)
    return [(np.argwhere(data != column.fill).tolist(), data[data != column.fill].tolist())
            for column in counted for data in [column.data[: table.size]]]  # fmt: skip


def by_value(annotations):
    """Quantities as numbers: a split may be written in another unit than the pod's request."""
    if kinds.RESOURCE_STATUS not in annotations:
        return annotations
    status = json.loads(annotations[kinds.RESOURCE_STATUS])
    for numa in status.get("numaNodeResources", ()):
        numa["resources"] = {name: nano_value(amount) for name, amount in numa["resources"].items()}
    return {**annotations, kinds.RESOURCE_STATUS: status}


def uncounted(machine):
    """Upstream, and the model, do not count what a pod was given where CPUs are not known, or the pod's other
    annotation cannot be read; here it counts."""
    given = [pod for pod in machine.pods if kinds.RESOURCE_STATUS in pod["metadata"]["annotations"]]
    return any(not machine.valid or unreadable(pod) for pod in given)


def unreadable(pod):
    """Whether a pod's wishes for CPUs cannot be read."""
    try:
        texts(pod, kinds.RESOURCE_SPEC, *WISHES)
    except Malformed:
        return True
    return False


def owned(asked, machine):
    """Upstream, and the model, let a designated pod have what others hold; here it must be free."""
    designated = asked.designated
    if designated is None:
        return True
    left = machine.available({})
    enough = all(
        amount <= left.get(numa, {}).get(name, 0)
        for numa, zone in designated.numa.items()
        for name, amount in zone.items()
    )
    return enough and designated.cpus <= machine.free_cpus()[0]


def misread(machine):
    """Where the ratios cannot be read, the model scores pods without CPU; upstream and the plugin give 0."""
    try:
        return machine.node_ratio < 0
    except Malformed:
        return True


@pytest.mark.parametrize("seed", quick_first(range(400), 14))
def test_the_same_as_the_naive_model(seed):
    state = random_state(seed)
    model, machines = Naive(state.args), state.machines()
    bench = Bench()
    plugin = bench.plugin(NAME, bench.typed_args(NAME, state.args))
    running = [pod for pod in state.bound if pod["status"]["phase"] == "Running"]  # handlers take the others off nodes
    for thing in (*state.nodes, *state.topologies, *running):
        bench.add(thing)
    before = everything(bench, plugin.columns)
    for wanted in state.pending:
        verdict, asked = model.pre_filter(wanted)
        pod = bench.pod(wanted)
        early = plugin.pre_filter_shape(pod.shape)
        assert early.code.text == verdict.code
        if not early.ok:
            assert verdict.code in (ERROR, SKIP) or early.reasons == verdict.reasons
            continue
        said = bench.filter(plugin, wanted)
        scores = bench.score(plugin, wanted)
        for name, machine in machines.items():
            if uncounted(machine) or misread(machine) or not owned(asked, machine):
                continue
            expected = model.filter(asked, machine)
            found = said[name] or ("Success",)
            assert (found[0], set(found[1:])) == (expected.code, set(expected.reasons)), (name, wanted)
            if not expected.passed:
                continue
            if asked.designated is None:  # the node of others is chosen; upstream scores what they would get instead
                assert scores[name] == model.score(asked, machine), (name, wanted)
            expected, allocation = model.reserve(asked, machine)
            status, annotations = placed(bench, plugin, bench.pod(wanted), name)
            assert (status.code.text, set(status.reasons)) == (expected.code, set(expected.reasons)), (name, wanted)
            if expected.passed:
                assert by_value(annotations) == by_value(model.written(asked, machine, allocation)), (name, wanted)
    assert everything(bench, plugin.columns) == before
