import pytest

from koordsched.fakecluster.controllers.tolerations import tolerated_seconds, tolerates
from tests.fakecluster.timeline import Cluster, condition, pod_template, workload

FAIL = "koordsched.io/fail"


def fail(cluster, name, how="true"):
    cluster.patch("nodes", name, {"metadata": {"annotations": {FAIL: how}}})


def taints(cluster, name):
    return {(t["key"], t["effect"]) for t in cluster.get("nodes", name)["spec"].get("taints", [])}


def lone_pod(name, node, tolerations=()):
    spec = pod_template({"app": name}, nodeName=node, tolerations=list(tolerations))["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def both(key):
    return {(key, "NoSchedule"), (key, "NoExecute")}


UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def test_a_silent_node_becomes_unknown_and_comes_back():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 3))
    cluster.run(30)
    fail(cluster, "node-1")
    cluster.run(25)
    assert taints(cluster, "node-1") == set()
    cluster.run(35)
    node = cluster.get("nodes", "node-1")
    assert condition(node, "Ready") == ("Unknown", "NodeStatusUnknown")
    assert condition(node, "MemoryPressure") == ("Unknown", "NodeStatusUnknown")
    assert taints(cluster, "node-1") == both(UNREACHABLE)
    [lost] = [pod for pod in cluster.pods() if pod["spec"]["nodeName"] == "node-1"]
    assert condition(lost, "Ready") == ("False", "NodeNotReady")
    assert cluster.get("deployments", "web")["status"]["availableReplicas"] == 2
    for other in ("node-0", "node-2"):
        assert taints(cluster, other) == set()
    cluster.patch("nodes", "node-1", {"metadata": {"annotations": {FAIL: None}}})
    cluster.run(15)
    assert condition(cluster.get("nodes", "node-1"), "Ready") == ("True", "KubeletReady")
    assert taints(cluster, "node-1") == set()
    assert cluster.get("deployments", "web")["status"]["availableReplicas"] == 3
    assert cluster.exists("pods", lost["metadata"]["name"])


def test_a_node_that_reports_not_ready_is_tainted_at_once():
    cluster = Cluster()
    cluster.run(15)
    fail(cluster, "node-0", "not-ready")
    cluster.run(1)
    assert condition(cluster.get("nodes", "node-0"), "Ready") == ("False", "KubeletNotReady")
    assert taints(cluster, "node-0") == both(NOT_READY)
    fail(cluster, "node-0", "something else")
    cluster.run(1)
    assert taints(cluster, "node-0") == set()


def test_a_node_that_never_had_a_kubelet_is_taken_at_its_word():
    cluster = Cluster(nodes=0)
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-by-hand"}})
    cluster.run(600)
    node = cluster.get("nodes", "made-by-hand")
    assert condition(node, "Ready") is None
    assert taints(cluster, "made-by-hand") == set()


@pytest.mark.parametrize(
    "kind, status, expected",
    [
        ("MemoryPressure", "True", {("node.kubernetes.io/memory-pressure", "NoSchedule")}),
        ("DiskPressure", "True", {("node.kubernetes.io/disk-pressure", "NoSchedule")}),
        ("PIDPressure", "True", {("node.kubernetes.io/pid-pressure", "NoSchedule")}),
        ("NetworkUnavailable", "True", {("node.kubernetes.io/network-unavailable", "NoSchedule")}),
        ("NetworkUnavailable", "False", set()),
        ("Ready", "False", both(NOT_READY)),
        ("Ready", "Unknown", both(UNREACHABLE)),
    ],
)
def test_conditions_become_taints(kind, status, expected):
    cluster = Cluster(nodes=0)
    own = {"key": "example.com/own", "effect": "NoSchedule"}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "spec": {"taints": [own]},
            "status": {"conditions": [{"type": kind, "status": status}]},
        }
    )
    cluster.run(1)
    assert taints(cluster, "n") == expected | {("example.com/own", "NoSchedule")}


