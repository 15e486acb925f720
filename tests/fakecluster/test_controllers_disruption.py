import pytest

from tests.fakecluster.timeline import Cluster, condition, workload


def budget(**spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


def figures(cluster):
    status = cluster.get("poddisruptionbudgets", "web")["status"]
    return tuple(status[name] for name in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"))


# replicas, budget -> expected, healthy, desired, allowed
BUDGETS = [
    (5, {"minAvailable": 3}, (5, 5, 3, 2)),
    (5, {"minAvailable": "50%"}, (5, 5, 3, 2)),
    (5, {"minAvailable": 9}, (5, 5, 9, 0)),
    (5, {"minAvailable": 0}, (5, 5, 0, 5)),
    (5, {"maxUnavailable": 1}, (5, 5, 4, 1)),
    (5, {"maxUnavailable": "30%"}, (5, 5, 3, 2)),
    (5, {"maxUnavailable": 0}, (5, 5, 5, 0)),
    (5, {"maxUnavailable": 7}, (5, 5, 0, 5)),
    (0, {"minAvailable": 0}, (0, 0, 0, 0)),
]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize("replicas, spec, expected", BUDGETS)
def test_figures(kind, replicas, spec, expected):
    cluster = Cluster()
    cluster.create(workload(kind, "web", replicas, **({"serviceName": "web"} if kind == "StatefulSet" else {})))
    cluster.create(budget(**spec))
    cluster.run(20)
    assert figures(cluster) == expected
    made = cluster.get("poddisruptionbudgets", "web")
    assert made["status"]["observedGeneration"] == made["metadata"]["generation"]
    reason = ("True", "SufficientPods") if expected[3] else ("False", "InsufficientPods")
    assert condition(made, "DisruptionAllowed") == reason


def test_the_status_follows_pods_and_scale():
    cluster = Cluster(bind=False)
    cluster.create(budget(maxUnavailable=1))
    cluster.create(workload("Deployment", "web", 3))
    cluster.run(2)
    assert figures(cluster) == (3, 0, 2, 0)
    for pod in cluster.pods():
        cluster.registry.bind("default", pod["metadata"]["name"], None, "node-0")
    cluster.run(5)
    assert figures(cluster) == (3, 3, 2, 1)
    cluster.patch("deployments", "web", {"spec": {"replicas": 4}})
    cluster.run(2)
    assert figures(cluster) == (4, 3, 3, 0)
    # A label change takes a pod out of the budget (and makes the workload replace it).
    cluster.patch("pods", cluster.pods()[0]["metadata"]["name"], {"metadata": {"labels": {"app": "x"}}})
    cluster.run(2)
    assert figures(cluster)[0] == 4
    assert len(cluster.pods("app=web")) == 4


def test_an_admitted_eviction_counts_until_its_pod_is_deleted_or_two_minutes_passed():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 3))
    cluster.create(budget(minAvailable=1))
    cluster.run(10)
    name = cluster.pods()[0]["metadata"]["name"]
    made = cluster.get("poddisruptionbudgets", "web")
    made["status"]["disruptedPods"] = {name: "2030-01-01T00:00:10Z"}
    cluster.registry.update(cluster.resource("poddisruptionbudgets"), made, "status")
    cluster.run(5)
    assert figures(cluster) == (3, 2, 1, 1)
    cluster.run(130)
    assert figures(cluster) == (3, 3, 1, 2)
    assert "disruptedPods" not in cluster.get("poddisruptionbudgets", "web")["status"]


def test_a_percentage_of_something_without_a_scale_allows_nothing():
    cluster = Cluster()
    cluster.create(workload("DaemonSet", "web"))
    cluster.create(budget(maxUnavailable="50%"))
    cluster.run(10)
    made = cluster.get("poddisruptionbudgets", "web")
    assert made["status"]["disruptionsAllowed"] == 0
    assert condition(made, "DisruptionAllowed") == ("False", "SyncFailed")


def test_changing_the_selector():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 2))
    cluster.create(workload("Deployment", "db", 4))
    cluster.create(budget(minAvailable=1))
    cluster.run(10)
    assert figures(cluster) == (2, 2, 1, 1)
    cluster.patch("poddisruptionbudgets", "web", {"spec": {"selector": {"matchLabels": {"app": "db"}}}})
    cluster.run(2)
    assert figures(cluster) == (4, 4, 1, 3)
    cluster.patch("poddisruptionbudgets", "web", {"spec": {"selector": {"matchLabels": None}}})
    cluster.run(2)
    assert figures(cluster) == (6, 6, 1, 5)
