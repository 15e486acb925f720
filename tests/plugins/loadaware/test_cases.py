"""The acceptance cases of the loadaware spec, section 7, by number."""

import json
import re

import pytest

from koordsched import config
from koordsched.plugins import CATALOG
from koordsched.plugins.loadaware.args import advise
from koordsched.plugins.loadaware.contribution import deadline
from tests.plugins.loadaware.objects import GIBI, P16, container, measured, metric, node, p16, pod
from tests.plugins.loadaware.world import NOW, World, configuration

CPU, MEMORY = "node(s) cpu usage exceed threshold", "node(s) memory usage exceed threshold"
CPU_AGGREGATED = "node(s) cpu aggregated usage exceed threshold"
EXPIRED = "node(s) nodeMetric expired"
EMPTY = pod("empty")
FRESH = NOW - 5


def used(cpu, memory, args=None, **more):
    """A world of one node that uses so much."""
    return World(node(), metric(of_node=(cpu, memory), at=FRESH, **more), args=args)


def test_loadaware_case_01():
    assert used("60", "256Gi").refusal(EMPTY) is None


def test_loadaware_case_02():
    assert used("70", "256Gi").refusal(EMPTY) == CPU


def test_loadaware_case_03():
    assert used("30", "500Gi").refusal(EMPTY) == MEMORY


@pytest.mark.parametrize(("cpu", "expected"), [("62629m", None), ("62630m", CPU)])
def test_loadaware_case_04(cpu, expected):
    assert used(cpu, "1Gi").refusal(EMPTY) == expected


def test_loadaware_case_05():
    world = World(node())
    assert (world.refusal(EMPTY), world.score(EMPTY)) == (None, 0)
    without_time = metric(of_node=("1", "1Gi"), at=None)
    world = World(node(), without_time)
    assert (world.refusal(EMPTY), world.score(EMPTY)) == (EXPIRED, 0)
    world = World(node(), without_time, args={"enableScheduleWhenNodeMetricsExpired": True})
    assert (world.refusal(EMPTY), world.score(EMPTY)) == (None, 0)


def test_loadaware_case_06():
    old = metric(of_node=("1", "1Gi"), at=NOW - 180)
    assert World(node(), old).refusal(EMPTY) == EXPIRED
    assert World(node(), metric(of_node=("1", "1Gi"), at=NOW - 179)).refusal(EMPTY) is None
    assert World(node(), old, args={"usageThresholds": {"cpu": 0, "memory": 0}}).refusal(EMPTY) is None


def test_loadaware_case_07():
    assert used("70", "1Gi").refusal(pod("d", owner="DaemonSet")) is None
    assert used("70", "1Gi").refusal(pod("d", owner="ReplicaSet")) == CPU


