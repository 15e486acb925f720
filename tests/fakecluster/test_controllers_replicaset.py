from itertools import pairwise

import pytest

from tests.fakecluster.timeline import Cluster, condition, pod_template, workload


def names(pods):
    return {pod["metadata"]["name"] for pod in pods}


def pod(name, labels, **metadata):
    body = pod_template(labels)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, **metadata},
        "spec": body["spec"],
    }


def test_pods_are_made_replaced_and_counted():
    cluster = Cluster()
    cluster.create(workload("ReplicaSet", "web", 4))
    cluster.run(5)
    status = cluster.get("replicasets", "web")["status"]
    assert status == {
        "replicas": 4,
        "fullyLabeledReplicas": 4,
        "readyReplicas": 4,
        "availableReplicas": 4,
        "observedGeneration": 1,
    }
    victim = cluster.pods()[0]["metadata"]["name"]
    cluster.delete("pods", victim)
    cluster.run(10)
    assert len(cluster.pods()) == 4
    assert victim not in names(cluster.pods())


def test_thousands_of_pods_appear_in_bounded_steps():
    cluster = Cluster(bind=False)
    cluster.create(workload("ReplicaSet", "web", 2000))
    counts = [0]
    while counts[-1] < 2000:
        cluster.time.step()
        counts.append(len(list(cluster.registry.scan(cluster.registry.pods))))
    assert max(after - before for before, after in pairwise(counts)) <= 40


def test_orphans_are_adopted_and_strays_released():
    cluster = Cluster(bind=False)
    cluster.create(pod("mine", {"app": "web", "tier": "x"}))
    cluster.create(pod("other", {"app": "db"}))
    cluster.create(workload("ReplicaSet", "web", 2))
    cluster.run(1)
    owned = {p["metadata"]["name"] for p in cluster.pods() if p["metadata"].get("ownerReferences")}
    assert len(owned) == 2
    assert "mine" in owned
    assert "other" not in owned
    # A pod relabelled by hand leaves the set, which makes another one.
    cluster.patch("pods", "mine", {"metadata": {"labels": {"app": "debug"}}})
    cluster.run(1)
    assert "ownerReferences" not in cluster.get("pods", "mine")["metadata"]
    assert len(cluster.pods("app=web")) == 2
    # A matching orphan that comes later is one too many.
    cluster.create(pod("late", {"app": "web"}))
    cluster.run(1)
    assert len(cluster.pods("app=web")) == 2


RANKING = [
    # name, node, phase, ready since, cost -> deleted in this order
    ("unbound", "", "Pending", None, None),
    ("pending", "node-0", "Pending", None, None),
    ("notready", "node-1", "Running", None, None),
    ("cheap", "node-1", "Running", "2029-01-01T00:00:00Z", "-5"),
    ("doubled-young", "node-2", "Running", "2029-06-01T00:00:00Z", None),
    ("doubled-old", "node-2", "Running", "2029-01-01T00:00:00Z", None),
    ("alone", "node-0", "Running", "2029-01-01T00:00:00Z", None),
    ("costly", "node-2", "Running", "2029-01-01T00:00:00Z", "100"),
]


def test_the_least_missed_pods_go_first():
    cluster = Cluster(nodes=3, bind=False, start_delay=None, stop_delay=0.0)
    for name, node, phase, ready_since, cost in RANKING:
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {}
        made = pod(name, {"app": "web"}, annotations=annotations)
        if node:
            made["spec"]["nodeName"] = node
        cluster.create(made)
        status = {"phase": phase}
        if ready_since:
            status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": ready_since}]
        cluster.registry.replace_status(cluster.registry.pods, "default", name, status)
    cluster.create(workload("ReplicaSet", "web", len(RANKING)))
    cluster.run(1)
    order = []
    for size in range(len(RANKING) - 1, -1, -1):
        before = names(cluster.pods())
        cluster.patch("replicasets", "web", {"spec": {"replicas": size}})
        cluster.run(40)
        order += sorted(before - names(cluster.pods()))
    assert order == [entry[0] for entry in RANKING]


def test_a_refused_pod_is_reported_and_tried_again():
    cluster = Cluster()
    cluster.create(workload("ReplicaSet", "web", 1, template=pod_template({"app": "web"}, priorityClassName="later")))
    cluster.run(5)
    assert condition(cluster.get("replicasets", "web"), "ReplicaFailure") == ("True", "FailedCreate")
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "later"},
            "value": 5,
        }
    )
    cluster.until(lambda: len(cluster.pods()) == 1, limit=120)
    cluster.run(5)
    assert condition(cluster.get("replicasets", "web"), "ReplicaFailure") is None


@pytest.mark.parametrize("seconds", [5, 30])
def test_min_ready_seconds_delay_availability(seconds):
    cluster = Cluster(start_delay=0.0)
    cluster.create(workload("ReplicaSet", "web", 2, minReadySeconds=seconds))
    cluster.run(seconds - 1)
    status = cluster.get("replicasets", "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (2, 0)
    cluster.until(lambda: cluster.get("replicasets", "web")["status"].get("availableReplicas") == 2, limit=seconds)
