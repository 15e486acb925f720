"""A cluster that replaces its nodes all day takes what its nodes take, not what all nodes took that it ever had."""

import msgspec
import pytest

from koordsched.plugins.shared.podcounts.index import PodIndex
from tests.cluster.objects import wire_node, wire_pod
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node_affinity, pod, term
from tests.plugins.podcounts.test_replaced_nodes import HOSTNAME, RACK, company, spread
from tests.steps import counted

NODES = 200

WAITING = (
    pod("spread", container(cpu="100m"), labels={"app": "web"}, topologySpreadConstraints=[spread(HOSTNAME, "web")]),
    pod("lonely", container(cpu="100m"), labels={"app": "web"}, affinity=company("podAntiAffinity", HOSTNAME, "web")),
    pod("picky", container(cpu="100m"), affinity=node_affinity([term((HOSTNAME, "NotIn", "node-3", "node-5"))])),
    pod("racks", container(cpu="100m"), labels={"app": "web"}, topologySpreadConstraints=[spread(RACK, "web")]),
)


class Autoscaler:
    """Takes the oldest node away and adds one that nothing is like: its name, a label key, a taint, a resource."""

    def __init__(self):
        self.offline = scheduler(WAITING)
        self.cluster = self.offline.cluster
        self.template = wire_node("template", taints=[("life", "PreferNoSchedule", "x")])
        self.serial = 0
        for _ in range(NODES):
            self.add()

    def add(self):
        name = f"node-{self.serial}"
        labels = {HOSTNAME: name, RACK: f"rack-{self.serial // 10}", f"example.com/{name}": "yes"}
        taint = msgspec.structs.replace(self.template.spec.taints[0], value=name)
        allocatable = {**self.template.status.allocatable, f"example.com/chip-{self.serial}": "1"}
        self.cluster.upsert_node(
            msgspec.structs.replace(
                self.template,
                metadata=msgspec.structs.replace(self.template.metadata, name=name, labels=labels),
                spec=msgspec.structs.replace(self.template.spec, taints=(taint,)),
                status=msgspec.structs.replace(self.template.status, allocatable=allocatable),
            )
        )
        self.cluster.set_pod(self.cluster.pods.build(wire_pod("of-" + name, on=name, labels={"app": "web"})))
        self.serial += 1

    def replace(self):
        name = f"node-{self.serial - NODES}"
        self.cluster.remove_pod(f"uid-default-of-{name}")
        assert self.cluster.remove_node(name)
        self.add()

    def look(self):
        for key in self.offline.pending:
            self.offline.explain(key)

    def sizes(self):
        """How much is kept, by what."""
        table = self.cluster.table
        return {
            "rows": table.size,
            "label keys": len(table._labels),
            "host names": len(table.label_column(HOSTNAME).values),
            "racks": len(table.label_column(RACK).values),
            "sets of taints": len(table.taint_sets),
            "resources": len(table.resource_names),
            "groups of pods": sum(len(groups) for groups in self.cluster.shared(PodIndex)._groups.values()),
            "counters": len(self.cluster.shared(PodIndex)),
            "shapes": len(self.cluster.shapes),
            "label sets": len(self.cluster.label_sets),
            "orphans": len(self.cluster.orphans),
            "images": len(table.images.by_name),
        }


def replace(cluster, names, looks):
    for i in range(names):
        cluster.replace()
        if i % (names // looks) == 0:
            cluster.look()


def steps_of_fifty(cluster):
    """What the next fifty nodes take."""
    with counted() as steps:
        replace(cluster, 50, looks=5)
    return steps.count


@pytest.mark.parametrize("names", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_tables_and_steps_per_node_do_not_grow_with_the_names_that_ever_were(names):
    cluster = Autoscaler()
    cluster.look()
    replace(cluster, 500, looks=50)
    before, first = cluster.sizes(), steps_of_fifty(cluster)
    replace(cluster, names, looks=100)
    cluster.look()
    after = cluster.sizes()
    assert {what: size for what, size in after.items() if size > before[what] + 2} == {}
    assert after["rows"] == NODES
    assert after["label keys"] == NODES + 2
    assert after["host names"] <= NODES + 2
    assert after["racks"] <= NODES // 10 + 3
    assert after["sets of taints"] <= NODES + 2
    # Two for each resource of a node, given up when as many are of no use.
    assert len(cluster.cluster.table._columns) < 3 * 2 * NODES
    assert steps_of_fifty(cluster) < 1.5 * first
