"""`koordsched dump`: what is in it, what is not, and that it is read again."""

import gzip
import stat

import orjson
import pytest

from koordsched.cli.redaction import redact
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.messages import error_response
from tests.cli.clusters import bound, node, pod, run, run_json
from tests.cli.served import served_cluster

SECRET = "hunter2"


def secretive(name):
    """A pod with a secret wherever one may be."""
    made = pod(name, "2")
    made["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "example.com/kept": "yes",
    }
    made["metadata"]["managedFields"] = [{"manager": SECRET, "operation": "Update"}]
    handler = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    made["spec"]["containers"][0].update(
        env=[
            {"name": "PASSWORD", "value": SECRET},
            {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        command=["run", SECRET],
        args=["--password", SECRET],
        livenessProbe=handler,
        readinessProbe={"exec": {"command": ["check", SECRET]}},
        lifecycle={"postStart": handler, "preStop": {"exec": {"command": [SECRET]}}},
    )
    made["spec"]["initContainers"] = [{"name": "i", "image": "i", "args": [SECRET]}]
    return made


def of_kind(items, kind):
    return [item for item in items if item["kind"] == kind]


def template(**parts):
    """A pod template with secrets."""
    return {"spec": secretive("t")["spec"], **parts}


def workloads():
    """Objects that have pod templates in them."""
    meta = {"name": "w", "namespace": "default", "annotations": {"example.com/kept": "yes"}}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"template": template()}},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": meta,
            "spec": {"jobTemplate": {"spec": {"template": template()}}},
        },
        {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "data": {"spec": template()}},
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template()},
        {
            "apiVersion": "example.com/v1",
            "kind": "Rollout",
            "metadata": meta,
            "spec": {"steps": [{"template": template()}]},
        },
    ]


@pytest.fixture
def cluster(tmp_path):
    with served_cluster(tmp_path) as served:
        served.restore(
            node("n1"),
            bound("busy", "n1", "3"),
            secretive("waiting"),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"k": "aHVudGVyMg=="},
                "stringData": {"t": SECRET},
            },
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"file": SECRET}},
        )
        yield served


def dumped(cluster, path):
    result = run("dump", str(path), "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 0, result.stderr
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    listed = orjson.loads(content)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    return result, content, listed["items"]


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz"])
def test_all_kinds_without_secrets(cluster, tmp_path, name):
    result, content, items = dumped(cluster, tmp_path / name)
    assert SECRET.encode() not in content
    assert b"aHVudGVyMg==" not in content
    kinds = {(item["apiVersion"], item["kind"]) for item in items}
    assert {("v1", "Node"), ("v1", "Pod"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Namespace")} <= kinds
    assert ("scheduling.k8s.io/v1", "PriorityClass") in kinds
    (secret,) = of_kind(items, "Secret")
    assert secret["data"] == {"k": "UkVEQUNURUQ="}
    (waiting,) = (item for item in of_kind(items, "Pod") if item["metadata"]["name"] == "waiting")
    assert waiting["metadata"]["annotations"] == {"example.com/kept": "yes"}
    env = waiting["spec"]["containers"][0]["env"]
    assert env == [
        {"name": "PASSWORD", "value": "REDACTED"},
        {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    size = f"{(tmp_path / name).stat().st_size / 1e6:,.1f} MB"
    assert result.stderr == f"{len(items)} objects of {len(kinds)} kinds, {size}\n"
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert {method for method, _ in cluster.requests} == {"GET"}


@pytest.mark.parametrize("thing", workloads(), ids=lambda thing: thing["kind"])
def test_templates_have_no_secrets_either(thing):
    thing = orjson.loads(orjson.dumps(thing))
    annotations = dict(thing["metadata"]["annotations"])
    redact(thing)
    assert SECRET.encode() not in orjson.dumps(thing)
    assert thing["metadata"]["annotations"] == annotations
    assert b'"cpu":"2"' in orjson.dumps(thing)


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "Pod", "metadata": None, "spec": None},
        {"kind": "Pod", "metadata": {"annotations": None}, "spec": {"containers": [None, {"env": [None, {}]}]}},
        {"kind": "Secret", "data": None},
        {"kind": "Secret", "data": "x"},
        {"kind": "Thing", "spec": {"containers": "x", "initContainers": [{"livenessProbe": "x", "lifecycle": [1]}]}},
        {},
    ],
)
def test_odd_objects_are_no_obstacle(odd):
    redact(odd)


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz"])
def test_the_dump_answers_as_the_cluster(cluster, tmp_path, name):
    path = tmp_path / name
    dumped(cluster, path)
    flags = ["--kubeconfig", cluster.kubeconfig]
    assert run_json("explain", "waiting", "-f", str(path)) == run_json("explain", "waiting", *flags)
    assert run_json("pending", "-f", str(path)) == run_json("pending", *flags)


def test_a_directory_of_compressed_files(cluster, tmp_path):
    directory = tmp_path / "dumps"
    directory.mkdir()
    dumped(cluster, directory / "d.json.gz")
    assert run_json("pending", "-f", str(directory))[1]["pods"] == 1
    (directory / "d.json.gz").write_bytes(b"no gzip")
    result = run("pending", "-f", str(directory))
    assert (result.exit_code, "d.json.gz: not compressed by gzip" in result.stderr) == (1, True)


def test_more_than_a_page_of_a_kind(cluster, tmp_path):
    cluster.restore(*(bound(f"b{number}", "n1", "1m") for number in range(1200)))
    _, _, items = dumped(cluster, tmp_path / "dump.json")
    names = [item["metadata"]["name"] for item in of_kind(items, "Pod")]
    assert len(names) == len(set(names)) == 1202
    assert len(of_kind(items, "Event")) == 0


def test_events_are_there_once(cluster, tmp_path):
    cluster.restore(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "waiting"},
            "reason": "FailedScheduling",
        }
    )
    _, _, items = dumped(cluster, tmp_path / "dump.json")
    assert [item["apiVersion"] for item in of_kind(items, "Event")] == ["v1"]


