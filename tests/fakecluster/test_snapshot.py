import json
import random

import pytest

from koordsched.fakecluster import snapshot
from koordsched.fakecluster.cluster import new_cluster
from koordsched.fakecluster.snapshot import SnapshotError
from tests.fakecluster.timeline import Cluster, Timeline, definition_of_things, namespace, workload


def empty_registry(seed=1):
    timeline = Timeline()
    return new_cluster(timeline, random.Random(seed), timeline.call_later)


def contents(directory):
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def busy_cluster():
    cluster = Cluster()
    cluster.create(namespace("team"))
    for name, place in (("web", "default"), ("api", "team")):
        made = workload("Deployment", name, 3)
        made["metadata"] |= {"namespace": place, "annotations": {"text": "yes: 'no' \"ü\"\n\t2020-01-01\n", "n": "007"}}
        cluster.create(made)
    cluster.create(definition_of_things())
    cluster.run(30)
    cluster.create(
        {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t", "namespace": "team"},
            "spec": {"when": "2020-01-01T00:00:00Z", "number": "1e3", "float": 1.5, "on": True, "nothing": None},
        }
    )
    cluster.delete("pods", cluster.pods()[0]["metadata"]["name"])
    return cluster


def test_a_cluster_comes_back_exactly(tmp_path):
    cluster = busy_cluster()
    written = snapshot.dump(cluster.registry, tmp_path / "first")
    again = empty_registry()
    assert snapshot.load(again, tmp_path / "first") == written
    for resource in cluster.registry.resources():
        if "list" in resource.verbs:
            there = again.resource(resource.group, resource.version, resource.plural)
            assert again.list(there) == cluster.registry.list(resource), resource.qualified
    snapshot.dump(again, tmp_path / "second")
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    # Versions go on above the restored ones.
    made = again.create(again.resource("", "v1", "configmaps"), "default", {"metadata": {"name": "new"}})
    assert int(made["metadata"]["resourceVersion"]) > cluster.registry.store.rv


def test_files_are_for_their_owner_alone(tmp_path):
    """There are Secrets among the objects."""
    registry = empty_registry()
    registry.create(registry.resource("", "v1", "secrets"), "default", {"metadata": {"name": "s"}})
    snapshot.dump(registry, tmp_path / "dump")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "dump").rglob("*.yaml")}
    assert modes["secrets.yaml"] == 0o600
    assert set(modes.values()) == {0o600}


def test_one_file_per_resource_and_namespace(tmp_path):
    snapshot.dump(busy_cluster().registry, tmp_path)
    files = set(contents(tmp_path))
    assert {
        "_cluster/nodes.yaml",
        "_cluster/namespaces.yaml",
        "_cluster/customresourcedefinitions.apiextensions.k8s.io.yaml",
        "default/pods.yaml",
        "team/pods.yaml",
        "team/deployments.apps.yaml",
        "team/things.example.com.yaml",
        "kube-node-lease/leases.coordination.k8s.io.yaml",
    } <= files


def test_a_restored_cluster_lives_on(tmp_path):
    cluster = busy_cluster()
    snapshot.dump(cluster.registry, tmp_path)
    later = Cluster(nodes=0)
    snapshot.load(later.registry, tmp_path)
    later.run(30)
    assert len([pod for pod in later.pods() if pod["status"]["phase"] == "Running"]) == 3
    later.patch("deployments", "api", {"spec": {"replicas": 5}}, namespace_="team")
    later.run(30)
    assert later.get("deployments", "api", "team")["status"]["availableReplicas"] == 5
    addresses = [pod["status"]["podIP"] for pod in later.list("pods") if pod["status"]["phase"] == "Running"]
    assert len(set(addresses)) == len(addresses) == 8
    later.run(300)
    assert all("taints" not in node["spec"] for node in later.list("nodes"))


def test_plain_manifests_and_lists_are_loaded(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "all.yml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Node, metadata: {name: n1}}\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: team}}\n"
    )
    (tmp_path / "more.json").write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}')
    registry = empty_registry()
    assert snapshot.load(registry, tmp_path) == 3
    nodes = registry.list(registry.resource("", "v1", "nodes"))
    assert [node["metadata"]["name"] for node in nodes] == ["n1", "n2"]
    assert all(node["metadata"]["uid"] and node["metadata"]["resourceVersion"] for node in nodes)


def test_manifests_of_another_version_than_the_stored_one(tmp_path):
    definition = definition_of_things()
    (stored,) = definition["spec"]["versions"]
    definition["spec"]["versions"].append({**stored, "name": "v1alpha1", "storage": False})
    thing = {"apiVersion": "example.com/v1alpha1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}}
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [thing, definition]}))
    registry = empty_registry()
    assert snapshot.load(registry, tmp_path) == 2
    for version in ("v1", "v1alpha1"):
        found = registry.get(registry.resource("example.com", version, "things"), "default", "t")
        assert found["apiVersion"] == f"example.com/{version}"


def test_a_deployment_from_a_manifest_makes_one_replica_set(tmp_path):
    made = workload("Deployment", "web", 3)
    made["metadata"]["namespace"] = "default"
    (tmp_path / "web.json").write_text(json.dumps(made))
    cluster = Cluster()
    snapshot.load(cluster.registry, tmp_path)
    cluster.run(60)
    assert len(cluster.list("replicasets")) == 1
    assert len(cluster.pods()) == 3


GOOD = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"

# file content -> message after the file's name
BAD = [
    ("a: [", "not valid YAML: "),
    ("- " * 100_000, "not valid YAML: nested more than 1000 levels deep"),
    (GOOD + "---\n- 1\n", "document 2: not an object but list"),
    (GOOD + "---\nkind: Node\n", "document 2: apiVersion is missing"),
    ("apiVersion: v1\nkind: Node\nmetadata: {}\n", "document 1: Node: metadata.name is missing"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "document 1: Pod p: metadata.namespace is missing"),
    ("apiVersion: v1\nkind: Nod\nmetadata: {name: p}\n", 'document 1: no matches for kind "Nod" in version "v1"'),
    (
        "apiVersion: v1\nkind: Node\nmetadata: {name: a, resourceVersion: x}\n",
        "document 1: Node a: resourceVersion 'x' is not a number",
    ),
    (GOOD + "---\n" + GOOD, "document 2: Node a is also in "),
]


@pytest.mark.parametrize("text, message", BAD)
def test_what_cannot_be_loaded_is_named(tmp_path, text, message):
    path = tmp_path / "nodes.yaml"
    path.write_text(text)
    registry = empty_registry()
    with pytest.raises(SnapshotError) as caught:
        snapshot.load(registry, tmp_path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert not registry.list(registry.resource("", "v1", "nodes"))


def test_directories_in_the_way(tmp_path):
    registry = empty_registry()
    with pytest.raises(SnapshotError, match="not a directory"):
        snapshot.load(registry, tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="not empty: a snapshot needs a directory of its own"):
        snapshot.dump(registry, tmp_path)
    with pytest.raises(SnapshotError, match="file"):
        snapshot.dump(registry, tmp_path / "file")
