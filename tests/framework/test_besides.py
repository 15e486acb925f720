"""The filters that look at other pods, asked anew: what their PreFilter says then counts for every row."""

from types import SimpleNamespace

import numpy as np
import pytest

from koordsched.framework.besides import AskedAnew
from koordsched.framework.interface import CycleState, PodFilter, PreFilter
from koordsched.framework.status import PASS, SKIP, SUCCESS, Code, Reason, ReasonTable, Status
from tests.plugins.harness import Bench
from tests.plugins.objects import node, pod

REFUSAL = Status(Code.UNSCHEDULABLE, ("not beside those",))


class Company(PreFilter, PodFilter):
    """Its PreFilter answers this, and its Filter refuses the second row."""

    name = "Company"

    def __init__(self, answer, code):
        self.answer, self.code = answer, code

    def pre_filter(self, cycle, pod):
        return self.answer

    def filter(self, cycle, pod, table, rows):
        return np.where(rows == 1, self.code, PASS).astype(np.int32)


@pytest.mark.parametrize(
    ("answer", "without", "takes_part", "refused"),
    [
        (SUCCESS, "", True, [False, True]),
        (SKIP, "", False, [False, False]),
        (REFUSAL, "", True, [True, True]),
        (REFUSAL, "Company", False, [False, False]),
    ],
)
def test_what_pre_filter_says_anew(answer, without, takes_part, refused):
    bench, reasons = Bench(node("a"), node("b")), ReasonTable()
    plugin = Company(answer, reasons.intern("Company", Code.UNSCHEDULABLE, "crowded"))
    plan = SimpleNamespace(pre_filters=[(plugin.name, plugin)], pod_filters=[(0, plugin)])
    anew = AskedAnew(CycleState(bench.pod(pod("p"))), plan, bench.cluster.table, reasons, without)
    assert anew.takes_part is takes_part
    codes = anew.filter(bench.rows)
    assert [code != PASS for code in codes.tolist()] == refused
    if answer is REFUSAL and takes_part:
        assert reasons[int(codes[0])] == Reason("Company", Code.UNSCHEDULABLE, REFUSAL.reasons)
