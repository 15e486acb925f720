import pytest

from koordsched.fakecluster.hollow.allocation import pod_request
from koordsched.fakecluster.hollow.duration import parse_duration
from tests.fakecluster.timeline import Cluster, condition, pod_template, workload


def pod(name, node="node-0", requests=None, annotations=None, **spec):
    body = pod_template({"app": name}, **spec)["spec"]
    if requests is not None:
        body["containers"][0]["resources"] = {"requests": requests, "limits": requests}
    if node:
        body["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": body,
    }


def test_a_bound_pod_starts_after_the_delay():
    cluster = Cluster(bind=False, start_delay=3.0)
    cluster.create(pod("p", node=None, initContainers=[{"name": "init", "image": "i"}]))
    cluster.run(10)
    cluster.registry.bind("default", "p", None, "node-1")
    cluster.run(2.9)
    assert cluster.get("pods", "p")["status"]["phase"] == "Pending"
    cluster.run(0.2)
    status = cluster.get("pods", "p")["status"]
    assert status["phase"] == "Running"
    assert status["startTime"] == "2030-01-01T00:00:13Z"
    assert status["hostIP"] == "172.16.0.2"
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    [container] = status["containerStatuses"]
    assert container["ready"]
    assert container["state"] == {"running": {"startedAt": "2030-01-01T00:00:13Z"}}
    assert status["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    for kind in ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"):
        assert condition({"status": status}, kind) == ("True", "")


def test_what_is_written_between_binding_and_start_stays():
    cluster = Cluster(bind=False, start_delay=3.0)
    cluster.create(pod("p"))
    cluster.run(1)
    cluster.registry.patch(cluster.registry.pods, "default", "p", {"metadata": {"labels": {"later": "yes"}}})
    cluster.registry.patch(
        cluster.registry.pods, "default", "p", {"status": {"nominatedNodeName": "n"}}, subresource="status"
    )
    cluster.run(5)
    found = cluster.get("pods", "p")
    assert found["metadata"]["labels"]["later"] == "yes"
    assert (found["status"]["phase"], found["status"]["nominatedNodeName"]) == ("Running", "n")


def test_pods_never_start_without_a_start_delay():
    cluster = Cluster(bind=False, start_delay=None)
    cluster.create(pod("p"))
    cluster.run(3600)
    assert cluster.get("pods", "p")["status"]["phase"] == "Pending"
    cluster.delete("pods", "p")
    cluster.run(5)
    assert not cluster.exists("pods", "p")


# run-duration, exit-code, restart policy -> phase, exit code and restarts after 60 s
ENDINGS = [
    ("30s", None, "Never", ("Succeeded", 0, 0)),
    ("30s", "2", "Never", ("Failed", 2, 0)),
    ("30s", None, "OnFailure", ("Succeeded", 0, 0)),
    ("30s", "1", "OnFailure", ("Running", 1, 1)),
    ("30s", None, "Always", ("Running", 0, 1)),
    ("2m", None, "Never", ("Running", None, 0)),
    (None, None, "Never", ("Running", None, 0)),
]


@pytest.mark.parametrize("duration, code, policy, expected", ENDINGS)
def test_containers_end_when_told(duration, code, policy, expected):
    cluster = Cluster(bind=False)
    annotations = {"koordsched.io/run-duration": duration} if duration else {}
    if code is not None:
        annotations["koordsched.io/exit-code"] = code
    cluster.create(pod("p", annotations=annotations, restartPolicy=policy))
    cluster.run(60)
    status = cluster.get("pods", "p")["status"]
    [container] = status["containerStatuses"]
    ended = container["state"].get("terminated") or container["lastState"].get("terminated") or {}
    assert (status["phase"], ended.get("exitCode"), container["restartCount"]) == expected
    ready = condition({"status": status}, "Ready")[0]
    assert ready == ("True" if status["phase"] == "Running" else "False")


@pytest.mark.parametrize(
    "annotations",
    [
        {"koordsched.io/run-duration": "soon"},
        {"koordsched.io/run-duration": "5"},
        {"koordsched.io/run-duration": "5s", "koordsched.io/exit-code": "bad"},
    ],
)
def test_annotations_that_cannot_be_read_are_reported(annotations):
    cluster = Cluster(bind=False)
    cluster.create(pod("p", annotations=annotations))
    cluster.run(30)
    assert cluster.get("pods", "p")["status"]["phase"] == "Running"
    [event] = cluster.list("events", "default")
    assert (event["reason"], event["type"]) == ("InvalidAnnotation", "Warning")
    assert event["involvedObject"]["name"] == "p"