def test_to_standard_output(cluster):
    result = run("dump", "-", "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 0
    assert of_kind(orjson.loads(result.stdout)["items"], "Node")


def test_kinds_that_must_not_be_listed(cluster, tmp_path):
    cluster.forbid("secrets", "priorityclasses.scheduling.k8s.io")
    result, _, items = dumped(cluster, tmp_path / "dump.json")
    assert of_kind(items, "Secret") == []
    assert result.stderr.count("cannot be listed completely, 0 were written: ") == 2
    assert "note: secrets cannot be listed" in result.stderr


def test_a_dump_without_nodes_is_none(cluster, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text("the one before")
    cluster.forbid("nodes")
    result = run("dump", str(path), "--kubeconfig", cluster.kubeconfig)
    assert (result.exit_code, result.stderr.startswith("error: nodes cannot be listed: ")) == (1, True)
    assert path.read_text() == "the one before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dump.json", "kubeconfig"]


def test_a_directory_that_is_not_there(cluster, tmp_path):
    result = run("dump", str(tmp_path / "none" / "dump.json"), "--kubeconfig", cluster.kubeconfig)
    assert (result.exit_code, result.stderr.startswith("error: ")) == (1, True)


def silent(cluster):
    """The API of priority classes is another server's, which is away."""

    def handle(request):
        if request.path == "/apis/scheduling.k8s.io/v1":
            return error_response(ApiStatusError(503, "ServiceUnavailable", "no endpoints"))
        if request.path == "/api/v1/configmaps" and request.query.get("continue"):
            return error_response(ApiStatusError(410, "Expired", "too old"))
        return cluster.handle(request)

    return handle


def test_an_api_that_does_not_answer_and_a_list_that_breaks_off(tmp_path):
    with served_cluster(tmp_path, wrap=silent) as served:
        served.restore(
            node("n1"),
            *(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}, "data": {}}
                for number in range(600)
            ),
        )
        result, _, items = dumped(served, tmp_path / "dump.json")
    assert len(of_kind(items, "ConfigMap")) == 500
    assert "note: left out, because the API does not respond: scheduling.k8s.io/v1: no endpoints\n" in result.stderr
    assert "note: configmaps cannot be listed completely, 500 were written: too old\n" in result.stderr
