"""Load reports as clients of the API see them."""

import pytest

from koordsched.fakecluster.hollow import HollowNodes, HollowOptions
from tests.fakecluster.apiclient import Api
from tests.fakecluster.loads import DEFINITION, pod

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def api():
    made = Api()
    HollowNodes(made.registry, HollowOptions(count=2)).start()
    assert made.get(METRICS)[0] == 404
    assert made.post(DEFINITIONS, DEFINITION)[0] == 201
    made.timers.advance(1)
    return made


async def test_reports_are_watched(api):
    status, listed = api.get(METRICS)
    assert (status, [each["metadata"]["name"] for each in listed["items"]]) == (200, ["node-0", "node-1"])
    watch = api.watch(f"{METRICS}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}")
    created = pod("p", {"cpu": "1500m"}, requests={"memory": "1Gi"})
    assert api.post("/api/v1/namespaces/default/pods", created)[0] == 201
    api.timers.advance(75)
    events = {name: metric for kind, name, metric in await watch.take(2) if kind == "MODIFIED"}
    assert set(events) == {"node-0", "node-1"}
    assert events["node-1"]["status"]["podsMetric"] == []
    assert events["node-0"]["status"]["podsMetric"] == [
        {
            "namespace": "default",
            "name": "p",
            "podUsage": {"resources": {"cpu": "1500m", "memory": "858993459"}},
            "priority": "koord-prod",
            "qos": "LS",
        }
    ]
    # A report is no change of the spec.
    assert events["node-0"]["metadata"]["generation"] == 1
    assert api.get(f"{METRICS}/node-0/status")[1]["status"] == events["node-0"]["status"]
    await watch.close()


async def test_the_policy_is_patched_and_the_status_is_the_nodes(api):
    policy = {
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}},
        "status": {"updateTime": "2020-01-01T00:00:00Z"},
    }
    status, metric = api.merge(f"{METRICS}/node-0", policy)
    assert (status, metric["metadata"]["generation"], "status" in metric) == (200, 2, False)
    api.timers.advance(30)
    first = api.get(f"{METRICS}/node-0")[1]["status"]["updateTime"]
    api.timers.advance(30)
    assert api.get(f"{METRICS}/node-0")[1]["status"]["updateTime"] > first
    assert api.merge(f"{METRICS}/node-0", {"spec": {"metricCollectPolicy": {"nodeMemoryCollectPolicy": ""}}})[0] == 422


def test_columns(api):
    api.timers.advance(100)
    accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = api.get(METRICS, headers=accept)[1]
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "CPU", "Memory", "Updated", "Interval", "Age"]
    name, cpu, memory, updated, interval, _ = table["rows"][0]["cells"]
    assert (name, cpu, memory, interval) == ("node-0", "0", "0", 60)
    assert updated.endswith("s")
