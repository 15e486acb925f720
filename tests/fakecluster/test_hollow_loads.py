"""Load reports of hollow nodes: what they say, when, and how long."""

import itertools
import json
from collections import Counter
from random import Random

import pytest

from koordsched.api import quantity
from koordsched.fakecluster.clock import parse_rfc3339
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow import Share
from tests.fakecluster.loads import DEFINITION, Diary, LoadCluster, pod
from tests.fakecluster.timeline import workload
from tests.virtualtime import WALL_EPOCH

FAIL = "koordsched.io/fail"
USAGE = "koordsched.io/usage"


def template(cpu="4", **fields):
    capacity = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {"templates": [{"nodeName": "node-${index}", "capacity": capacity, **fields}]}


def amounts(resources):
    return quantity.milli_value(resources["cpu"]), quantity.value(resources["memory"])


# -- what is reported


def random_curve(rng, unit):
    kind = rng.randrange(3)
    if kind == 0:
        return f"{rng.randrange(2000)}{unit}"
    if kind == 1:
        return {
            "mean": f"{rng.randrange(1500)}{unit}",
            "amplitude": f"{rng.randrange(1500)}{unit}",
            "period": rng.choice(["90s", "7m", "1h"]),
            "phase": f"{rng.randrange(600)}s",
        }
    return {"from": f"{rng.randrange(900)}{unit}", "to": f"{rng.randrange(900)}{unit}", "after": f"{rng.randrange(9)}m"}


def random_pod(rng, name):
    usage = {
        key: random_curve(rng, unit) for key, unit in (("cpu", "m"), ("memory", "Mi")) if rng.random() < 0.7
    } or None
    limits = {"cpu": "1", "memory": "1Gi"} if rng.random() < 0.3 else None
    annotations = {"koordsched.io/run-duration": f"{rng.randrange(20, 900)}s"} if rng.random() < 0.5 else {}
    requests = {"cpu": f"{rng.randrange(500)}m", "memory": f"{rng.randrange(900)}Mi"}
    return pod(
        name,
        usage,
        requests=requests,
        limits=limits,
        annotations=annotations,
        restartPolicy=rng.choice(["Always", "OnFailure", "Never"]),
    )


@pytest.mark.parametrize("seed, interval, window", [(0, 60, 300), (1, 60, 300), (2, 45, 600), (3, 240, 90)])
def test_reports_are_as_worked_out_naively(seed, interval, window):
    rng = Random(seed)
    system = {"cpu": "300m", "memory": "1Gi"}
    cluster = LoadCluster(template=template("3", usage={"system": system}), seed=seed)
    begin, diary = cluster.time.now(), Diary(cluster)
    cluster.beside = lambda now: diary.report(begin, now, window, capacity=3000, system=(300, 1 << 30))
    cluster.run(1)
    policy = {"reportIntervalSeconds": interval, "aggregateDurationSeconds": window}
    cluster.patch("nodemetrics", "node-0", {"spec": {"metricCollectPolicy": policy}})
    pods = []
    for number in range(60):
        if rng.random() < 0.5:
            pods.append(f"p{number}")
            cluster.create(random_pod(rng, pods[-1]))
        if pods and rng.random() < 0.3:
            cluster.delete("pods", pods.pop(rng.randrange(len(pods))))
        cluster.run(rng.uniform(1, 90))
    assert len(cluster.times()) > 2000 / interval
    for at, status, (node, aggregated, by_pod) in cluster.reports["node-0"]:
        measured = status["nodeMetric"]
        assert parse_rfc3339(status["updateTime"]) == int(at)
        assert amounts(measured["nodeUsage"]["resources"]) == pytest.approx(node, abs=0.51)
        assert measured["systemUsage"]["resources"] == system
        assert [each["duration"] for each in measured["aggregatedNodeUsages"]] == ["5m0s", "10m0s", "30m0s"]
        for reported, expected in zip(measured["aggregatedNodeUsages"], aggregated, strict=True):
            assert reported["usage"].keys() == expected.keys()
            for name, pair in expected.items():
                if pair is None:
                    assert reported["usage"][name] == {}
                else:
                    assert amounts(reported["usage"][name]["resources"]) == pytest.approx(pair, abs=0.51)
        reported = {each["name"]: amounts(each["podUsage"]["resources"]) for each in status["podsMetric"]}
        assert reported.keys() == by_pod.keys()
        for name, pair in by_pod.items():
            assert reported[name] == pytest.approx(pair, abs=0.51)


