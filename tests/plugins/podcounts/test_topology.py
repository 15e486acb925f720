"""Which changes of nodes are changes of the topology."""

import pytest

from koordsched.plugins.shared.podcounts.topology import Topology
from tests.plugins.harness import Bench
from tests.plugins.objects import node, pod

ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("changes", "labels", "taints"),
    [
        ([node("n1", labels={ZONE: "a"})], True, False),
        ([node("n1", taints=[("life",)])], False, True),
        ([node("n1", cpu="8"), pod("p", on="n1")], False, False),
        ([node(f"m{i}", labels={ZONE: "a"}) for i in range(100)], True, True),
    ],
    ids=["labels", "taints", "resources", "many nodes"],
)
def test_labels_and_taints_count_when_they_change_and_no_more_than_once(changes, labels, taints):
    bench = Bench(node("n1"), node("n2"))
    topology = Topology(bench.cluster)

    def seen():
        topology.refresh()
        return topology.labels, topology.taints

    before = seen()
    assert seen() == before
    for item in changes:
        bench.add(item)
    after = seen()
    assert [now > then for now, then in zip(after, before, strict=True)] == [labels, taints]
    assert seen() == after


def test_pods_that_ask_for_the_same_nodes_share_what_is_known_of_them():
    bench = Bench(node("n1", labels={ZONE: "a"}), node("n2"))
    topology = Topology(bench.cluster)

    def eligible(**spec):
        shape = bench.pod(pod("p", **spec)).shape
        return topology.eligible((ZONE,), shape, honor_affinity=True, honor_taints=True)

    plain = eligible()
    assert eligible(priority=7) is plain
    assert eligible(nodeSelector={ZONE: "a"}) is not plain
    topology.refresh()
    plain.refresh()
    assert plain.mask.tolist() == [True, False]
