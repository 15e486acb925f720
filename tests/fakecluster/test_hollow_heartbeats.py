from collections import Counter

from tests.fakecluster.timeline import Cluster, condition


def test_leases_and_statuses_are_renewed_at_their_intervals():
    cluster = Cluster(nodes=20, bind=False)
    cluster.run(60)
    leases, statuses = Counter(), Counter()
    cluster.registry.subscribe_changes(
        cluster.resource("leases"), lambda change: leases.update([change.record.name]), replay=False
    )
    cluster.registry.subscribe_changes(
        cluster.resource("nodes"), lambda change: statuses.update([change.record.name]), replay=False
    )
    cluster.run(3000)
    assert set(leases) == {f"node-{index:02}" for index in range(20)}
    # 10 s and 300 s, up to 4 % later each time.
    assert all(287 <= count <= 301 for count in leases.values())
    assert all(9 <= count <= 11 for count in statuses.values())
    lease = cluster.get("leases", "node-07", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "node-07"
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_heartbeats_are_spread_over_the_interval():
    cluster = Cluster(nodes=200, bind=False)
    cluster.run(100)
    seconds = Counter()
    cluster.registry.subscribe_changes(
        cluster.resource("leases"), lambda change: seconds.update([int(cluster.time.now())]), replay=False
    )
    cluster.run(100)
    assert max(seconds.values()) < 60
    assert sum(seconds.values()) > 1800


def test_nodes_stay_ready_for_a_day():
    cluster = Cluster(nodes=3, bind=False)
    cluster.run(86400)
    for node in cluster.list("nodes"):
        assert condition(node, "Ready") == ("True", "KubeletReady")
        assert "taints" not in node["spec"]


def test_a_missing_lease_is_made_again():
    cluster = Cluster(nodes=1, bind=False)
    cluster.run(20)
    cluster.delete("leases", "node-0", "kube-node-lease")
    cluster.run(11)
    assert cluster.exists("leases", "node-0", "kube-node-lease")


def test_a_deleted_node_stops_beating():
    cluster = Cluster(nodes=1, bind=False)
    cluster.run(20)
    cluster.delete("nodes", "node-0")
    cluster.run(60)
    assert not cluster.exists("leases", "node-0", "kube-node-lease")
    assert not cluster.exists("nodes", "node-0")


def test_after_stop_nothing_moves():
    cluster = Cluster(nodes=3)
    cluster.run(20)
    cluster.hollow.stop()
    cluster.controllers.stop()
    version = cluster.registry.store.rv
    cluster.run(600)
    assert cluster.registry.store.rv == version