def test_aggregates_are_empty_while_samples_span_less_than_half_of_the_duration():
    cluster = LoadCluster(template=template(usage={"system": {"cpu": "1"}}))
    cluster.run(2400)
    filled = {"5m0s": set(), "10m0s": set(), "30m0s": set()}
    for at, status, _ in cluster.reports["node-0"]:
        for kind in ("aggregatedNodeUsages", "aggregatedSystemUsages"):
            for each in status["nodeMetric"][kind]:
                full = {"resources": {"cpu": "1", "memory": "0"}}
                assert set(each["usage"]) == {"avg", "p50", "p90", "p95", "p99"}
                assert all(value in ({}, full) for value in each["usage"].values())
                if each["usage"]["p95"] == full:
                    filled[each["duration"]].add(at - cluster.times()[0])
    # The first report comes 52 s after the start.
    assert [min(times) for times in filled.values()] == [120, 300, 900]


def test_a_node_with_a_history_reports_at_once_and_goes_on_at_its_time():
    cpu = {"mean": "2", "amplitude": "1", "period": "5m"}
    usage = {"system": {"cpu": cpu}, "reportInterval": "30s"}
    cluster = LoadCluster(nodes=20, template=template(usage={**usage, "history": "10m"}))
    cluster.run(1)
    assert all(len(cluster.times(name)) == 1 for name in map("node-{:02}".format, range(20)))
    first = cluster.last("node-00")["nodeMetric"]
    assert cluster.node_cpu("node-00") == 2000
    by_duration = {each["duration"]: each["usage"]["p99"] for each in first["aggregatedNodeUsages"]}
    assert [bool(by_duration[duration]) for duration in ("5m0s", "10m0s", "30m0s")] == [True, True, False]
    cluster.run(46)
    seconds = Counter(int(at) for reports in cluster.reports.values() for at, *_ in reports[1:2])
    assert (sum(seconds.values()), max(seconds.values())) == (20, 1)


def test_a_history_holds_what_pods_used():
    cluster = LoadCluster(defined=False, template=template(usage={"system": {"cpu": "1"}, "history": "10m"}))
    cluster.create(pod("a", {"cpu": "2"}))
    cluster.run(60)
    cluster.define()
    cluster.run(1)
    assert cluster.pods_cpu() == {"a": 2000}
    assert 1000 < cluster.node_cpu() < 2000


def test_a_node_that_has_failed_does_not_report_its_history():
    cluster = LoadCluster(template=template(usage={"history": "10m"}, annotations={FAIL: "true"}))
    cluster.run(100)
    assert cluster.times() == []


def test_a_node_uses_no_more_cpu_than_it_has():
    cluster = LoadCluster(template=template("2", usage={"system": {"cpu": "500m"}}))
    for name in ("a", "b"):
        cluster.create(pod(name, {"cpu": "1500m", "memory": "80Gi"}))
    cluster.run(400)
    assert cluster.node_cpu() == 2000
    assert cluster.pods_cpu() == {"a": 1500, "b": 1500}
    cluster.patch("nodes", "node-0", {"status": {"capacity": {"cpu": "3"}}}, subresource="status")
    cluster.run(400)
    assert cluster.node_cpu() == 3000


CLASSES = [
    # labels, request, limit, priority class of the pod -> priority, QoS
    ({}, {"cpu": "1"}, {}, None, "koord-prod", "LS"),
    ({}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, None, "koord-prod", "LSR"),
    ({}, {}, {}, None, "koord-batch", "BE"),
    ({}, {}, {}, 9500, "koord-prod", "BE"),
    ({}, {"cpu": "1"}, {}, 7999, "koord-mid", "LS"),
    ({}, {"cpu": "1"}, {}, 5000, "koord-batch", "LS"),
    ({}, {"cpu": "1"}, {}, 3999, "koord-free", "LS"),
    ({}, {"cpu": "1"}, {}, 4000, "koord-prod", "LS"),
    ({"koordinator.sh/qosClass": "BE"}, {"cpu": "1"}, {}, None, "koord-batch", "BE"),
    ({"koordinator.sh/qosClass": "LSE"}, {}, {}, None, "koord-prod", "LSE"),
    ({"koordinator.sh/qosClass": "none"}, {}, {}, None, "koord-batch", "BE"),
    ({"koordinator.sh/priority-class": "koord-free"}, {"cpu": "1"}, {}, 9500, "koord-free", "LS"),
    ({"koordinator.sh/priority-class": "high"}, {}, {}, 9500, "koord-batch", "BE"),
]


