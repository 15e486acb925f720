import pytest

from tests.fakecluster.timeline import ONE_KIND, Cluster

DRIVER = "disk.csi.example.com"


def claim(name="data", storage="5Gi", storage_class="", **spec):
    body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}},
        "storageClassName": storage_class,
        **spec,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": body}


def volume(name, storage="10Gi", storage_class="", modes=("ReadWriteOnce",), labels=None, **spec):
    body = {
        "capacity": {"storage": storage},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/x"},
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": body,
    }


def storage_class(name, mode, provisioner=DRIVER):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def phase(cluster, name="data"):
    made = cluster.get("persistentvolumeclaims", name)
    return made["status"].get("phase"), made["spec"].get("volumeName")


# volumes on offer, claim -> the one that is taken
OFFERS = [
    ([volume("a")], claim(), "a"),
    ([volume("a", "10Gi"), volume("b", "6Gi"), volume("c", "4Gi")], claim(), "b"),
    ([volume("b", "6Gi"), volume("a", "6Gi")], claim(), "a"),
    ([volume("a", "4Gi")], claim(), None),
    ([volume("a", storage_class="fast")], claim(), None),
    ([volume("a", storage_class="fast")], claim(storage_class="fast"), "a"),
    ([volume("a", modes=["ReadWriteMany"])], claim(), None),
    ([volume("a", modes=["ReadWriteOnce", "ReadOnlyMany"])], claim(), "a"),
    ([volume("a", volumeMode="Block")], claim(), None),
    ([volume("a", labels={"d": "x"}), volume("b")], claim(selector={"matchLabels": {"d": "x"}}), "a"),
    ([volume("a", claimRef={"namespace": "default", "name": "data"}, storage_class="z"), volume("b")], claim(), "a"),
    ([volume("a", claimRef={"namespace": "default", "name": "other"})], claim(), None),
    ([volume("a"), volume("b")], claim(volumeName="b"), "b"),
]


ORDERS = [
    *[([*offers, demand], offers, expected) for offers, demand, expected in OFFERS],
    # With several volumes a claim that waits takes the first that comes.
    *[([demand, *offers], offers, expected) for offers, demand, expected in OFFERS if len(offers) == 1],
]


@pytest.mark.parametrize("objects, offers, expected", ORDERS)
def test_static_binding(objects, offers, expected):
    cluster = Cluster(nodes=0)
    for obj in objects:
        cluster.create(obj)
        cluster.run(1)
    if expected is None:
        assert phase(cluster) == ("Pending", None)
        return
    assert phase(cluster) == ("Bound", expected)
    bound = cluster.get("persistentvolumes", expected)
    made = cluster.get("persistentvolumeclaims", "data")
    assert bound["status"]["phase"] == "Bound"
    assert bound["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
    assert made["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    assert made["status"]["capacity"] == bound["spec"]["capacity"]
    for name in {offer["metadata"]["name"] for offer in offers} - {expected}:
        assert cluster.get("persistentvolumes", name)["status"]["phase"] == "Available"


def test_an_immediate_class_provisions_after_the_delay():
    cluster = Cluster(nodes=0, provision_delay=3.0)
    cluster.create(storage_class("now", "Immediate"))
    cluster.create(claim(storage_class="now"))
    cluster.run(2.5)
    assert phase(cluster) == ("Pending", None)
    cluster.run(1)
    made = cluster.get("persistentvolumeclaims", "data")
    name = f"pvc-{made['metadata']['uid']}"
    assert phase(cluster) == ("Bound", name)
    bound = cluster.get("persistentvolumes", name)
    assert bound["spec"]["csi"] == {"driver": DRIVER, "volumeHandle": name}
    assert bound["spec"]["capacity"] == {"storage": "5Gi"}
    assert made["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == DRIVER
    # Its reclaim policy is Delete: it goes with its claim.
    cluster.delete("persistentvolumeclaims", "data")
    cluster.run(2)
    assert not cluster.list("persistentvolumes")


def test_a_waiting_class_provisions_where_the_scheduler_chose():
    template = {
        "templates": [
            {
                **ONE_KIND["templates"][0],
                "csiDrivers": [{"name": DRIVER, "topologyKeys": ["topology.kubernetes.io/zone"]}],
            }
        ]
    }
    cluster = Cluster(template=template)
    cluster.create(storage_class("wait", "WaitForFirstConsumer"))
    cluster.create(volume("free", storage_class="wait"))
    cluster.create(claim(storage_class="wait"))
    cluster.run(30)
    assert phase(cluster) == ("Pending", None)
    reasons = {event["reason"] for event in cluster.list("events", "default")}
    assert "WaitForFirstConsumer" in reasons
    chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}}
    cluster.patch("persistentvolumeclaims", "data", chosen)
    cluster.run(2)
    status, name = phase(cluster)
    assert (status, name[:4]) == ("Bound", "pvc-")
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b"]}
    terms = cluster.get("persistentvolumes", name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [expression]}]


def test_a_waiting_claim_takes_the_volume_that_the_scheduler_chose():
    cluster = Cluster()
    cluster.create(storage_class("local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner"))
    cluster.create(volume("disk-1", storage_class="local"))
    made = cluster.create(claim(storage_class="local"))
    cluster.run(5)
    assert phase(cluster) == ("Pending", None)
    reference = {
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "data",
        "uid": made["metadata"]["uid"],
    }
    cluster.patch("persistentvolumes", "disk-1", {"spec": {"claimRef": reference}})
    cluster.run(1)
    assert phase(cluster) == ("Bound", "disk-1")
    cluster.delete("persistentvolumeclaims", "data")
    cluster.run(1)
    assert cluster.get("persistentvolumes", "disk-1")["status"]["phase"] == "Released"


def test_a_claim_that_loses_its_volume_is_lost():
    cluster = Cluster(nodes=0)
    cluster.create(volume("a"))
    cluster.create(claim())
    cluster.run(1)
    cluster.delete("persistentvolumes", "a")
    cluster.run(1)
    assert phase(cluster) == ("Lost", "a")


def test_a_claim_of_an_unknown_class_says_so_and_binds_once_it_exists():
    cluster = Cluster(nodes=0)
    cluster.create(claim(storage_class="later"))
    cluster.run(1)
    [event] = cluster.list("events", "default")
    assert event["message"] == 'storageclass.storage.k8s.io "later" not found'
    cluster.create(storage_class("later", "Immediate"))
    cluster.run(3)
    assert phase(cluster)[0] == "Bound"