@pytest.mark.parametrize("grace, stop_delay, gone_after", [(30, 5.0, 5), (2, 5.0, 2), (0, 5.0, 0)])
def test_a_deleted_pod_ends_after_the_shorter_of_grace_and_stop_delay(grace, stop_delay, gone_after):
    cluster = Cluster(bind=False, stop_delay=stop_delay)
    cluster.create(pod("p", terminationGracePeriodSeconds=grace))
    cluster.run(10)
    cluster.delete("pods", "p")
    if gone_after:
        cluster.run(gone_after - 0.1)
        assert cluster.exists("pods", "p")
    cluster.run(0.2)
    assert not cluster.exists("pods", "p")


def test_a_finalizer_outlasts_the_containers():
    cluster = Cluster(bind=False)
    held = pod("p")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(held)
    cluster.run(5)
    cluster.delete("pods", "p")
    cluster.run(60)
    assert cluster.exists("pods", "p")
    cluster.patch("pods", "p", {"metadata": {"finalizers": None}})
    cluster.run(1)
    assert not cluster.exists("pods", "p")


# The node has 4 cpu, 16Gi, 20 pods; requests in order -> what the last one meets
REJECTIONS = [
    ([{"cpu": "4"}], None),
    ([{"cpu": "4001m"}], ("OutOfcpu", "cpu, requested: 4001, used: 0, capacity: 4000")),
    ([{"cpu": "3"}, {"cpu": "1500m"}], ("OutOfcpu", "cpu, requested: 1500, used: 3000, capacity: 4000")),
    (
        [{"memory": "16Gi"}, {"memory": "1"}],
        ("OutOfmemory", "memory, requested: 1, used: 17179869184, capacity: 17179869184"),
    ),
    ([{"example.com/gpu": "1"}], ("OutOfexample.com/gpu", "example.com/gpu, requested: 1, used: 0, capacity: 0")),
    ([{"cpu": "1m"}] * 20, None),
    ([{"cpu": "1m"}] * 21, ("OutOfpods", "pods, requested: 1, used: 20, capacity: 20")),
]


@pytest.mark.parametrize("requests, expected", REJECTIONS)
def test_pods_that_do_not_fit_are_rejected(requests, expected):
    cluster = Cluster(nodes=1, bind=False)
    for number, request in enumerate(requests):
        cluster.create(pod(f"p{number}", requests=request))
    cluster.run(5)
    status = cluster.get("pods", f"p{len(requests) - 1}")["status"]
    if expected is None:
        assert status["phase"] == "Running"
    else:
        assert (status["phase"], status["reason"]) == ("Failed", expected[0])
        assert status["message"] == f"Pod was rejected: Node didn't have enough resource: {expected[1]}"


def test_room_is_given_back():
    cluster = Cluster(nodes=1, bind=False)
    short = {"koordsched.io/run-duration": "10s"}
    cluster.create(pod("first", requests={"cpu": "4"}, annotations=short, restartPolicy="Never"))
    cluster.run(15)
    cluster.create(pod("second", requests={"cpu": "4"}))
    cluster.run(5)
    assert cluster.get("pods", "second")["status"]["phase"] == "Running"
    cluster.delete("pods", "second")
    cluster.run(5)
    cluster.create(pod("third", requests={"cpu": "4"}))
    cluster.run(5)
    assert cluster.get("pods", "third")["status"]["phase"] == "Running"


def test_a_silent_node_neither_starts_nor_stops_pods():
    cluster = Cluster(nodes=1, bind=False)
    cluster.create(pod("old"))
    cluster.create(pod("working", annotations={"koordsched.io/run-duration": "8s"}, restartPolicy="Never"))
    cluster.run(5)
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {"koordsched.io/fail": "true"}}})
    cluster.delete("pods", "old")
    cluster.create(pod("new"))
    cluster.run(20)
    assert cluster.exists("pods", "old")
    assert cluster.get("pods", "new")["status"]["phase"] == "Pending"
    assert cluster.get("pods", "working")["status"]["phase"] == "Running"
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {"koordsched.io/fail": None}}})
    cluster.run(5)
    assert not cluster.exists("pods", "old")
    assert cluster.get("pods", "new")["status"]["phase"] == "Running"
    assert cluster.get("pods", "working")["status"]["phase"] == "Succeeded"