@pytest.mark.parametrize("labels, requests, limits, priority, expected, qos", CLASSES)
def test_classes_of_pods(labels, requests, limits, priority, expected, qos):
    cluster = LoadCluster()
    spec = {}
    if priority is not None:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        cluster.create({**kind, "metadata": {"name": "class"}, "value": priority})
        spec["priorityClassName"] = "class"
    cluster.create(pod("p", labels=labels, requests=requests, limits=limits, **spec))
    cluster.until_report()
    (metric,) = cluster.last()["podsMetric"]
    assert (metric["priority"], metric["qos"]) == (expected, qos)


def test_what_is_written_is_valid():
    cluster = LoadCluster(
        nodes=2, template=template(usage={"system": {"cpu": {"mean": 1, "amplitude": 2, "period": "5m"}}})
    )
    for number in range(9):
        cluster.create(pod(f"p{number}", {"cpu": f"{number}00m"}, node=f"node-{number % 2}"))
    cluster.run(2000)
    resource = cluster.resource("nodemetrics")
    for metric in cluster.list("nodemetrics"):
        strategy = cluster.registry.strategy(resource)
        assert strategy.validate(metric) == []
        assert strategy.prune(resource, json.loads(json.dumps(metric))) == []
        again = cluster.registry.update(resource, metric, "status")
        assert again["metadata"]["resourceVersion"] == metric["metadata"]["resourceVersion"]


NO_METRICS = [
    ({"spec": {"metricCollectPolicy": {"nodeMemoryCollectPolicy": "all"}}}, "Unsupported value"),
    ({"spec": {"metricCollectPolicy": {"reportIntervalSeconds": "60"}}}, "must be of type integer"),
    ({"spec": {"metricCollectPolicy": {"nodeAggregatePolicy": {"durations": [300]}}}}, "must be of type string"),
]


@pytest.mark.parametrize("patch, message", NO_METRICS)
def test_what_is_no_node_metric_is_refused(patch, message):
    cluster = LoadCluster()
    cluster.run(1)
    with pytest.raises(ApiStatusError, match=message):
        cluster.patch("nodemetrics", "node-0", patch)


def test_a_status_that_is_none_is_refused():
    cluster = LoadCluster()
    cluster.run(1)
    usage = {"nodeUsage": {"resources": {"cpu": "much"}}}
    with pytest.raises(ApiStatusError, match="should match"):
        cluster.patch("nodemetrics", "node-0", {"status": {"nodeMetric": usage}}, subresource="status")
    unhealthy = {"nodeUsage": {"devices": [{"type": "gpu"}]}}
    cluster.patch("nodemetrics", "node-0", {"status": {"nodeMetric": unhealthy}}, subresource="status")
    assert cluster.metric()["status"]["nodeMetric"]["nodeUsage"]["devices"] == [{"type": "gpu", "health": False}]
    extended = [{"name": "p", "extensions": {"example.com/anything": {"a": [1]}}, "unknown": 1}]
    cluster.patch("nodemetrics", "node-0", {"status": {"podsMetric": extended}}, subresource="status")
    assert cluster.metric()["status"]["podsMetric"][0]["extensions"] == {"example.com/anything": {"a": [1]}}


# -- when


