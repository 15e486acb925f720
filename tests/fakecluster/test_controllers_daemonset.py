import pytest

from koordsched.fakecluster.controllers.daemonplacement import DaemonPlacement, daemon_tolerations
from koordsched.fakecluster.controllers.nodes import NodeRecord
from tests.fakecluster.timeline import Cluster, pod_template, workload


def daemon(**spec):
    return workload("DaemonSet", "agent", template=pod_template({"app": "agent"}, **spec))


def status_of(cluster):
    return cluster.get("daemonsets", "agent")["status"]


def nodes_with_pods(cluster):
    return sorted(pod["spec"]["nodeName"] for pod in cluster.pods())


def test_every_node_gets_one_pod_now_and_later():
    cluster = Cluster(nodes=3)
    cluster.create(daemon())
    cluster.run(5)
    assert nodes_with_pods(cluster) == ["node-0", "node-1", "node-2"]
    assert status_of(cluster) == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
        "observedGeneration": 1,
    }
    late = cluster.get("nodes", "node-0")
    late["metadata"] = {"name": "late", "annotations": {"koordsched.io/hollow": "true"}}
    cluster.create(late)
    cluster.run(5)
    assert "late" in nodes_with_pods(cluster)
    cluster.delete("nodes", "late")
    cluster.until(lambda: "late" not in nodes_with_pods(cluster), limit=120)
    cluster.run(5)
    assert status_of(cluster)["desiredNumberScheduled"] == 3


def test_pods_are_left_to_the_scheduler_but_pinned():
    cluster = Cluster(bind=False)
    cluster.create(daemon(nodeSelector={"topology.kubernetes.io/zone": "zone-b"}))
    cluster.run(1)
    [pod] = cluster.pods()
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    assert terms == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert "nodeName" not in pod["spec"]
    added = {(entry["key"], entry["effect"]) for entry in pod["spec"]["tolerations"]}
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in added
    assert ("node.kubernetes.io/not-ready", "NoExecute") in added


def test_labels_and_taints_of_nodes_are_followed():
    cluster = Cluster()
    cluster.create(daemon(nodeSelector={"disk": "ssd"}))
    cluster.run(2)
    assert nodes_with_pods(cluster) == []
    cluster.patch("nodes", "node-2", {"metadata": {"labels": {"disk": "ssd"}}})
    cluster.run(2)
    assert nodes_with_pods(cluster) == ["node-2"]
    # A new NoSchedule taint leaves the pod alone, NoExecute does not, cordoning is tolerated.
    cluster.patch("nodes", "node-2", {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    cluster.run(5)
    assert nodes_with_pods(cluster) == ["node-2"]
    assert status_of(cluster)["desiredNumberScheduled"] == 0
    assert status_of(cluster)["numberMisscheduled"] == 1
    cluster.patch("nodes", "node-2", {"spec": {"taints": None}, "metadata": {"labels": {"disk": None}}})
    cluster.run(10)
    assert nodes_with_pods(cluster) == []


def test_a_failed_pod_is_replaced():
    cluster = Cluster(nodes=1)
    cluster.create(daemon())
    cluster.run(5)
    [pod] = cluster.pods()
    cluster.patch("pods", pod["metadata"]["name"], {"status": {"phase": "Failed"}}, subresource="status")
    cluster.until(lambda: pod["metadata"]["uid"] not in {other["metadata"]["uid"] for other in cluster.pods()})
    cluster.run(5)
    assert status_of(cluster)["numberReady"] == 1


@pytest.mark.parametrize("bounds, most_missing", [({}, 1), ({"maxUnavailable": 2}, 2), ({"maxUnavailable": "50%"}, 3)])
def test_a_rolling_update_replaces_some_at_a_time(bounds, most_missing):
    cluster = Cluster(nodes=6)
    made = daemon()
    made["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": bounds}
    cluster.create(made)
    cluster.run(5)
    missing = []
    cluster.registry.subscribe(
        cluster.registry.pods,
        lambda kind, old, new: missing.append(
            6
            - sum(
                not pod["metadata"].get("deletionTimestamp") and pod["status"]["phase"] == "Running"
                for pod in cluster.pods()
            )
        ),
        replay=False,
    )
    cluster.patch("daemonsets", "agent", {"spec": {"template": pod_template({"app": "agent"}, "app:2")}})
    cluster.until(
        lambda: (
            status_of(cluster)["observedGeneration"] == 2
            and status_of(cluster).get("updatedNumberScheduled") == 6
            and status_of(cluster).get("numberAvailable") == 6
        )
    )
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"app:2"}
    assert max(missing) == most_missing


def test_on_delete_waits_for_the_user():
    cluster = Cluster(nodes=2)
    made = daemon()
    made["spec"]["updateStrategy"] = {"type": "OnDelete"}
    cluster.create(made)
    cluster.run(5)
    cluster.patch("daemonsets", "agent", {"spec": {"template": pod_template({"app": "agent"}, "app:2")}})
    cluster.run(30)
    assert status_of(cluster).get("updatedNumberScheduled", 0) == 0
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    cluster.run(30)
    assert status_of(cluster)["updatedNumberScheduled"] == 1


def node(labels=None, taints=()):
    return NodeRecord("n1", "u1", labels or {}, tuple(taints), False, {}, False)


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


# spec, node -> may start, may stay
PLACEMENTS = [
    ({}, node(), True, True),
    ({"nodeName": "n1"}, node(), True, True),
    ({"nodeName": "n2"}, node(), False, False),
    ({"nodeSelector": {"a": "1"}}, node({"a": "1", "b": "2"}), True, True),
    ({"nodeSelector": {"a": "1"}}, node({"a": "2"}), False, False),
    (affinity(expression("a", "In", "1", "2")), node({"a": "2"}), True, True),
    (affinity(expression("a", "NotIn", "2")), node({"a": "2"}), False, False),
    (affinity(expression("a", "Gt", "5")), node({"a": "6"}), True, True),
    (affinity(expression("a", "Gt", "5"), expression("a", "DoesNotExist")), node(), True, True),
    (affinity({}), node(), False, False),
    (affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), node(), True, True),
    (
        affinity({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}),
        node(),
        False,
        False,
    ),
    (affinity(expression("a", "Near", "2")), node({"a": "2"}), False, False),
    ({}, node(taints=[("k", "v", "NoSchedule")]), False, True),
    ({}, node(taints=[("k", "v", "NoExecute")]), False, False),
    ({}, node(taints=[("k", "v", "PreferNoSchedule")]), True, True),
    ({"tolerations": [{"key": "k", "operator": "Exists"}]}, node(taints=[("k", "v", "NoExecute")]), True, True),
    ({"tolerations": [{"key": "k", "value": "w"}]}, node(taints=[("k", "v", "NoExecute")]), False, False),
    ({}, node(taints=[("node.kubernetes.io/unreachable", "", "NoExecute")]), True, True),
    ({}, node(taints=[("node.kubernetes.io/network-unavailable", "", "NoSchedule")]), False, True),
    ({"hostNetwork": True}, node(taints=[("node.kubernetes.io/network-unavailable", "", "NoSchedule")]), True, True),
]


@pytest.mark.parametrize("spec, where, start, stay", PLACEMENTS)
def test_where_daemons_belong(spec, where, start, stay):
    placement = DaemonPlacement(spec)
    assert (placement.should_start(where), placement.may_stay(where)) == (start, stay)


def test_tolerations_are_added_once():
    once = daemon_tolerations({"tolerations": [{"operator": "Exists"}]})
    assert daemon_tolerations({"tolerations": once}) == once
