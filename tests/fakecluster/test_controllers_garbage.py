import pytest

from tests.fakecluster.timeline import Cluster, definition_of_things, namespace, workload


def config_map(name, *owners, **metadata):
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    meta = {"name": name, **metadata}
    if references:
        meta["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def config_maps(cluster):
    return {entry["metadata"]["name"] for entry in cluster.list("configmaps", "default")}


def test_background_deletion_takes_all_descendants():
    cluster = Cluster()
    cluster.create(workload("Deployment", "web", 3))
    cluster.run(10)
    cluster.delete("deployments", "web", propagation="Background")
    assert not cluster.exists("deployments", "web")
    cluster.run(20)
    assert not cluster.list("replicasets")
    assert not cluster.pods()


def test_foreground_deletion_takes_the_owner_last():
    cluster = Cluster(stop_delay=3.0)
    cluster.create(workload("Deployment", "web", 3))
    cluster.run(10)
    cluster.delete("deployments", "web", propagation="Foreground")
    cluster.run(1)
    assert cluster.get("deployments", "web")["metadata"]["deletionTimestamp"]
    assert cluster.list("replicasets")
    order = []
    for plural in ("pods", "replicasets", "deployments"):
        cluster.registry.subscribe(
            cluster.resource(plural),
            lambda kind, old, new: order.append(new["kind"]) if kind == "DELETED" else None,
            replay=False,
        )
    cluster.run(30)
    assert order == ["Pod", "Pod", "Pod", "ReplicaSet", "Deployment"]


def test_orphaning_leaves_the_dependents_alone():
    cluster = Cluster()
    owner = cluster.create(config_map("owner"))
    cluster.create(config_map("child", owner))
    cluster.delete("configmaps", "owner", propagation="Orphan")
    cluster.run(5)
    assert config_maps(cluster) == {"child"}
    assert "ownerReferences" not in cluster.get("configmaps", "child")["metadata"]


def test_an_object_lives_as_long_as_one_of_its_owners():
    cluster = Cluster()
    first, second = cluster.create(config_map("first")), cluster.create(config_map("second"))
    cluster.create(config_map("child", first, second))
    cluster.delete("configmaps", "first")
    cluster.run(1)
    references = cluster.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in references] == ["second"]
    cluster.delete("configmaps", "second")
    cluster.run(1)
    assert config_maps(cluster) == set()


@pytest.mark.parametrize("elsewhere", [True, False])
def test_an_owner_that_does_not_exist_is_no_owner(elsewhere):
    cluster = Cluster()
    if elsewhere:
        # The owner must be in the namespace of what it owns.
        cluster.create(namespace("other"))
        owner = cluster.create(config_map("owner", namespace="other"))
    else:
        owner = config_map("ghost", uid="00000000-0000-4000-8000-000000000000")
    cluster.create(config_map("child", owner))
    cluster.run(1)
    assert config_maps(cluster) == set()


def test_a_new_owner_of_the_same_name_is_another_one():
    cluster = Cluster()
    owner = cluster.create(config_map("owner"))
    cluster.create(config_map("child", owner))
    cluster.delete("configmaps", "owner")
    cluster.create(config_map("owner"))
    cluster.run(1)
    assert config_maps(cluster) == {"owner"}


def test_custom_resources_own_and_are_owned():
    cluster = Cluster()
    cluster.create(definition_of_things())
    cluster.run(2)
    thing = cluster.create({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}})
    cluster.create(config_map("child", thing))
    cluster.run(2)
    assert config_maps(cluster) == {"child"}
    cluster.delete("things", "t")
    cluster.run(2)
    assert config_maps(cluster) == set()


def test_deleting_a_namespace_empties_it_first():
    cluster = Cluster(stop_delay=3.0)
    cluster.create(namespace("team"))
    made = workload("Deployment", "web", 3)
    made["metadata"]["namespace"] = "team"
    cluster.create(made)
    cluster.create(config_map("settings", namespace="team"))
    cluster.create(config_map("stuck", namespace="team", finalizers=["example.com/hold"]))
    cluster.run(10)
    cluster.delete("namespaces", "team")
    cluster.run(1)
    assert cluster.get("namespaces", "team")["status"]["phase"] == "Terminating"
    cluster.run(20)
    assert {entry["metadata"]["name"] for entry in cluster.list("configmaps", "team")} == {"stuck"}
    assert not cluster.list("pods", "team")
    assert not cluster.list("deployments", "team")
    [remaining] = [
        entry
        for entry in cluster.get("namespaces", "team")["status"]["conditions"]
        if entry["type"] == "NamespaceContentRemaining"
    ]
    assert remaining["message"] == "Some resources are remaining: configmaps has 1 resource instances"
    cluster.patch("configmaps", "stuck", {"metadata": {"finalizers": None}}, namespace_="team")
    cluster.run(2)
    assert not cluster.exists("namespaces", "team")