def test_a_failed_node_stops_reporting_until_it_recovers():
    cluster = LoadCluster(nodes=2)
    cluster.create(pod("p", {"cpu": "1"}, tolerations=[{"operator": "Exists"}]))
    cluster.run(400)
    cluster.annotate("nodes", "node-0", {FAIL: "true"})
    before = cluster.times()
    cluster.run(1000)
    assert cluster.times() == before
    age = cluster.time.now() - parse_rfc3339(cluster.metric()["status"]["updateTime"])
    assert age >= 1000
    assert len(cluster.times("node-1")) > len(before) + 10
    cluster.annotate("nodes", "node-0", {FAIL: None})
    cluster.run(90)
    assert cluster.times()[-1] > cluster.time.now() - 61
    # The silence was not measured: the samples before and after it are few.
    assert cluster.last()["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["avg"] == {}
    assert cluster.pods_cpu() == {"p": 1000}


def test_a_node_that_is_not_ready_reports():
    cluster = LoadCluster()
    cluster.annotate("nodes", "node-0", {FAIL: "not-ready"})
    cluster.run(1000)
    assert len(cluster.times()) > 14


def test_reports_come_at_the_interval_of_the_policy():
    cluster = LoadCluster(nodes=3)
    cluster.run(1000)
    for node in ("node-0", "node-1", "node-2"):
        times = cluster.times(node)
        assert len(times) in (15, 16, 17)
        # Late by a tick of the timers at most, and not later and later.
        assert times == pytest.approx([times[0] + 60 * number for number in range(len(times))], abs=0.1)


INTERVALS = [(30, 30), (45, 45), (600, 600), (5, 30), (0, 30), (-7, 30), (10**18, 86400), (None, 60)]


@pytest.mark.parametrize("stated, expected", INTERVALS)
def test_intervals_change_at_once(stated, expected):
    cluster = LoadCluster()
    cluster.run(1)
    cluster.patch("nodemetrics", "node-0", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7200}}})
    cluster.run(100)
    assert cluster.times() == []
    cluster.patch("nodemetrics", "node-0", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": stated}}})
    changed = cluster.time.now()
    cluster.run(3 * expected)
    times = cluster.times()
    assert len(times) in (2, 3)
    assert times[0] - changed <= expected
    assert times[1] - times[0] == pytest.approx(expected, abs=0.1)


POLICIES = [
    # metricCollectPolicy -> the average of a CPU usage that went from 1 to 3 five minutes ago, durations reported
    ({}, 3000, ["5m0s", "10m0s", "30m0s"]),
    ({"aggregateDurationSeconds": 600}, 2000, ["5m0s", "10m0s", "30m0s"]),
    ({"aggregateDurationSeconds": 1}, 3000, ["5m0s", "10m0s", "30m0s"]),
    ({"aggregateDurationSeconds": -1}, 3000, ["5m0s", "10m0s", "30m0s"]),
    ({"nodeAggregatePolicy": {"durations": ["1m", "2m30s", "later", "0s", "-5m", "1m"]}}, 3000, ["1m", "2m30s"]),
    ({"nodeAggregatePolicy": {"durations": []}}, 3000, []),
    ({"nodeAggregatePolicy": {"durations": ["9000h"]}}, 3000, ["9000h"]),
    ({"nodeAggregatePolicy": {}}, 3000, ["5m0s", "10m0s", "30m0s"]),
    (None, 3000, ["5m0s", "10m0s", "30m0s"]),
]


@pytest.mark.parametrize("policy, cpu, durations", POLICIES)
def test_policies(policy, cpu, durations):
    cluster = LoadCluster()
    cluster.run(1)
    resource = cluster.resource("nodemetrics")
    metric = cluster.metric()
    metric["spec"] = {} if policy is None else {"metricCollectPolicy": policy}
    cluster.registry.update(resource, metric)
    cluster.run(20)
    cluster.create(pod("p", {"cpu": {"from": "1", "to": "3", "after": "20m"}}))
    cluster.run(1500)
    cluster.until_report()
    exact = cluster.time.now()
    assert cluster.node_cpu() == pytest.approx(cpu, abs=150)
    aggregated = cluster.last()["nodeMetric"]["aggregatedNodeUsages"]
    assert [each["duration"] for each in aggregated] == durations
    if durations == ["9000h"]:
        assert aggregated[0]["usage"]["p99"] == {}
    assert exact - parse_rfc3339(cluster.last()["updateTime"]) < 1


def test_reports_of_many_nodes_are_spread():
    cluster = LoadCluster(nodes=300, defined=False)
    cluster.run(30)
    cluster.define()
    cluster.run(75)
    seconds = Counter()
    for node in list(cluster.reports):
        cluster.reports.pop(node)
    cluster.run(60)
    for reports in cluster.reports.values():
        seconds.update(int(at) for at, *_ in reports)
    assert sum(seconds.values()) == pytest.approx(300, abs=2)
    assert max(seconds.values()) <= 7
    # Changing the interval of all nodes at once does not bring them together.
    for name in list(cluster.reports):
        cluster.patch("nodemetrics", name, {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}}})
    cluster.reports.clear()
    cluster.run(60)
    seconds = Counter(int(at) for reports in cluster.reports.values() for at, *_ in reports)
    assert sum(seconds.values()) == pytest.approx(600, abs=4)
    assert max(seconds.values()) <= 12


