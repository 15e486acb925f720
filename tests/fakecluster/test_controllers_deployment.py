import pytest

from koordsched.fakecluster.controllers.rollout import Rollout, proportional_sizes, rolling_update_sizes
from tests.fakecluster.timeline import Cluster, condition, pod_template, workload


def replica_sets(cluster, name="web"):
    return {
        int(entry["metadata"]["annotations"]["deployment.kubernetes.io/revision"]): entry
        for entry in cluster.list("replicasets")
        if entry["metadata"]["name"].startswith(name + "-")
    }


def complete(cluster, name="web"):
    """What `kubectl rollout status` waits for."""
    deployment = cluster.get("deployments", name)
    status, replicas = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    return (
        status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        and status.get("updatedReplicas", 0) == replicas
        and status.get("replicas", 0) == replicas
        and status.get("availableReplicas", 0) == replicas
    )


def new_image(cluster, image, name="web"):
    cluster.patch("deployments", name, {"spec": {"template": pod_template({"app": name}, image)}})


class Witness:
    """Remembers the extremes of a Deployment's pods over time."""

    def __init__(self, cluster):
        self.most = 0
        self.fewest_ready = 1 << 30
        self.images = set()
        self._cluster = cluster
        cluster.registry.subscribe(cluster.registry.pods, self._look, replay=False)

    def _look(self, kind, old, new):
        alive = [pod for pod in self._cluster.pods() if not pod["metadata"].get("deletionTimestamp")]
        ready = [pod for pod in alive if condition(pod, "Ready") == ("True", "")]
        self.most = max(self.most, len(alive))
        self.fewest_ready = min(self.fewest_ready, len(ready))
        running = {pod["spec"]["containers"][0]["image"] for pod in alive}
        self.images.add(frozenset(running))


@pytest.mark.parametrize(
    "replicas, surge, unavailable, most, fewest_ready",
    [
        (10, "25%", "25%", 13, 8),
        (4, 1, 0, 5, 4),
        (4, 0, 1, 4, 3),
        (3, "0%", "10%", 3, 2),
        (6, "100%", 0, 12, 6),
        (1, "25%", "25%", 2, 1),
    ],
)
def test_a_rolling_update_stays_within_its_bounds(replicas, surge, unavailable, most, fewest_ready):
    cluster = Cluster(nodes=4)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    cluster.create(workload("Deployment", "web", replicas, strategy=strategy))
    cluster.until(lambda: complete(cluster))
    witness = Witness(cluster)
    new_image(cluster, "app:2")
    cluster.until(lambda: complete(cluster) and len(cluster.pods()) == replicas)
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"app:2"}
    assert (witness.most, witness.fewest_ready) == (most, fewest_ready)
    sets = replica_sets(cluster)
    assert {revision: entry["spec"]["replicas"] for revision, entry in sets.items()} == {1: 0, 2: replicas}
    assert cluster.get("deployments", "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


def test_recreate_never_mixes_versions():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 3, strategy={"type": "Recreate"}))
    cluster.until(lambda: complete(cluster))
    witness = Witness(cluster)
    new_image(cluster, "app:2")
    cluster.until(lambda: complete(cluster) and len(cluster.pods()) == 3)
    assert witness.images == {frozenset({"app:1"}), frozenset(), frozenset({"app:2"})}


def test_new_pods_that_never_get_ready_stop_the_rollout_and_are_reported():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 4, progressDeadlineSeconds=60))
    cluster.until(lambda: complete(cluster))
    for node in cluster.list("nodes"):
        cluster.patch("nodes", node["metadata"]["name"], {"spec": {"unschedulable": True}})
    new_image(cluster, "app:2")
    cluster.run(50)
    assert condition(cluster.get("deployments", "web"), "Progressing") == ("True", "ReplicaSetUpdated")
    cluster.run(30)
    deployment = cluster.get("deployments", "web")
    assert condition(deployment, "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert condition(deployment, "Available") == ("True", "MinimumReplicasAvailable")
    assert deployment["status"]["availableReplicas"] == 3
    assert deployment["status"]["unavailableReplicas"] == 2
    assert deployment["status"]["updatedReplicas"] == 2


def test_a_rollback_reuses_the_replica_set_under_a_new_revision():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 2))
    cluster.until(lambda: complete(cluster))
    first = replica_sets(cluster)[1]["metadata"]["name"]
    new_image(cluster, "app:2")
    cluster.until(lambda: complete(cluster))
    new_image(cluster, "app:1")
    cluster.until(lambda: complete(cluster) and 3 in replica_sets(cluster))
    sets = replica_sets(cluster)
    assert sorted(sets) == [2, 3]
    assert sets[3]["metadata"]["name"] == first
    assert sets[3]["spec"]["replicas"] == 2


def test_history_is_cut_to_its_limit():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 1, revisionHistoryLimit=2))
    for version in range(1, 6):
        new_image(cluster, f"app:{version}")
        cluster.until(lambda: complete(cluster))
        cluster.run(5)
    assert sorted(replica_sets(cluster)) == [3, 4, 5]


