"""Commands that read a cluster by its kubeconfig, over HTTP; nothing of ours runs there."""

from pathlib import Path

import orjson
import pytest
import yaml

from tests.cli.clusters import bound, node, pod, run, run_json
from tests.cli.served import served_cluster
from tests.plugins.reservation.test_pages import reservation
from tests.yamlfiles import document

ROOT = Path(__file__).parents[2]


def daemon(name, to, cpu):
    """A DaemonSet's pod on a node."""
    made = bound(name, to, cpu)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
    ]
    return made


@pytest.fixture
def cluster(tmp_path):
    """Two nodes with 4 CPUs each, of which daemons have one and `busy` three of n1; big wants five, medium four."""
    with served_cluster(tmp_path) as served:
        served.restore(
            node("n1", labels={"pool": "general"}),
            node("n2", labels={"pool": "general"}, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
            daemon("agent-1", "n1", "1"),
            daemon("agent-2", "n2", "1"),
            bound("busy", "n1", "3"),
            pod("medium", "3", namespace="shop"),
            pod("big", "5", namespace="shop"),
            pod("other", namespace="shop", schedulerName="other-scheduler"),
        )
        yield served


@pytest.fixture
def flags(cluster):
    return ["--kubeconfig", cluster.kubeconfig]


def test_explain_of_a_pending_pod(cluster, flags):
    code, answer = run_json("explain", "shop/medium", *flags)
    assert (code, answer["anyOf"], answer["message"]) == (
        0,
        [],
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not "
        "helpful for scheduling.",
    )
    assert [(remedy["node"], [c["text"] for c in remedy["changes"]]) for remedy in answer["advice"]["remedies"]] == [
        ("n1", ["3 cpu more free"]),
        ("n2", ["a toleration of taint team=a:NoSchedule"]),
    ]
    # Nothing was written.
    assert {method for method, _ in cluster.requests} == {"GET"}


def test_the_same_as_of_a_dump(cluster, flags, tmp_path):
    listed = [item for kind in ("Node", "Pod") for item in cluster.listed(kind)]
    file = tmp_path / "dump.json"
    file.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    assert run_json("explain", "shop/medium", *flags) == run_json("explain", "shop/medium", "-f", str(file))
    assert run_json("simulate", *flags) == run_json("simulate", "-f", str(file))


def test_the_namespace_and_the_context_are_those_of_kubectl(cluster, flags, tmp_path, monkeypatch):
    document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    (context,) = document["contexts"]
    document["contexts"] += [{"name": "shop", "context": {**context["context"], "namespace": "shop"}}]
    several = tmp_path / "several"
    several.write_text(yaml.safe_dump(document))
    assert run("explain", "medium", *flags).stderr == "error: there is no pod default/medium\n"
    assert run_json("explain", "medium", "--kubeconfig", str(several), "--context", "shop")[1]["pod"] == "shop/medium"
    assert run_json("explain", "medium", *flags, "-n", "shop")[1]["pod"] == "shop/medium"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{several}")
    assert run_json("explain", "medium", "--context", "shop")[1]["pod"] == "shop/medium"
    nowhere = run("explain", "medium", "--context", "prod")
    assert (nowhere.exit_code, nowhere.stderr.count("\n"), "prod" in nowhere.stderr) == (1, 1, True)


def test_entries_of_several_kubeconfigs_are_put_together(cluster, tmp_path, monkeypatch):
    document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    (tmp_path / "a").write_text(yaml.safe_dump({"contexts": document["contexts"], "users": document["users"]}))
    other = {"name": document["clusters"][0]["name"], "cluster": {"server": "http://127.0.0.1:1"}}
    (tmp_path / "b").write_text(yaml.safe_dump({"clusters": document["clusters"], "current-context": "none"}))
    (tmp_path / "c").write_text(yaml.safe_dump({"clusters": [other]}))
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) for name in "abc"))
    name = document["current-context"]
    assert run_json("explain", "medium", "-n", "shop", "--context", name)[1]["pod"] == "shop/medium"