# -- the NodeMetric


def test_there_is_a_metric_for_every_node_while_the_definition_is_there():
    cluster = LoadCluster(nodes=2, defined=False)
    cluster.run(100)
    cluster.define()
    cluster.run(1)
    policy = {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
    metrics = cluster.list("nodemetrics")
    assert [metric["metadata"]["name"] for metric in metrics] == ["node-0", "node-1"]
    assert [metric["spec"] for metric in metrics] == [{"metricCollectPolicy": policy}] * 2
    assert all("status" not in metric for metric in metrics)
    cluster.delete("nodes", "node-0")
    cluster.run(100)
    assert [metric["metadata"]["name"] for metric in cluster.list("nodemetrics")] == ["node-1"]
    cluster.delete("customresourcedefinitions", DEFINITION["metadata"]["name"])
    cluster.run(200)
    cluster.define()
    assert cluster.list("nodemetrics") == []
    cluster.run(1)
    assert [metric["metadata"]["name"] for metric in cluster.list("nodemetrics")] == ["node-1"]
    cluster.run(100)
    assert cluster.times("node-1")[-1] > cluster.time.now() - 61


def test_a_node_that_comes_back_has_a_new_metric():
    cluster = LoadCluster()
    cluster.run(100)
    before, node = cluster.metric(), cluster.get("nodes", "node-0")
    cluster.delete("nodes", "node-0")
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        del node["metadata"][key]
    cluster.create(node)
    cluster.run(1)
    assert cluster.metric()["metadata"]["uid"] != before["metadata"]["uid"]
    assert "status" not in cluster.metric()
    cluster.run(100)
    assert cluster.metric()["status"]["updateTime"] > before["status"]["updateTime"]


def test_a_metric_that_is_there_already_is_kept():
    cluster = LoadCluster(nodes=0)
    resource = cluster.resource("nodemetrics")
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 240, "aggregateDurationSeconds": 90}}
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    cluster.registry.create(resource, None, {**kind, "metadata": {"name": "mine"}, "spec": spec})
    cluster.registry.create(resource, None, {**kind, "metadata": {"name": "no-node"}, "spec": spec})
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "mine", "annotations": {"koordsched.io/hollow": "true"}},
        "status": {"capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"}},
    }
    cluster.create(node)
    cluster.create({**node, "metadata": {"name": "not-hollow"}})
    cluster.run(2000)
    assert cluster.metric("mine")["spec"] == spec
    times = cluster.times("mine")
    assert times[1] - times[0] == pytest.approx(240, abs=0.1)
    assert {metric["metadata"]["name"] for metric in cluster.list("nodemetrics")} == {"mine", "no-node"}
    assert "status" not in cluster.metric("no-node")
    cluster.delete("nodemetrics", "mine")
    cluster.run(200)
    assert cluster.times("mine")[-2:] == pytest.approx(
        [cluster.times("mine")[-1] - 60, cluster.times("mine")[-1]], abs=0.1
    )


