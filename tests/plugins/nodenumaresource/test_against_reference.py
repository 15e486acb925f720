"""The plugin and the naive model say the same about random states: verdicts, scores, what pods get."""

import asyncio

import pytest

from koordsched.framework.interface import CycleState
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from tests.depth import quick_first
from tests.plugins.harness import Bench
from tests.plugins.nodenumaresource.naive import ERROR, SKIP, Naive
from tests.plugins.nodenumaresource.randomstates import random_state

NAME = NodeNUMAResource.name


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
    return status, cycle.patch.changes(None).get("annotations", {})


def everything(bench, columns):
    table = bench.cluster.table
    held = (columns.mode, columns.zones, columns.used, columns.holders, columns.single, columns.shared)
    return [column.data[: table.size].tolist() for column in held]


@pytest.mark.parametrize("seed", quick_first(range(400), 60))
def test_the_same_as_the_naive_model(seed):
    state = random_state(seed)
    model, machines = Naive(state.args), state.machines()
    bench = Bench()
    plugin = bench.plugin(NAME, bench.typed_args(NAME, state.args))
    for thing in (*state.nodes, *state.topologies, *state.bound):
        bench.add(thing)
    before = everything(bench, plugin.columns)
    for wanted in state.pending:
        verdict, asked = model.pre_filter(wanted)
        if asked is not None and asked.designated is not None:
            continue
        pod = bench.pod(wanted)
        early = plugin.pre_filter_shape(pod.shape)
        assert early.code.text == verdict.code
        if not early.ok:
            assert verdict.code in (ERROR, SKIP) or early.reasons == verdict.reasons
            continue
        said = bench.filter(plugin, wanted)
        scores = bench.score(plugin, wanted)
        for name, machine in machines.items():
            expected = model.filter(asked, machine)
            found = said[name] or ("Success",)
            assert (found[0], set(found[1:])) == (expected.code, set(expected.reasons)), (name, wanted)
            if not expected.passed:
                continue
            assert scores[name] == model.score(asked, machine), (name, wanted)
            expected, allocation = model.reserve(asked, machine)
            status, annotations = placed(bench, plugin, bench.pod(wanted), name)
            assert (status.code.text, set(status.reasons)) == (expected.code, set(expected.reasons)), (name, wanted)
            if expected.passed:
                assert annotations == model.written(asked, machine, allocation), (name, wanted)
    assert everything(bench, plugin.columns) == before
