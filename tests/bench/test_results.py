"""Figures from moments."""

import math
from xml.etree import ElementTree

import pytest

from bench import results
from bench.chart import over_time
from bench.profiling.breakdown import EVENT_LOOP, Breakdown


@pytest.mark.parametrize(
    "values, percent, expected",
    [
        ([1.0], 50, 1.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0], 51, 2.0),
        (list(range(1, 101)), 50, 50),
        (list(range(1, 101)), 90, 90),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 101)), 100, 100),
        ([5.0, 6.0, 7.0], 0, 5.0),
    ],
)
def test_percentile_is_the_nearest_rank(values, percent, expected):
    assert results.percentile(values, percent) == expected


def test_percentile_of_nothing():
    assert math.isnan(results.percentile([], 50))
    assert results.latency_of([]) is None


def test_latency_is_in_milliseconds():
    assert results.latency_of([0.004, 0.001, 0.003, 0.002]) == results.Latency(p50=2.0, p90=4.0, p99=4.0, worst=4.0)


@pytest.mark.parametrize(
    "moments, rate, series",
    [
        ([], 0.0, []),
        ([3.0], 0.0, [1]),
        ([3.0, 3.0], 0.0, [2]),
        ([10.0, 10.5, 11.0], 2.0, [2, 1]),
        ([0.0, 0.1, 0.2, 2.5], 1.2, [3, 0, 1]),
    ],
)
def test_rates(moments, rate, series):
    assert results.mean_rate(moments, moments[0] if moments else math.inf) == pytest.approx(rate)
    assert results.per_second(moments) == series


def test_what_comes_before_the_first_binding_counts():
    assert results.mean_rate([12.0, 13.0, 14.0], 10.0) == pytest.approx(0.75)


def test_curve_is_thinned_out_and_keeps_its_ends():
    moments = [float(second) for second in range(1000)]
    curve = results.curve_of(moments, 0.0, points=10)
    assert curve[0] == (0.0, 1)
    assert curve[-1] == (999.0, 1000)
    assert len(curve) == 11
    assert results.curve_of([], 0.0) == []


def test_chart_has_a_line_and_a_name_per_scheduler():
    chart = ElementTree.fromstring(
        over_time("A < B", [("one", [(0.0, 1), (2.0, 500)]), ("two & more", [(0.5, 1), (4.0, 500)]), ("none", [])])
    )
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in chart.iter(f"{space}text")]
    assert {"A < B", "one", "two & more", "none", "seconds"} <= set(texts)
    lines = [line.get("points") for line in chart.iter(f"{space}polyline")]
    assert [len(points.split()) for points in lines] == [2, 2, 0]
    # The later a pod is bound, the further right; the more are bound, the higher up.
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in lines[0].split())
    assert x1 > x0
    assert y1 < y0


def test_breakdown_counts_time_by_package_and_function():
    breakdown = Breakdown(
        [
            (("koordsched.plugins.nodeaffinity:NodeAffinity.filter_rows", "koordsched.framework.plan:run"), 2.0),
            (("koordsched.framework.plan:run",), 1.0),
            (("koordsched.cli.starting:start",), 0.5),
            ((), 0.5),
        ]
    )
    assert breakdown.seconds == 4.0
    assert dict(breakdown.by_package) == {"plugins.nodeaffinity": 2.0, "framework": 1.0, EVENT_LOOP: 1.0}
    assert breakdown.own["koordsched.framework.plan:run"] == 1.0
    assert breakdown.total["koordsched.framework.plan:run"] == 3.0
