"""Which nodes get which resources through DRA (dra spec 3.10, Filter; cases 88, 108 and 111)."""

import numpy as np
import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceClass
from koordsched.plugins.dynamicresources.extended import ServedResources
from koordsched.plugins.shared.extendedresources import ClassesByResource
from tests.plugins.dynamicresources.extended.objects import device_class
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod


class Served:
    """Nodes and classes, and what is claimed on which node."""

    def __init__(self, nodes, classes):
        self.bench = Bench(*nodes)
        self.classes = ClassesByResource()
        for item in classes:
            self.classes.class_changed(None, convert(item, DeviceClass))
        self.served = ServedResources(self.bench.cluster.table, self.classes)

    def split(self, item):
        """Node -> what is claimed there as {request: (class, count)}, or None where the pod does not fit."""
        shape, table = self.bench.pod(item).shape, self.bench.cluster.table
        found = self.served.split(shape, self.bench.rows)
        nodes = {}
        for at, row in enumerate(self.bench.rows.tolist()):
            special = found.groups[found.group_of[at]]
            assert special is self.served.on_row(shape, row) or special == self.served.on_row(shape, row)
            unfit = found.unfit is not None and found.unfit[at]
            claimed = {r.name: (r.exactly.device_class_name, r.exactly.count) for r in special.requests}
            nodes[table.names[row]] = None if unfit else claimed
        return nodes

    def concerns(self, item):
        shape = self.bench.pod(item).shape
        return self.served.may_concern(shape), self.served.concerns(shape)


GPU, NIC = device_class("a", "x.io/gpu"), device_class("b", "x.io/nic")


def test_dra_case_88_a_device_plugin_serves_one_of_two():
    served = Served([node("n1", **{"x.io/gpu": 4, "x.io/nic": 0}), node("n2")], [GPU, NIC])
    wanted = pod("p", container(**{"x.io/gpu": 1, "x.io/nic": 1}))
    assert served.split(wanted) == {
        "n1": {"container-0-request-1": ("b", 1)},
        "n2": {"container-0-request-0": ("a", 1), "container-0-request-1": ("b", 1)},
    }


def test_dra_case_108_nothing_is_claimed_where_a_device_plugin_serves_it():
    served = Served([node("n1", **{"x.io/gpu": 1}), node("n2")], [GPU])
    wanted = pod("p", container(**{"x.io/gpu": 1}))
    assert served.split(wanted) == {"n1": {}, "n2": {"container-0-request-0": ("a", 1)}}
    assert served.concerns(wanted) == (True, True)


def test_dra_case_108_a_resource_from_nowhere_does_not_fit():
    nodes = [node("n1"), node("n2", **{"x.io/nope": 0}), node("n3", **{"x.io/nope": 3})]
    served = Served(nodes, [GPU])
    wanted = pod("p", container(**{"x.io/gpu": 1, "x.io/nope": 1}))
    claimed = {"container-0-request-0": ("a", 1)}
    assert served.split(wanted) == {"n1": None, "n2": claimed, "n3": claimed}
    served.bench.add(node("n1", **{"x.io/nope": 0}))
    served.bench.add(node("n3"))
    served.bench.add(node("n4"))
    assert served.split(wanted) == {"n1": claimed, "n2": claimed, "n3": None, "n4": None}
    served.bench.cluster.remove_node("n1")
    served.bench.add(node("n5"))  # on the row that n1 had
    assert served.split(wanted) == {"n5": None, "n2": claimed, "n3": None, "n4": None}


def test_dra_case_108_one_of_two_resources_from_nowhere_is_enough():
    nodes = [node("n1", **{"x.io/one": 1}), node("n2", **{"x.io/two": 1}), node("n3", **{"x.io/one": 1, "x.io/two": 1})]
    wanted = pod("p", container(**{"x.io/one": 1, "x.io/two": 1}))
    assert Served(nodes, [GPU]).split(wanted) == {"n1": None, "n2": None, "n3": {}}


def test_dra_case_108_without_a_class_the_plugin_has_nothing_to_do():
    served = Served([node("n1")], [])
    assert served.concerns(pod("p", container(**{"x.io/gpu": 1}))) == (True, False)
    assert served.concerns(pod("p", container(cpu=1, **{"hugepages-2Mi": "2Mi"}))) == (False, False)
    served.classes.class_changed(None, convert(GPU, DeviceClass))
    assert served.concerns(pod("p", container(**{"x.io/gpu": 1}))) == (True, True)


def test_b6_with_a_user_claim_nothing_is_claimed_where_a_device_plugin_serves_the_resource():
    """Case 111: no empty special claim is allocated or created; elsewhere there is one."""
    served = Served([node("n1", **{"x.io/gpu": 1}), node("n2")], [GPU])
    claims = [{"name": "c", "resourceClaimName": "c"}]
    wanted = pod("p", container(cpu=1, **{"x.io/gpu": 1}), resourceClaims=claims)
    assert served.split(wanted) == {"n1": {}, "n2": {"container-0-request-1": ("a", 1)}}


def test_a_resource_of_the_overhead_alone_is_not_claimed():
    served = Served([node("n1")], [GPU])
    assert served.split(pod("p", container(cpu=1), overhead={"x.io/gpu": "1"})) == {"n1": {}}


def test_another_class_of_the_resource_is_another_request():
    served = Served([node("n1")], [device_class("a", "x.io/gpu", 1)])
    wanted = pod("p", container(**{"x.io/gpu": 1}))
    assert served.split(wanted)["n1"] == {"container-0-request-0": ("a", 1)}
    served.classes.class_changed(None, convert(device_class("c", "x.io/gpu", 2), DeviceClass))
    assert served.split(wanted)["n1"] == {"container-0-request-0": ("c", 1)}


@pytest.mark.parametrize("count", [1, 5, 62, 63, 90])
def test_any_number_of_resources_on_nodes_that_differ(count):
    rng = np.random.default_rng(count)
    names = [f"x.io/r{i:02}" for i in range(count)]
    offers = {f"n{k}": {name: 1 for name in names if rng.random() < 0.5} for k in range(12)}
    offers["all"], offers["none"] = dict.fromkeys(names, 1), {}
    served = Served(
        [node(name, **offered) for name, offered in offers.items()],
        [device_class(f"c{i:02}", name) for i, name in enumerate(names)],
    )
    found = served.split(pod("p", container(**dict.fromkeys(names, 1))))
    for name, offered in offers.items():
        wanted = {("c" + resource[-2:], 1) for resource in names if resource not in offered}
        assert set(found[name].values()) == wanted


def test_no_rows_are_no_groups_to_look_at():
    served = Served([node("n1")], [GPU])
    shape = served.bench.pod(pod("p", container(**{"x.io/gpu": 1}))).shape
    assert len(served.served.split(shape, np.zeros(0, dtype=np.intp)).group_of) == 0