def test_a_metric_of_a_snapshot_is_kept():
    cluster = LoadCluster(nodes=0)
    policy = {"reportIntervalSeconds": 30, "nodeAggregatePolicy": {"durations": ["1m"]}}
    metric = {"metadata": {"name": "mine"}, "spec": {"metricCollectPolicy": policy}}
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    cluster.registry.restore(cluster.resource("nodemetrics"), {**kind, **metric})
    node = {"name": "mine", "annotations": {"koordsched.io/hollow": "true", USAGE: '{"system": {"cpu": "1"}}'}}
    # A node without a capacity has no limit.
    cluster.registry.restore(cluster.resource("nodes"), {"apiVersion": "v1", "kind": "Node", "metadata": node})
    running = pod("p", {"cpu": {"from": "1", "to": "2", "after": "1h"}}, node="mine")
    running["metadata"] |= {"namespace": "default", "creationTimestamp": "2029-12-31T23:30:00Z"}
    running["status"] = {"phase": "Running"}
    cluster.registry.restore(cluster.resource("pods"), running)
    cluster.run(200)
    assert cluster.pods_cpu("mine") == {"p": 1000}
    assert cluster.node_cpu("mine") == 2000
    assert [each["duration"] for each in cluster.last("mine")["nodeMetric"]["aggregatedNodeUsages"]] == ["1m"]
    assert len(cluster.times("mine")) == 6
    cluster.run(2000)
    assert cluster.pods_cpu("mine") == {"p": 2000}


