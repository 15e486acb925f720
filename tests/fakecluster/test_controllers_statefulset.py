import pytest

from tests.fakecluster.timeline import Cluster, pod_template, workload

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def make(cluster, replicas=3, **spec):
    cluster.create(workload("StatefulSet", "db", replicas, serviceName="db", **spec))


def ready(cluster, replicas, image="app:1"):
    pods = [pod for pod in cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
    status = cluster.get("statefulsets", "db").get("status", {})
    return (
        len(pods) == replicas
        and all(pod["spec"]["containers"][0]["image"] == image for pod in pods)
        and status.get("readyReplicas", 0) == replicas
        and status.get("observedGeneration") == cluster.get("statefulsets", "db")["metadata"]["generation"]
    )


def log_of(cluster):
    """Creations, readiness and deletions of pods, in order."""
    log = []

    def look(kind, old, new):
        name = new["metadata"]["name"]
        if kind == "ADDED":
            log.append(f"+{name}")
        elif kind == "DELETED":
            log.append(f"-{name}")
        elif new["status"]["phase"] == "Running" and old["status"].get("phase") != "Running":
            log.append(f"!{name}")

    cluster.registry.subscribe(cluster.registry.pods, look)
    return log


def test_pods_come_and_go_one_by_one_in_order():
    cluster = Cluster()
    log = log_of(cluster)
    make(cluster)
    cluster.until(lambda: ready(cluster, 3))
    assert log == ["+db-0", "!db-0", "+db-1", "!db-1", "+db-2", "!db-2"]
    del log[:]
    cluster.patch("statefulsets", "db", {"spec": {"replicas": 1}})
    cluster.until(lambda: ready(cluster, 1) and len(cluster.pods()) == 1)
    assert log == ["-db-2", "-db-1"]


def test_parallel_pods_come_at_once():
    cluster = Cluster()
    log = log_of(cluster)
    make(cluster, podManagementPolicy="Parallel")
    cluster.until(lambda: ready(cluster, 3))
    assert log[:3] == ["+db-0", "+db-1", "+db-2"]


def test_identity_and_claims():
    cluster = Cluster(bind=False)
    make(cluster, 1, volumeClaimTemplates=[CLAIM], ordinals={"start": 4})
    cluster.run(1)
    [pod] = cluster.pods()
    labels = pod["metadata"]["labels"]
    assert pod["metadata"]["name"] == "db-4"
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-4"
    assert labels["apps.kubernetes.io/pod-index"] == "4"
    assert labels["controller-revision-hash"] == cluster.get("statefulsets", "db")["status"]["updateRevision"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-4", "db")
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["data"] == {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-4"}}
    claim = cluster.get("persistentvolumeclaims", "data-db-4")
    assert claim["metadata"]["labels"] == {"app": "db"}
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    # Claims outlive their set.
    cluster.delete("statefulsets", "db")
    cluster.run(60)
    assert not cluster.pods()
    assert cluster.exists("persistentvolumeclaims", "data-db-4")


def test_a_lost_pod_comes_back_under_its_name():
    cluster = Cluster()
    make(cluster)
    cluster.until(lambda: ready(cluster, 3))
    before = cluster.get("pods", "db-1")["metadata"]["uid"]
    cluster.delete("pods", "db-1")
    cluster.until(lambda: ready(cluster, 3) and cluster.get("pods", "db-1")["metadata"]["uid"] != before)


def test_a_rolling_update_goes_backwards_one_by_one():
    cluster = Cluster()
    make(cluster)
    cluster.until(lambda: ready(cluster, 3))
    first = cluster.get("statefulsets", "db")["status"]["currentRevision"]
    log = log_of(cluster)
    del log[:]
    cluster.patch("statefulsets", "db", {"spec": {"template": pod_template({"app": "db"}, "app:2")}})
    cluster.until(lambda: ready(cluster, 3, "app:2"))
    assert log == [f"{sign}db-{i}" for i in (2, 1, 0) for sign in "-+!"]
    cluster.run(2)
    status = cluster.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"] != first
    assert (status["updatedReplicas"], status["currentReplicas"]) == (3, 3)
    assert len(cluster.list("controllerrevisions")) == 2


@pytest.mark.parametrize(
    "strategy, images",
    [
        ({"type": "OnDelete"}, ["app:1", "app:1", "app:1"]),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}, ["app:1", "app:1", "app:2"]),
    ],
)
def test_updates_held_back(strategy, images):
    cluster = Cluster()
    make(cluster, updateStrategy=strategy)
    cluster.until(lambda: ready(cluster, 3))
    cluster.patch("statefulsets", "db", {"spec": {"template": pod_template({"app": "db"}, "app:2")}})
    cluster.run(60)
    assert [pod["spec"]["containers"][0]["image"] for pod in cluster.pods()] == images
    # A pod below the partition comes back as it was.
    cluster.delete("pods", "db-0")
    cluster.run(20)
    expected = "app:2" if strategy["type"] == "OnDelete" else "app:1"
    assert cluster.get("pods", "db-0")["spec"]["containers"][0]["image"] == expected


def test_a_finished_pod_is_replaced():
    cluster = Cluster()
    make(cluster, 1)
    cluster.until(lambda: ready(cluster, 1))
    uid = cluster.get("pods", "db-0")["metadata"]["uid"]
    cluster.patch("pods", "db-0", {"status": {"phase": "Failed"}}, subresource="status")
    cluster.until(lambda: ready(cluster, 1) and cluster.get("pods", "db-0")["metadata"]["uid"] != uid)