def test_loadaware_case_08():
    section = {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m0s"}
    report = metric(of_node=("30", "1Gi"), at=FRESH, aggregated={"5m0s": {"p95": ("70", "1Gi")}})
    assert World(node(), report, args={"aggregated": section}).refusal(EMPTY) == CPU_AGGREGATED
    assert World(node(thresholds={"aggregatedUsage": section}), report).refusal(EMPTY) == CPU_AGGREGATED
    assert World(node(), report).refusal(EMPTY) is None


def test_loadaware_case_09():
    annotated = node(thresholds={"usageThresholds": {"memory": 60}})
    assert World(annotated, metric(of_node=("30", "316Gi"), at=FRESH)).refusal(EMPTY) == MEMORY
    assert World(annotated, metric(of_node=("90", "100Gi"), at=FRESH)).refusal(EMPTY) is None


def test_loadaware_case_10():
    world, asked = World(), {"cpu": "4", "memory": "8Gi"}
    assert world.estimate(pod("p", asked, asked)) == {"cpu": 3400, "memory": 6012954214}
    assert world.estimate(pod("p", {"cpu": "4"}, {"cpu": "8"}))["cpu"] == 6800
    assert world.estimate(EMPTY) == {"cpu": 250, "memory": 209715200}
    world = World(args={"estimatedScalingFactors": {"cpu": 80, "memory": 80}})
    assert world.estimate(pod("p", asked)) == {"cpu": 3200, "memory": 6871947674}
    world = World(args={"allowCustomizeEstimation": True})
    generous = {"annotations": {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 110}'}}
    assert world.estimate(pod("p", {"cpu": "4"}, {"cpu": "4"}, **generous))["cpu"] == 4000
    assert world.estimate(pod("p", {"cpu": "4"}, **generous))["cpu"] == 4400


def test_loadaware_case_11():
    world = World()
    batch = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"}
    assert world.estimate(pod("p", batch, priority=5000)) == {"cpu": 3400, "memory": 6012954214}
    assert world.estimate(pod("p", {"kubernetes.io/mid-cpu": "12000"}, priority=7000))["cpu"] == 10200
    assert world.estimate(pod("p", priority=7000)) == {"cpu": 0, "memory": 0}
    assert world.estimate(pod("p", {"cpu": "4"}, priority=3500)) == {"cpu": 0, "memory": 0}


def test_loadaware_case_12():
    containers = [container({"cpu": "2"}, {"cpu": "3"}, "a"), container({"cpu": "2"}, name="b")]
    assert World().estimate(pod("p", containers=containers))["cpu"] == 3000


def test_loadaware_case_13():
    idle = used("0", "0")
    assert idle.score(p16()) == 90
    assert used("32", "10Gi").score(p16()) == 72
    batch = {"kubernetes.io/batch-cpu": "16000", "kubernetes.io/batch-memory": "32Gi"}
    assert idle.score(pod("batch", batch, batch, priority=5500)) == 90
    assert idle.score(pod("p", {"cpu": "8", "memory": "16Gi"}, P16)) == 90
    assert idle.score(EMPTY) == 99


def test_loadaware_case_14():
    world = used("32", "10Gi")
    world.put(p16("other", on="n", placed=NOW - 10))
    assert world.score(p16()) == 63
    aggregated = {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m0s"}
    for args, expected in (({"aggregated": aggregated}, 81), ({}, 44)):
        world = used("50", "200Gi", args, pods=[measured("other", "1", "1Gi")])
        world.put(p16("other", on="n", placed=NOW - 600))
        assert world.score(p16()) == expected


def test_loadaware_case_15():
    periods = {"5m0s": {"p95": ("32", "10Gi"), "p99": ("50", "70Gi")}}
    for kind, expected in (("p95", 72), ("p99", 57)):
        args = {"aggregated": {"scoreAggregationType": kind, "scoreAggregatedDuration": "5m0s"}}
        assert used("0", "0", args, aggregated=periods).score(p16()) == expected


def test_loadaware_case_16():
    assert used("0", "0", {"dominantResourceWeight": 10}).score(p16()) == 85
    absent = {"dominantResourceWeight": 10, "supportedResources": ["example.com/x"]}
    assert used("0", "0", absent).score(p16()) == 0


def test_loadaware_case_17():
    report = metric(of_node=("20", "1Gi"), at=FRESH)
    assert World(node(cpu="42", raw={"cpu": "28"}), report).refusal(EMPTY) == CPU
    assert World(node(cpu="42"), report).refusal(EMPTY) is None


def test_loadaware_case_18():
    def report(name, cpu, memory, priority):
        return measured(name, cpu, memory, priority=f"koord-{priority}")

    reports = [
        report("prod-1", "1", "6Gi", "prod"),
        report("prod-2", "4", "2Gi", "prod"),
        report("prod-3", "3", "6Gi", "mid"),
        report("mid-1", "1", "6Gi", "mid"),
        report("mid-2", "4", "2Gi", "mid"),
        report("mid-3", "3", "6Gi", "prod"),
    ]
    world = World(
        node(),
        metric(of_node=("20", "40Gi"), at=None, pods=reports),
        args={"estimatedScalingFactors": {"cpu": 50, "memory": 50}},
    )
    mid = {"kubernetes.io/mid-cpu": "4000", "kubernetes.io/mid-memory": "8Gi"}
    pods = [pod(f"prod-{i}", {"cpu": "4", "memory": "8Gi"}, on="n", placed=NOW - 600, priority=9500) for i in (1, 2, 3)]
    pods += [pod(f"mid-{i}", mid, on="n", placed=NOW - 600, priority=7500) for i in (1, 2, 3)]
    for each in pods:
        world.put(each)
    assert world.sums() == {
        "prod_usage": {"cpu": 5000, "memory": 8 * GIBI},
        "node_delta": {"cpu": 2000, "memory": 4 * GIBI},
        "prod_delta": {"cpu": 3000, "memory": 6 * GIBI},
        "estimated": {"cpu": 12000, "memory": 24 * GIBI},
    }
    for each in pods:
        world.remove(each)
    assert not any(world.sums().values())


def test_loadaware_case_19():
    def until(args, thing):
        world = World(node(), args=args)
        own = world.pod(thing)
        return deadline(world.loads.estimator.of(own.shape), *world.loads.times_of(own))

    both = {"estimatedSecondsAfterPodScheduled": 180, "estimatedSecondsAfterInitialized": 10}
    running = pod("p", on="n", placed=NOW - 60, initialized=NOW - 30)
    assert until(both, running) == NOW - 20
    assert until({**both, "estimatedSecondsAfterInitialized": 1}, running) == NOW - 29
    assert until({"estimatedSecondsAfterPodScheduled": 180}, running) == NOW + 120
    starting = pod("p", on="n", placed=NOW - 60, initialized=NOW - 30)
    starting["status"]["conditions"][1]["status"] = "False"
    assert until({"estimatedSecondsAfterInitialized": 10}, starting) == 0


def _snake(name):
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


@pytest.mark.parametrize(("seconds", "counts"), [(100, False), (101, True)])
def test_loadaware_case_19_an_estimate_is_in_force_until_the_time_of_the_report(seconds, counts):
    world = World(
        node(),
        metric(of_node=("1", "1Gi"), at=NOW, pods=[measured("p", "1", "1Gi")]),
        running := pod("p", {"cpu": "4", "memory": "4Gi"}, on="n", placed=NOW - 100),
        args={"estimatedSecondsAfterPodScheduled": seconds},
    )
    found = world.loads.contribution_of(world.loads.of_node("n"), world.pod(running))
    assert (found.node_delta is not None) is counts


def test_nodes_that_are_gone_are_forgotten_with_their_reports():
    world = World(node(), node("other"), report := metric("other", of_node=("1", "1Gi"), at=NOW))
    world.cluster.remove_node("n")
    assert [load.name for load in world.loads] == ["other"]
    world.cluster.remove_node("other")
    assert [load.name for load in world.loads] == ["other"]
    world.remove(report)
    assert list(world.loads) == []


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"resourceWeights": {"example.com/gpu": 1}}, 'estimatedScalingFactors: Not found: "example.com/gpu"'),
        ({"dominantResourceWeight": 101}, "dominantResourceWeight should be less than 100"),
        ({"dominantResourceWeight": -1}, "dominantResourceWeight should not be a negative value"),
        ({"dominantResourceWeight": 100}, None),
        ({"aggregated": {"usageAggregationType": "p80"}}, 'Unsupported value: "p80"'),
        ({"aggregated": {"scoreAggregatedDuration": "-1s"}}, "duration must be >= 0"),
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpiredSeconds should be a positive value"),
        ({"usageThresholds": {"cpu": 101}}, "resource Threshold of cpu should be less than 100, got 101"),
        ({"usageThresholds": {"cpu": -1}}, "resource Threshold of cpu should be a positive value, got -1"),
        ({"usageThresholds": {"cpu": 100}}, None),
        ({"resourceWeights": {"cpu": 0}}, "resource Weight of cpu should be a positive value, got 0"),
        ({"estimatedScalingFactors": {"cpu": 101}}, "estimated resource ScalingFactor of cpu should be less than 100"),
        ({"prodUsageThresholds": {"cpu": 400}}, None),
    ],
)
def test_loadaware_case_20(args, complaint):
    def build():
        document = json.dumps(configuration(args))
        return config.resolve(config.load(document, catalog=CATALOG), catalog=CATALOG)

    if complaint is None:
        given = build().profiles[0].args["LoadAwareScheduling"]
        assert all(getattr(given, _snake(key)) == value for key, value in args.items())
        return
    with pytest.raises(config.ConfigError) as raised:
        build()
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("aggregated", "said"),
    [
        (None, []),
        ({}, []),
        ({"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}, []),
        ({"usageThresholds": {"cpu": 60}}, ["usageThresholds has no effect without aggregated.usageAggregationType"]),
        ({"usageAggregationType": "p95"}, ["usageAggregationType has no effect without aggregated.usageThresholds"]),
    ],
)
def test_what_upstream_never_uses_is_told(aggregated, said):
    document = json.dumps(configuration({} if aggregated is None else {"aggregated": aggregated}))
    given = config.resolve(config.load(document, catalog=CATALOG), catalog=CATALOG).profiles[0].args
    assert list(advise(given["LoadAwareScheduling"])) == [f"aggregated.{text}" for text in said]