def container(name="c", **fields):
    requests = {key.replace("_", "-"): value for key, value in fields.items() if key != "restart"}
    made = {"name": name, "resources": {"requests": requests}}
    if fields.get("restart"):
        made["restartPolicy"] = "Always"
    return made


REQUESTS = [
    ({"containers": [container(cpu="100m"), container(cpu="200m", memory="1Ki")]}, {"cpu": 300, "memory": 1024000}),
    ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, {"cpu": 3000}),
    (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), container(cpu="1", restart=True)]},
        {"cpu": 3000},
    ),
    (
        {"containers": [container(cpu="1")], "initContainers": [container(cpu="1", restart=True), container(cpu="3")]},
        {"cpu": 4000},
    ),
    ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
    ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "2"}}}, {"cpu": 2000}),
    ({"containers": [container(cpu="garbage")]}, {"cpu": 0}),
    ({"containers": [{"name": "c"}]}, {}),
]


@pytest.mark.parametrize("spec, expected", REQUESTS)
def test_requests_of_a_pod(spec, expected):
    assert pod_request(spec) == {**expected, "pods": 1000}


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("500ms", 0.5),
        ("2.5s", 2.5),
        ("1h2m3s4ms", 3723.004),
        ("0s", 0.0),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "1d", "5s ", "1m-3s", "forever", "9" * 40 + "s"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_workloads_see_it_all():
    cluster = Cluster(nodes=2)
    cluster.create(workload("Deployment", "web", 8))
    cluster.run(10)
    assert cluster.get("deployments", "web")["status"]["availableReplicas"] == 8
    assert len({pod["status"]["podIP"] for pod in cluster.pods()}) == 8


def faulty(reason):
    capacity = {"cpu": "8", "memory": "32Gi"}
    return {"templates": [{"count": 1, "capacity": capacity, "faults": {"startError": reason}}]}


@pytest.mark.parametrize(
    "reason, shown, ready",
    [("RunContainerError",) * 2 + ("True",), ("FailedCreatePodSandBox", "ContainerCreating", "False")],
)
def test_pods_do_not_start_on_a_node_with_a_fault_until_it_is_mended(reason, shown, ready):
    cluster = Cluster(nodes=None, template=faulty(reason), bind=False)
    cluster.create(pod("p"))
    cluster.run(60)
    status = cluster.get("pods", "p")["status"]
    assert status["phase"] == "Pending"
    assert [each["state"]["waiting"]["reason"] for each in status["containerStatuses"]] == [shown]
    assert condition({"status": status}, "PodReadyToStartContainers")[0] == ready
    version = cluster.get("pods", "p")["metadata"]["resourceVersion"]
    cluster.run(60)
    assert cluster.get("pods", "p")["metadata"]["resourceVersion"] == version
    cluster.patch("nodes", "node-0", {"metadata": {"annotations": {"koordsched.io/start-error": None}}})
    cluster.run(15)
    assert cluster.get("pods", "p")["status"]["phase"] == "Running"


def test_a_pod_fells_its_node():
    cluster = Cluster(bind=False)
    cluster.create(pod("p", "node-1", annotations={"koordsched.io/fells-node": "10s"}))
    cluster.create(pod("q", "node-2", annotations={"koordsched.io/fells-node": "soon"}))
    cluster.run(10)
    assert condition(cluster.get("nodes", "node-1"), "Ready")[0] == "True"
    cluster.run(2)
    assert condition(cluster.get("nodes", "node-1"), "Ready")[0] == "False"
    assert condition(cluster.get("nodes", "node-2"), "Ready")[0] == "True"
    [event] = [each for each in cluster.list("events") if each["reason"] == "InvalidAnnotation"]
    assert event["message"].startswith("koordsched.io/fells-node is ignored: ")
    cluster.patch("nodes", "node-1", {"metadata": {"annotations": {"koordsched.io/fail": None}}})
    cluster.run(30)
    assert condition(cluster.get("nodes", "node-1"), "Ready")[0] == "True"