def test_cordoning_taints():
    cluster = Cluster(nodes=1)
    cluster.patch("nodes", "node-0", {"spec": {"unschedulable": True}})
    cluster.run(1)
    assert taints(cluster, "node-0") == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    cluster.patch("nodes", "node-0", {"spec": {"unschedulable": None}})
    cluster.run(1)
    assert taints(cluster, "node-0") == set()


def test_no_execute_taints_end_pods_when_their_toleration_ends():
    cluster = Cluster(bind=False)
    tolerated = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
    cluster.create(lone_pod("at-once", "node-0"))
    cluster.create(lone_pod("later", "node-0", [{**tolerated, "tolerationSeconds": 60}]))
    cluster.create(lone_pod("never", "node-0", [tolerated]))
    cluster.create(lone_pod("elsewhere", "node-1"))
    cluster.run(10)

    def present():
        return {pod["metadata"]["name"] for pod in cluster.pods()}

    cluster.patch("nodes", "node-0", {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})
    cluster.run(5)
    assert present() == {"later", "never", "elsewhere"}
    cluster.create(lone_pod("newcomer", "node-0"))
    cluster.run(5)
    assert present() == {"later", "never", "elsewhere"}
    cluster.run(45)
    assert "later" in present()
    cluster.run(10)
    assert present() == {"never", "elsewhere"}


def test_a_taint_that_goes_away_in_time_ends_nothing():
    cluster = Cluster(bind=False)
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    cluster.create(lone_pod("p", "node-0", [toleration]))
    taint = {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}
    cluster.patch("nodes", "node-0", taint)
    cluster.run(40)
    cluster.patch("nodes", "node-0", {"spec": {"taints": None}})
    cluster.run(10)
    cluster.patch("nodes", "node-0", taint)
    cluster.run(50)
    assert cluster.exists("pods", "p")
    cluster.run(20)
    assert not cluster.exists("pods", "p")


def test_pods_of_a_removed_node_are_collected():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 3))
    cluster.run(10)
    cluster.delete("nodes", "node-2")
    cluster.run(30)
    assert [pod for pod in cluster.pods() if pod["spec"]["nodeName"] == "node-2"]
    cluster.run(30)
    assert not [pod for pod in cluster.pods() if pod["spec"]["nodeName"] == "node-2"]
    assert cluster.get("deployments", "web")["status"]["availableReplicas"] == 3


def test_a_node_that_comes_back_in_time_keeps_its_pods():
    cluster = Cluster(nodes=1)
    cluster.create(workload("Deployment", "web", 2))
    cluster.run(10)
    uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
    node = cluster.get("nodes", "node-0")
    cluster.delete("nodes", "node-0")
    cluster.run(10)
    node["metadata"] = {"name": "node-0", "annotations": {"koordsched.io/hollow": "true"}}
    cluster.create(node)
    cluster.run(100)
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} == uids
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    cluster.run(10)
    assert len(cluster.pods()) == 2


EXECUTE = ("k", "v", "NoExecute")
TOLERATIONS = [
    ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}, True),
    ({"key": "k", "value": "v"}, True),
    ({"key": "k", "value": "w"}, False),
    ({"key": "k"}, False),
    ({"key": "k", "operator": "Exists"}, True),
    ({"operator": "Exists"}, True),
    ({"key": "j", "operator": "Exists"}, False),
    ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, False),
    ({"value": "v"}, False),
]


@pytest.mark.parametrize("toleration, expected", TOLERATIONS)
def test_tolerations(toleration, expected):
    assert tolerates(toleration, EXECUTE) is expected


@pytest.mark.parametrize(
    "tolerations, expected",
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists", "tolerationSeconds": 30}], 30.0),
        ([{"operator": "Exists", "tolerationSeconds": 30}, {"key": "k", "operator": "Exists"}], 30.0),
        ([{"operator": "Exists", "tolerationSeconds": -5}], 0.0),
        ([{"key": "j", "operator": "Exists", "tolerationSeconds": 30}], 0.0),
    ],
)
def test_how_long_a_taint_is_tolerated(tolerations, expected):
    assert tolerated_seconds([EXECUTE, ("other", "", "NoSchedule")], tolerations) == expected
