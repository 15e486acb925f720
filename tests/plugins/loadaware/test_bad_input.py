"""Reports and annotations as they should not be: harm to their own node or pod, a word where users look, no more."""

import asyncio
import json
import logging
import warnings

import pytest

from koordsched.scheduling.offline import BadObject
from tests.depth import quick_first
from tests.plugins.loadaware.objects import (
    AFTER_INITIALIZED,
    AFTER_SCHEDULED,
    GIBI,
    P16,
    SCALING_FACTORS,
    USAGE_THRESHOLDS,
    measured,
    metric,
    node,
    p16,
    pod,
)
from tests.plugins.loadaware.running import cluster, where
from tests.plugins.loadaware.world import NOW, World
from tests.virtualtime import WALL_EPOCH, run

CPU = "node(s) cpu usage exceed threshold"
EVERYTHING = {
    "prodUsageThresholds": {"cpu": 50},
    "prodUsageIncludeSys": True,
    "scoreAccordingProdUsage": True,
    "allowCustomizeEstimation": True,
    "dominantResourceWeight": 3,
    "aggregated": {
        "usageThresholds": {"cpu": 60},
        "usageAggregationType": "p95",
        "usageAggregatedDuration": "5m0s",
        "scoreAggregationType": "p99",
    },
}
QUANTITIES = [
    "-5",
    "1e30",
    "-1e30",
    "10Ei",
    "1e999999999",
    "9" * 300,
    "many",
    "",
    " 1",
    "1e-30",
    "٣",
    1.5,
    -3,
    1e300,
    2**70,
]
TYPES = [True, {}, [], {"x": 1}, ["1"]]
TIMES = [
    *("yesterday", "", "2030-01-01", "2030-13-45T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *("1969-12-31T23:59:59Z", "2030-03-17T17:46:40", "2030-03-17T17:46:40.123456789Z", "+292277026596-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00+23:59", "\0", 5, {}, True),
]
INTERVALS = [-1, 0, 2**62, 2**70, 10**400, "60", 1.5, True, {}]
DURATIONS = ["", "5x", "-5m", "9" * 500 + "h", "5", "∞", 300, {}, "5m0s5m0s"]


def changed(path, value):
    """A good report, but for one thing."""
    report = metric(
        of_node=("10", "1Gi"),
        at=NOW,
        pods=[measured("p", "1", "1Gi"), measured("q", "2", "1Gi")],
        aggregated={"5m0s": {"p95": ("10", "1Gi"), "p99": ("20", "1Gi")}},
        system=("1", "1Gi"),
    )
    *way, last = path
    inside = report
    for key in way:
        inside = inside[key]
    inside[last] = value
    return report


def hostile():
    """(id, report)."""
    status, usage = ("status",), ("status", "nodeMetric")
    where_quantities = {
        "nodeUsage": (*usage, "nodeUsage", "resources", "cpu"),
        "systemUsage": (*usage, "systemUsage", "resources", "cpu"),
        "podUsage": (*status, "podsMetric", 0, "podUsage", "resources", "cpu"),
        "p95": (*usage, "aggregatedNodeUsages", 0, "usage", "p95", "resources", "memory"),
    }
    for name, path in where_quantities.items():
        for number, value in enumerate([*QUANTITIES, *TYPES, None]):
            yield f"{name}-{number}", changed(path, value)
    for number, value in enumerate([*TIMES, None]):
        yield f"time-{number}", changed((*status, "updateTime"), value)
    for number, value in enumerate([*INTERVALS, None]):
        yield f"interval-{number}", changed(("spec", "metricCollectPolicy", "reportIntervalSeconds"), value)
    for number, value in enumerate([*DURATIONS, None]):
        yield f"duration-{number}", changed((*usage, "aggregatedNodeUsages", 0, "duration"), value)
    sections = {
        "status": status,
        "spec": ("spec",),
        "policy": ("spec", "metricCollectPolicy"),
        "nodeMetric": usage,
        "nodeUsage": (*usage, "nodeUsage"),
        "resources": (*usage, "nodeUsage", "resources"),
        "aggregated": (*usage, "aggregatedNodeUsages"),
        "usage": (*usage, "aggregatedNodeUsages", 0, "usage"),
        "p95": (*usage, "aggregatedNodeUsages", 0, "usage", "p95"),
        "systemUsage": (*usage, "systemUsage"),
        "podsMetric": (*status, "podsMetric"),
        "pod": (*status, "podsMetric", 0),
        "name": (*status, "podsMetric", 0, "name"),
        "priority": (*status, "podsMetric", 0, "priority"),
        "podUsage": (*status, "podsMetric", 0, "podUsage"),
        "unknown": (*status, "unknownField"),
    }
    for name, path in sections.items():
        for number, value in enumerate([None, [], {}, "x", 7, [None], [[]], {"x": {"y": []}}, {"p95": None}]):
            yield f"{name}-{number}", changed(path, value)
    yield "huge", changed((*status, "podsMetric"), [measured(f"p{i}", "1e30", "10Ei") for i in range(20_000)])
    yield "duplicates", changed((*status, "podsMetric"), [measured("p", str(i)) for i in range(9)])


def rejection(world, report):
    """What is said of a report that cannot be taken in at all."""
    try:
        world.put(report)
    except BadObject as error:
        return str(error)
    return None


def answers(world):
    """All that may be asked about the nodes."""
    for thing in (
        pod("plain"),
        pod("prod", P16, priority=9000),
        pod("batch", priority=5000),
        pod("mid", priority=7000),
    ):
        yield world.refusals(thing), world.scores(thing)
    world.sums("n")


@pytest.mark.parametrize("report", [pytest.param(report, id=name) for name, report in hostile()])
def test_hostile_reports(report):
    def fresh():
        things = node("n"), node("m"), p16("p", on="n", placed=NOW - 5), p16("q", on="n", placed=NOW - 500)
        return World(*things, metric("m", ("10", "1Gi"), at=NOW), args=EVERYTHING)

    world, good = fresh(), metric(of_node=("20", "1Gi"), at=NOW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complaint = rejection(world, report)
        assert complaint is None or "NodeMetric n" in complaint
        found = list(answers(world))
        world.assume(p16("more"), "n")
        world.pass_time(1)
        list(answers(world))
    assert [(reasons["m"], scores["m"]) for reasons, scores in found] == [
        (reasons["m"], scores["m"]) for reasons, scores in answers(fresh())
    ]
    assert all(
        reason is None or "usage exceed" in reason or "expired" in reason
        for each, _ in found
        for reason in each.values()
    )
    world.put(good)
    other = fresh()
    other.assume(p16("more"), "n")
    other.put(good)
    assert world.readings() == other.readings(), "what is right again counts again"


def test_negative_and_unreadable_amounts_count_as_nothing():
    for amount in ("-5", "many", "-1e30"):
        world = World(node(), metric(of_node=(amount, "1Gi"), at=NOW))
        assert world.readings()["n", 0].room[0] == 62_879
    assert World(node(), metric(of_node=("1e30", "1Gi"), at=NOW)).refusal(pod("p")) == CPU


@pytest.mark.slow
@pytest.mark.parametrize("reported", quick_first([False, True], 1))
def test_more_than_numbers_hold(reported):
    """Thousands of pods of absurd size on one node: it is full, and the others are as before."""
    many = [pod(f"p{i}", limits={"cpu": "1e30", "memory": "10Ei"}, on="n", placed=NOW) for i in range(1500)]
    pods = [measured(each["metadata"]["name"], "1e30", "10Ei") for each in many] if reported else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = World(node(), node("m"), metric("m", ("1", "1Gi"), at=NOW), args=EVERYTHING)
        world.put(metric(of_node=("1", "1Gi"), at=NOW, pods=pods))
        for each in many:
            world.put(each)
        assert world.score(pod("new", {"cpu": "1"})) == 0
        assert world.refusals(pod("new", {"cpu": "1"})) == {"n": CPU, "m": None}
        world.assume(pod("last", limits={"cpu": "1e30", "memory": "10Ei"}), "n")
        world.put(metric(of_node=("1", "1Gi"), at=NOW + 1, pods=pods))
        for each in many:
            world.remove(each)
        assert world.refusals(pod("new", {"cpu": "1"}))["m"] is None


def test_many_absurd_pods_placed_one_after_the_other():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = World(node(), metric(of_node=("1", "1Gi"), at=NOW))
        for i in range(2000):
            world.assume(pod(f"p{i}", limits={"cpu": "1e30", "memory": "10Ei"}))
        assert world.refusal(pod("new")) == CPU
        assert world.score(pod("new")) == 0


BAD_ANNOTATIONS = [
    *("", "{", "[]", "7", '"x"', "null", "true", "[" * 100_000, '{"usageThresholds": 5}'),
    *('{"usageThresholds": {"cpu": "80"}}', '{"usageThresholds": {"cpu": 80.5}}', '{"usageThresholds": {"cpu": null}}'),
    *('{"usageThresholds": []}', '{"aggregatedUsage": {"usageAggregatedDuration": "x", "usageThresholds": {"cpu": 1},'
      ' "usageAggregationType": "p95"}}', '{"usageThresholds": {"cpu": 1' + "0" * 400 + "}}"),
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_ANNOTATIONS, ids=range(len(BAD_ANNOTATIONS)))
def test_a_malformed_annotation_of_thresholds_leaves_the_arguments(text):
    world = World(node(thresholds=text), node("m"), *(metric(name, ("70", "1Gi"), at=NOW) for name in "nm"))
    assert world.refusals(pod("p")) == {"n": CPU, "m": CPU}
    assert USAGE_THRESHOLDS in world.loads.of_node("n").problem or ": null}" in text
    world.put(node(thresholds={"usageThresholds": {"cpu": 80}}))
    assert world.refusals(pod("p")) == {"n": None, "m": CPU}
    assert world.loads.of_node("n").problem == ""


def test_an_absent_section_may_be_null():
    section = '{"usageThresholds": {"cpu": 80}, "prodUsageThresholds": null, "aggregatedUsage": null}'
    world = World(node(thresholds=section), metric(of_node=("70", "1Gi"), at=NOW))
    assert (world.refusal(pod("p")), world.loads.of_node("n").problem) == (None, "")


def test_absurd_thresholds():
    for percent, refusal in ((-1, None), (2**62, None), (10**15, None), (1, CPU)):
        world = World(node(thresholds={"usageThresholds": {"cpu": percent}}), metric(of_node=("70", "1Gi"), at=NOW))
        assert world.refusal(pod("p")) == refusal


@pytest.mark.parametrize("raw", ["{", "[]", "7", '{"cpu": "x"}', '{"cpu": {}}', '{"cpu": null, "x": "y"}', "[" * 9999])
def test_a_malformed_raw_allocatable_leaves_what_the_node_says(raw):
    world = World(node(cpu="42", raw=raw), metric(of_node=("20", "1Gi"), at=NOW))
    assert world.refusal(pod("p")) is None
    assert world.readings()["n", 0].total[0] == 42_000
    assert "raw-allocatable" in world.loads.of_node("n").problem


BAD_FACTORS = ["", "{", "[]", "7", '{"cpu": "80"}', '{"cpu": 80.5}', '{"cpu": true}', '{"cpu": 1e400}', "[" * 9999]


@pytest.mark.parametrize("text", BAD_FACTORS, ids=range(len(BAD_FACTORS)))
def test_malformed_factors_of_a_pod_leave_those_of_the_arguments(text):
    world = World(args=EVERYTHING)
    assert world.estimate(pod("p", P16, annotations={SCALING_FACTORS: text})) == world.estimate(pod("q", P16))


def test_absurd_factors_and_limits():
    world = World(node(), metric(of_node=("1", "1Gi"), at=NOW), args=EVERYTHING)

    def estimate(factors, requests, limits=None):
        return world.estimate(pod("p", requests, limits, annotations={SCALING_FACTORS: json.dumps(factors)}))

    assert estimate({"cpu": 0}, {"cpu": "4"})["cpu"] == 0
    assert estimate({"cpu": 0}, {})["cpu"] == 250
    assert estimate({"cpu": -50}, {"cpu": "4"})["cpu"] == 0
    assert estimate({"cpu": 2**62}, {"cpu": "4"}, {"cpu": "4"})["cpu"] == 4000
    assert estimate({"cpu": 2**62}, {"cpu": "4"})["cpu"] > 10**9
    assert estimate({"example.com/unknown": 5}, {"cpu": "4"})["cpu"] == 3400
    assert world.estimate(pod("p", limits={"memory": "10Ei"}))["memory"] > GIBI
    assert world.estimate(pod("p", {"cpu": "1"}, {"memory": "much"})) is None
    for thing in (
        pod("p", limits={"memory": "much"}),
        pod("p", P16, annotations={SCALING_FACTORS: f'{{"cpu":{2**62}}}'}),
    ):
        world.assume(thing)
        list(answers(world))
        world.remove(thing)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1" * 400, "9" * 19, "1_000", " 7", "٣", "0"])
def test_malformed_seconds_of_a_pod(text):
    annotations = {AFTER_SCHEDULED: text, AFTER_INITIALIZED: text}
    world = World(node(), args=EVERYTHING)
    world.put(metric(of_node=("10", "1Gi"), at=NOW, pods=[measured("p", "1", "1Gi")]))
    world.put(p16("p", on="n", placed=NOW - 500, initialized=NOW - 400, annotations=annotations))
    assert len(list(answers(world))) == 4


def test_hostile_reports_on_the_real_scheduler(caplog):
    """Past the validation of the API server: pods go on, the other node is used, nothing is logged as a failure."""

    async def scenario():
        reports = [report for _, report in hostile()]
        async with cluster(node("n"), node("m"), metric("m", ("10", "1Gi"), at=WALL_EPOCH + 500)) as (embedded, _):
            placed = 0
            first = True
            for number, report in enumerate(reports[::3]):
                if not first:
                    delete_metric(embedded)
                first = False
                embedded.insert(report)
                if number % 10 == 0:
                    embedded.insert(pod(f"p{number}"))
                    await asyncio.sleep(1)
                    placed += where(embedded, f"p{number}") is not None
                else:
                    await asyncio.sleep(0.1)
            return placed, len(range(0, len(reports[::3]), 10))

    def delete_metric(embedded):
        resource = embedded.resource("NodeMetric", "slo.koordinator.sh/v1alpha1")
        embedded.registry.delete(resource, None, "n", grace_period_seconds=0)

    with caplog.at_level(logging.WARNING):
        placed, created = run(scenario())
    assert placed == created
    assert not [record for record in caplog.records if record.exc_info]