def test_without_any_kubeconfig(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in (["explain", "p"], ["simulate"], ["quota", "tree"]):
        result = run(*command)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: there is no kubeconfig: use --kubeconfig FILE, ")


def test_explain_of_a_pod_that_has_a_node(cluster, flags):
    result = run("explain", "busy", *flags)
    assert "note: the pod is on node n1; explained as if it were pending and not there" in result.stderr
    assert "Goes to n1: 1 of 2 nodes feasible." in result.stdout


def test_explain_of_a_pod_of_another_scheduler(cluster, flags):
    result = run("explain", "shop/other", *flags)
    note = "note: without --config, the pod of scheduler other-scheduler is evaluated with kube-scheduler's default"
    assert note in result.stderr
    assert result.stdout.startswith("Pod shop/other, profile other-scheduler\n")


def test_explain_of_a_reservation(cluster, flags):
    """Its kind is not defined, then it waits, has a node, and is over."""
    asked = "explain", "reservation/room", *flags
    assert run(*asked).stderr == "error: there is no reservation/room\n"
    definition = document(ROOT / "manifests" / "crds" / "reservations.yaml")
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert run(*asked).stderr == "error: there is no reservation/room\n"
    room = reservation("room")
    room["spec"]["template"]["spec"]["schedulerName"] = "other-scheduler"
    cluster.insert(room)
    assert run("explain", "reservation/rom", *flags).stderr == (
        "error: there is no reservation/rom; there is reservation/room\n"
    )
    result = run(*asked)
    assert result.stdout.startswith("reservation/room, profile other-scheduler\nUnschedulable: 0/2 nodes are available")
    assert "without --config, reservation/room of scheduler other-scheduler is evaluated with" in result.stderr
    cluster.insert(reservation("placed", on="n2"))
    code, answer = run_json("explain", "reservation/placed", *flags)
    assert (code, answer["pod"], answer["anyOf"]) == (0, "reservation/placed", [])
    note = "reservation/placed is on node n2; explained as if it were pending and not there"
    assert note in run("explain", "reservation/placed", *flags).stderr
    over = reservation("over", on="n2")
    over["status"]["phase"] = "Failed"
    cluster.insert(over)
    assert run("explain", "reservation/over", *flags).stderr == "error: reservation/over has finished: Failed\n"


def test_a_mistyped_pod(cluster, flags):
    result = run("explain", "shop/mediun", *flags)
    assert (result.exit_code, result.stderr) == (1, "error: there is no pod shop/mediun; there is shop/medium\n")


def test_a_pod_that_is_done(cluster, flags):
    done = bound("done", "n1")
    done["status"]["phase"] = "Succeeded"
    cluster.restore(done)
    assert run("explain", "done", *flags).stderr == "error: pod default/done has finished: Succeeded\n"


def test_simulate(cluster, flags):
    code, answer = run_json("simulate", *flags)
    assert (code, answer["nodes"], answer["placed"], answer["pending"]) == (3, 2, 0, 2)
    assert answer["notes"] == ["1 pending pods left to another scheduler: other-scheduler"]
    assert run_json("simulate", *flags, "-n", "default")[1]["pods"] == []


def test_more_nodes_like_one_that_there_is(cluster, flags):
    """The copy has n1's daemon, not its other pods: three of four CPUs are free there."""
    code, answer = run_json("simulate", *flags, "--nodes", "2", "--like", "n1")
    assert (code, answer["nodes"]) == (3, 4)
    placed = {one["pod"]: one.get("node", "") for one in answer["pods"]}
    assert placed["shop/medium"] in ("n1-copy-1", "n1-copy-2")
    assert placed["shop/big"] == ""
    _, explained = run_json("explain", "shop/medium", *flags, "--like", "n1")
    assert explained["anyOf"] == ["n1-copy-1"]
    # One of n2 has n2's taint.
    assert run_json("explain", "shop/medium", *flags, "--like", "n2")[1]["anyOf"] == []
    unknown = run("simulate", *flags, "--like", "n9")
    assert (unknown.exit_code, unknown.stderr) == (1, "error: --like n9: there is no such node\n")


def test_a_copy_is_as_a_new_node_comes(cluster, flags):
    cordoned = node("n3", "16", unschedulable=True)
    cordoned["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "team", "value": "b", "effect": "NoSchedule"},
    ]
    cluster.restore(cordoned, pod("large", "12", tolerations=[{"key": "team", "operator": "Exists"}]))
    assert run_json("explain", "large", *flags)[1]["anyOf"] == []
    assert run_json("explain", "large", *flags, "--like", "n3")[1]["anyOf"] == ["n3-copy-1"]


def test_more_nodes_of_a_template(cluster, flags, tmp_path):
    template = tmp_path / "template.yaml"
    template.write_text("templates:\n- nodeName: n${index}\n  weight: 1\n  capacity: {cpu: 8, memory: 32Gi}\n")
    _, answer = run_json("simulate", *flags, "--nodes", "3", "--node-template", str(template))
    # The template's n1 and n2 come beside those that there are.
    assert (answer["nodes"], answer["placed"], answer["pending"]) == (5, 2, 0)


def test_a_kind_that_must_not_be_listed(cluster, flags):
    cluster.forbid("csinodes.storage.k8s.io")
    result = run("explain", "shop/medium", *flags)
    assert result.exit_code == 0
    assert "note: csinodes cannot be listed and count as none: " in result.stderr
    cluster.forbid("nodes")
    result = run("explain", "shop/medium", *flags)
    assert (result.exit_code, result.stderr.startswith("error: nodes cannot be listed: ")) == (1, True)


def test_an_object_that_cannot_be_understood(cluster, flags):
    odd = pod("odd", namespace="shop")
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    cluster.restore(odd)
    result = run("explain", "shop/medium", *flags)
    assert result.exit_code == 0
    assert "note: Pod shop/odd cannot be decoded and is ignored: " in result.stderr


def test_a_server_that_is_not_there(tmp_path):
    with served_cluster(tmp_path) as served:
        kubeconfig = served.kubeconfig
    for command in (["explain", "p"], ["simulate"], ["quota", "tree"]):
        result = run(*command, "--kubeconfig", kubeconfig)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert result.stderr.startswith("error: ")


def test_more_objects_than_a_page_has(cluster, flags):
    cluster.restore(*(pod(f"p{number}", "4", namespace="shop") for number in range(1100)))
    _, answer = run_json("simulate", *flags, "--like", "n1")
    assert len(answer["pods"]) == 1102
    assert len([path for _, path in cluster.requests if path == "/api/v1/pods"]) == 3


def test_the_quota_tree_of_a_cluster_without_quotas(cluster, flags):
    code, answer = run_json("quota", "tree", *flags)
    assert (code, [tree["id"] for tree in answer["trees"]]) == (0, [""])


def test_the_quota_tree_of_a_cluster(cluster, flags):
    for path in (ROOT / "manifests" / "crds").glob("elastic*.yaml"):
        cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text()))
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "shop"},
        "spec": {"min": {"cpu": "2"}, "max": {"cpu": "4"}},
    }
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    member, waiting = bound("member", "n2", "2", namespace="shop"), pod("waiting", "1", namespace="shop")
    for one in (member, waiting):
        one["metadata"]["labels"] = label
    cluster.restore(quota, member, waiting)
    code, report = run_json("quota", "tree", *flags)
    (team,) = (one for one in report["trees"][0]["quotas"] if one["name"] == "team")
    assert (code, team["namespace"], team["pods"], team["running"]) == (0, "shop", 2, 1)
    (cpu,) = (line for line in team["resources"] if line["resource"] == "cpu")
    assert (cpu["min"], cpu["max"], cpu["used"], cpu["request"]) == ("2", "4", "2", "3")
    table = run("quota", "tree", *flags, "-o", "wide").stdout.splitlines()
    assert table[1].split()[:3] == ["QUOTA", "PODS", "RESOURCE"]


def test_forms_of_the_answer(cluster, flags):
    _, value = run_json("explain", "shop/medium", *flags)
    assert yaml.safe_load(run("explain", "shop/medium", *flags, "-o", "yaml").stdout) == value
    _, value = run_json("simulate", *flags)
    assert yaml.safe_load(run("simulate", *flags, "-o", "yaml").stdout) == value
    wide = run("simulate", *flags, "--like", "n1", "-o", "wide").stdout.splitlines()
    assert wide[0].split() == ["POD", "NODE", "FEASIBLE", "NODES", "WORKLOAD", "SCHEDULER"]


def test_of_config_maps_only_the_one_that_is_read_is_listed(cluster, flags):
    assert run("devices", *flags).exit_code == 0
    listed = [path for _, path in cluster.requests if "configmaps" in path]
    assert listed == ["/api/v1/namespaces/koordinator-system/configmaps"]