def test_a_paused_deployment_scales_but_does_not_roll():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 2))
    cluster.until(lambda: complete(cluster))
    cluster.patch("deployments", "web", {"spec": {"paused": True, "template": pod_template({"app": "web"}, "app:2")}})
    cluster.patch("deployments", "web", {"spec": {"replicas": 5}})
    cluster.run(20)
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"app:1"}
    assert len(cluster.pods()) == 5
    assert condition(cluster.get("deployments", "web"), "Progressing") == ("Unknown", "DeploymentPaused")
    cluster.patch("deployments", "web", {"spec": {"paused": False}})
    cluster.until(lambda: complete(cluster))
    assert condition(cluster.get("deployments", "web"), "Progressing") == ("True", "NewReplicaSetAvailable")


@pytest.mark.parametrize("sizes", [[7, 3, 0, 4]])
def test_scaling(sizes):
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 1))
    for size in sizes:
        cluster.patch("deployments", "web", {"spec": {"replicas": size}})
        cluster.until(lambda: complete(cluster) and len(cluster.pods()) == size)  # noqa: B023 - called at once
    assert sorted(replica_sets(cluster)) == [1]


def test_an_orphaned_replica_set_is_adopted():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 2))
    cluster.until(lambda: complete(cluster))
    before = {pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.delete("deployments", "web", propagation="Orphan")
    cluster.run(5)
    assert not cluster.exists("deployments", "web")
    assert len(cluster.list("replicasets")) == 1
    cluster.create(workload("Deployment", "web", 2))
    cluster.until(lambda: complete(cluster))
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == before
    assert len(cluster.list("replicasets")) == 1


def test_the_taken_name_of_a_replica_set_is_worked_around():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 1))
    cluster.until(lambda: complete(cluster))
    taken = cluster.list("replicasets")[0]["metadata"]["name"]
    cluster.delete("deployments", "web")
    cluster.run(10)
    stranger = workload("ReplicaSet", taken, 0, labels={"app": "stranger"})
    cluster.create(stranger)
    cluster.create(workload("Deployment", "web", 1))
    cluster.until(lambda: complete(cluster))
    assert cluster.get("deployments", "web")["status"]["collisionCount"] == 1
    assert len(cluster.list("replicasets")) == 2


def make_set(name, replicas, available=None, desired=10, maximum=13):
    return {
        "metadata": {
            "name": name,
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": str(desired),
                "deployment.kubernetes.io/max-replicas": str(maximum),
            },
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "availableReplicas": replicas if available is None else available},
    }


def make_deployment(replicas, surge, unavailable):
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return {"metadata": {"name": "web"}, "spec": {"replicas": replicas, "strategy": strategy}}


# (replicas, surge, unavailable, old sets (size, available), new set (size, available)) -> sizes that change
ROLLING_STEPS = [
    ((10, 3, 2), [(10, 10)], (0, 0), {"new": 3}),
    ((10, 3, 2), [(10, 10)], (3, 0), {"old0": 8}),
    ((10, 3, 2), [(8, 8)], (5, 0), {}),
    ((10, 3, 2), [(8, 8)], (5, 5), {"old0": 3}),
    ((10, 3, 2), [(3, 3)], (10, 7), {"old0": 1}),
    ((10, 3, 2), [(3, 3)], (10, 10), {"old0": 0}),
    ((10, 3, 2), [(0, 0)], (12, 12), {"new": 10}),
    # Unhealthy old pods go first, the oldest set before the others.
    ((10, 3, 2), [(5, 0), (8, 8)], (0, 0), {"old0": 0}),
    ((10, 0, 2), [(10, 10)], (0, 0), {"old0": 8}),
]


@pytest.mark.parametrize("deployment, old, new, expected", ROLLING_STEPS)
def test_steps_of_a_rolling_update(deployment, old, new, expected):
    old_sets = [make_set(f"old{i}", *sizes) for i, sizes in enumerate(old)]
    rollout = Rollout(make_deployment(*deployment), make_set("new", *new), old_sets)
    assert rolling_update_sizes(rollout) == expected


# Scaling from 10 (at most 13 pods) in the middle of a rollout.
PROPORTIONS = [
    (15, [(10, 10)], (3, 0), {"old0": 15, "new": 4}),
    (5, [(10, 10)], (3, 0), {"old0": 5, "new": 2}),
    (20, [(5, 5), (5, 5)], (3, 0), {"new": 5, "old0": 10, "old1": 10}),
    (0, [(10, 10)], (3, 0), {"old0": 0, "new": 0}),
    (7, [(0, 0)], (10, 10), {"new": 7}),
    (7, [(10, 10)], (0, 0), {"old0": 7}),
]


@pytest.mark.parametrize("replicas, old, new, expected", PROPORTIONS)
def test_scaling_in_the_middle_of_a_rollout_keeps_proportions(replicas, old, new, expected):
    old_sets = [make_set(f"old{i}", *sizes) for i, sizes in enumerate(old)]
    rollout = Rollout(make_deployment(replicas, "25%", "20%"), make_set("new", *new), old_sets)
    assert proportional_sizes(rollout) == expected
    if replicas and len([sizes for sizes in [*old, new] if sizes[0]]) > 1:
        assert sum(expected.values()) == replicas + rollout.max_surge