def test_a_deleted_metric_is_made_again():
    cluster = LoadCluster()
    cluster.run(1)
    cluster.patch("nodemetrics", "node-0", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 600}}})
    cluster.delete("nodemetrics", "node-0")
    cluster.run(1)
    assert cluster.metric()["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 60
    cluster.run(130)
    assert len(cluster.times()) == 2


def test_no_reports_are_made_if_they_are_not_wanted():
    cluster = LoadCluster(hollow={"load_reports": False})
    cluster.run(200)
    assert cluster.list("nodemetrics") == []


def test_after_stop_nothing_is_reported():
    cluster = LoadCluster()
    cluster.run(100)
    cluster.hollow.stop()
    count = len(cluster.times())
    cluster.run(300)
    assert len(cluster.times()) == count


# -- pods


def test_usage_begins_anew_with_the_containers():
    cluster = LoadCluster()
    usage = {"cpu": {"from": "100m", "to": "2", "after": "200s"}}
    cluster.create(pod("p", usage, annotations={"koordsched.io/run-duration": "400s", "koordsched.io/exit-code": "1"}))
    cluster.run(1)
    policy = {"metricCollectPolicy": {"reportIntervalSeconds": 30, "aggregateDurationSeconds": 60}}
    cluster.patch("nodemetrics", "node-0", {"spec": policy})
    cluster.run(2600)
    # 400 s, 10 s without, 400 s, 20 s without, 400 s, 40 s without, ...
    begins = [0, 410, 830, 1270]
    for begin, then in itertools.pairwise(begins):
        for first, last, cpu in ((begin + 65, begin + 195, 100), (begin + 270, begin + 395, 2000)):
            seen = [
                status["podsMetric"][0]["podUsage"]["resources"]["cpu"]
                for at, status, _ in cluster.reports["node-0"]
                if first <= at - WALL_EPOCH - 1 <= last
            ]
            assert len(seen) >= 3
            assert {quantity.milli_value(each) for each in seen} == {cpu}
        assert then - begin - 400 in (10, 20, 40)


def test_containers_that_wait_for_a_restart_use_nothing():
    cluster = LoadCluster()
    annotations = {"koordsched.io/run-duration": "30s", "koordsched.io/exit-code": "1"}
    cluster.create(pod("p", {"cpu": "1"}, annotations=annotations))
    # The back-offs double, up to five minutes.
    cluster.run(3000)
    assert 0 < cluster.node_cpu() < 200
    assert cluster.pods_cpu() == {"p": cluster.node_cpu()}


def test_a_pod_of_the_same_name_inherits_nothing():
    cluster = LoadCluster()
    cluster.create(pod("db-0", {"cpu": "3"}))
    cluster.run(600)
    assert cluster.pods_cpu() == {"db-0": 3000}
    cluster.delete("pods", "db-0", grace_period_seconds=0)
    cluster.create(pod("db-0", {"cpu": "100m"}))
    cluster.run(80)
    assert cluster.pods_cpu() == {"db-0": 100}
    assert 100 < cluster.node_cpu() < 3000
    cluster.run(400)
    assert cluster.node_cpu() == 100


def test_the_pods_of_workloads_are_reported():
    cluster = LoadCluster(nodes=2, bind=True)
    cluster.create(workload("Deployment", "web", 6))
    cluster.run(400)
    assert sorted(len(cluster.pods_cpu(f"node-{number}")) for number in range(2)) == [3, 3]
    assert cluster.node_cpu() == 3 * 60
    cluster.patch("deployments", "web", {"spec": {"replicas": 0}})
    cluster.run(400)
    assert cluster.pods_cpu() == {}
    assert cluster.node_cpu() == 0


def test_pods_that_ran_before_the_definition_came():
    cluster = LoadCluster(defined=False)
    cluster.create(pod("p", {"cpu": {"from": "100m", "to": "2", "after": "5m"}}))
    cluster.create(pod("done", {"cpu": "1"}, annotations={"koordsched.io/run-duration": "5s"}, restartPolicy="Never"))
    cluster.run(600)
    cluster.define()
    cluster.until_report()
    assert cluster.pods_cpu() == {"p": 2000}


def test_usage_may_be_changed_at_any_time():
    cluster = LoadCluster(template=template(usage={"share": {"cpu": 50, "memory": 50}}))
    cluster.create(pod("p", requests={"cpu": "1"}))
    cluster.run(600)
    assert cluster.node_cpu() == 500
    for annotations, expected in (({USAGE: '{"cpu": "3"}'}, 3000), ({USAGE: None}, 500)):
        cluster.annotate("pods", "p", annotations)
        cluster.run(150)
        assert 500 < cluster.node_cpu() < 3000
        assert cluster.pods_cpu()["p"] == pytest.approx(cluster.node_cpu(), abs=1)
        cluster.run(400)
        assert cluster.node_cpu() == expected
    cluster.annotate("nodes", "node-0", {USAGE: '{"share": {"cpu": 10}, "system": {"cpu": "1"}}'})
    cluster.run(400)
    assert (cluster.node_cpu(), cluster.pods_cpu()) == (1100, {"p": 100})


BROKEN = ["{", "[]", "3", '{"cpu": "much"}', '{"gpu": "1"}', '{"cpu": {"mean": 1}}', '{"trace": "web.txt"}', "x" * 9999]


def complaints(cluster):
    return [event["message"] for event in cluster.list("events") if event["reason"] == "InvalidAnnotation"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_annotation_is_said_once_and_ignored(text):
    cluster = LoadCluster()
    short = {"koordsched.io/run-duration": "100s"}
    cluster.create(pod("p", text, requests={"cpu": "1"}, annotations=short))
    cluster.run(1000)
    cluster.patch("pods", "p", {"metadata": {"labels": {"other": "change"}}})
    cluster.run(500)
    (message,) = complaints(cluster)
    assert message.startswith(f"{USAGE} is ignored: ")
    assert set(cluster.pods_cpu()) == {"p"}
    assert 0 < cluster.pods_cpu()["p"] <= 600


@pytest.mark.parametrize(
    "text", ["{", '{"system": {"cpu": "-1"}}', '{"share": {"cpu": 1001}}', '{"reportInterval": "1s"}']
)
def test_a_broken_annotation_of_a_node(text):
    cluster = LoadCluster(template=template(annotations={USAGE: text}))
    cluster.create(pod("p", requests={"cpu": "1"}))
    cluster.run(400)
    assert len(complaints(cluster)) == 1
    assert cluster.node_cpu() == 600


def test_templates_and_options():
    content = template(
        usage={"system": {"cpu": "250m", "memory": "1Gi"}, "share": {"cpu": 30}, "reportInterval": "90s"}
    )
    cluster = LoadCluster(template=content)
    cluster.create(pod("p", requests={"cpu": "1", "memory": "10Gi"}))
    cluster.run(500)
    assert cluster.metric()["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 90
    assert cluster.last()["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "250m", "memory": "1Gi"}}
    assert cluster.last()["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "550m", "memory": "9Gi"}}
    cluster = LoadCluster(hollow={"usage_share": Share(10, 50)})
    cluster.create(pod("p", requests={"cpu": "1", "memory": "10Gi"}))
    cluster.run(500)
    assert cluster.last()["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "100m", "memory": "5Gi"}}
