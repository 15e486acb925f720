"""Verdicts on the rows of nominated pods: kept by shape, within a budget of bytes."""

from koordsched.framework.nominatedrows import NominatedRows
from koordsched.framework.status import PASS
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod


def test_verdicts_are_kept_for_as_many_shapes_as_the_budget_allows():
    promised = pod("promised", container(cpu="3"), schedulingGates=[{"name": "g"}])
    promised["status"]["nominatedNodeName"] = "b"
    offline = scheduler([node("a"), node("b"), promised, *(pod(cpu, container(cpu=cpu)) for cpu in "123")])
    profile, table = offline.profiles["default-scheduler"], offline.cluster.table
    fit, asked = profile.plugins["NodeResourcesFit"], []
    original = fit.filter_rows
    fit.filter_rows = lambda shape, *more: asked.append(shape) or original(shape, *more)
    nominated = NominatedRows(offline.cluster, profile.handle.nominations)
    nominated._verdicts.budget = 2 * table.size * (8 + 8 + 4)  # two shapes: by row, two numbers of changes and a code
    wanted = {cpu: offline.pending[f"default/{cpu}"] for cpu in "123"}
    for cpu in "121231":
        rows, codes = nominated.codes(wanted[cpu], profile.evaluations.plan_of(wanted[cpu].shape))
        assert rows.tolist() == [table.row_of["b"]]
        assert (codes == PASS).tolist() == [cpu == "1"]
    assert asked == [wanted[cpu].shape for cpu in "1231"]


def test_stamps_are_kept_for_the_priorities_asked_about_last():
    offline = scheduler([node("a")])
    nominated = NominatedRows(offline.cluster, offline.profiles["default-scheduler"].handle.nominations)
    first, *_, last = (nominated.stamps(priority) for priority in range(100))
    assert nominated.stamps(99) is last
    assert nominated.stamps(0) is not first
