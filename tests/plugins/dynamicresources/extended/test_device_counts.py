"""Devices of a class on nodes, and those in use, as scoring reads them (dra spec 4)."""

from random import Random

import msgspec
import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import AllocationResult, ResourceSlice
from koordsched.cluster.changelog import Facet
from koordsched.config.plugin_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from koordsched.plugins.dynamicresources.extended import DeviceCounts
from koordsched.plugins.shared.extendedresources import ExtendedResources
from tests.parity.records import load
from tests.plugins.dynamicresources.extended.naive import device_totals
from tests.plugins.dynamicresources.extended.objects import (
    GATES,
    allocation,
    device_class,
    in_rack,
    resource_slice,
)
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod

GPU = "x.io/gpu"


def by_driver(device_class, driver, device):
    """A class chooses the devices of the driver in its config, for lack of CEL; a broken device cannot be judged."""
    if "broken" in device.attributes:
        return None
    return not device_class.metadata.name.startswith("only-") or device_class.metadata.name == f"only-{driver}"


class Counted:
    """Nodes, classes and slices, with devices that are counted."""

    def __init__(self, *objects, matches=by_driver, tracked=(GPU,)):
        self.bench = Bench()
        self.bench.handle.features = GATES
        self.extended = ExtendedResources.shared(self.bench.handle)
        self.slices = {}
        self.counts = DeviceCounts(
            self.bench.cluster.table, self.extended.classes, matches, lambda: list(self.slices.values())
        )
        for resource in tracked:
            self.extended.scored(resource)
        self.extended.count_with(self.counts)
        for item in objects:
            self.put(item)

    def put(self, item):
        if item["kind"] == "ResourceSlice":
            new = convert(item, ResourceSlice)
            old = self.slices.get(new.metadata.name)
            self.slices[new.metadata.name] = new
            self.counts.slice_changed(old, new)
        else:
            self.bench.add(item)

    def drop_slice(self, name):
        self.counts.slice_changed(self.slices.pop(name), None)

    def allocate(self, item):
        self.counts.allocated(convert(item, AllocationResult))

    def release(self, item):
        self.counts.released(convert(item, AllocationResult))

    def totals(self, resource=GPU):
        """Node -> (devices, in use); the same whatever form the rows come in."""
        table, rows = self.bench.cluster.table, self.bench.rows
        devices, in_use = self.counts.on_rows(resource, rows)
        found = {table.names[row]: (int(devices[at]), int(in_use[at])) for at, row in enumerate(rows.tolist())}
        for row in rows.tolist():
            assert self.counts.on_row(resource, row) == found[table.names[row]]
        everywhere, _ = self.counts.on_rows(resource, table.all_rows)
        assert int(everywhere.sum()) == int(devices.sum())
        return found


N1, N2 = node("n1", labels={"rack": "r1"}), node("n2", labels={"rack": "r2"})
CLASS = device_class("a", GPU)


def test_devices_of_each_kind_of_reach():
    per_device = [
        ("a", {"nodeName": "n1"}),
        ("b", {"nodeSelector": in_rack("r2")}),
        ("c", {"allNodes": True}),
        "nowhere",
    ]
    found = Counted(
        N1,
        N2,
        CLASS,
        resource_slice("s1", ["d0", "d1"], nodeName="n1"),
        resource_slice("s2", ["d2"], nodeSelector=in_rack("r1", "r2")),
        resource_slice("s3", per_device, pool="q", per_device=True),
    )
    assert found.totals() == {"n1": (5, 0), "n2": (3, 0)}
    found.put(node("n3"))
    assert found.totals()["n3"] == (1, 0)
    found.put(node("n3", labels={"rack": "r2"}))
    assert found.totals()["n3"] == (3, 0)
    found.put(node("n3", labels={"rack": "r3"}))
    assert found.totals()["n3"] == (1, 0)
    found.drop_slice("s2")
    found.put(resource_slice("s3", ["a"], pool="q", nodeName="n2"))
    assert found.totals() == {"n1": (2, 0), "n2": (1, 0), "n3": (0, 0)}


def test_devices_in_use_are_those_of_allocations():
    found = Counted(N1, CLASS, resource_slice("s", ["d0", "d1", "g"], nodeName="n1"))
    found.allocate(allocation("d0"))
    assert found.totals() == {"n1": (3, 1)}
    found.allocate(allocation("d1", adminAccess=True))
    assert found.totals() == {"n1": (3, 1)}
    for share in ("u", "v"):
        found.allocate(allocation("g", shareID=share))
    assert found.totals() == {"n1": (3, 2)}
    found.release(allocation("g", shareID="u"))
    assert found.totals() == {"n1": (3, 2)}
    found.release(allocation("g", shareID="v"))
    found.allocate(allocation("gone"))
    assert found.totals() == {"n1": (3, 1)}
    found.put(resource_slice("t", ["gone"], nodeName="n1"))
    assert found.totals() == {"n1": (4, 2)}


def test_devices_are_counted_again_for_another_class():
    found = Counted(
        N1,
        device_class("only-drv", GPU, 1),
        resource_slice("s", ["d0", "d1"], nodeName="n1"),
        resource_slice("t", ["d0"], driver="other", nodeName="n1"),
    )
    assert found.totals() == {"n1": (2, 0)}
    found.put(device_class("only-other", GPU, 2))
    assert found.totals() == {"n1": (1, 0)}
    found.bench.remove(device_class("only-other"))
    assert found.totals() == {"n1": (2, 0)}
    found.bench.remove(device_class("only-drv"))
    assert found.totals() == {"n1": (0, 0)}


def test_a_node_with_a_device_that_cannot_be_judged_has_none():
    broken = ("d1", {"attributes": {"broken": {"bool": True}}})
    found = Counted(N1, N2, CLASS, resource_slice("s", ["d0"], allNodes=True))
    found.put(resource_slice("t", [broken], nodeName="n1"))
    assert found.totals() == {"n1": (0, 0), "n2": (1, 0)}
    found.drop_slice("t")
    assert found.totals() == {"n1": (1, 0), "n2": (1, 0)}


def test_rows_are_touched_when_their_count_changes():
    found = Counted(N1, N2, CLASS)
    table = found.bench.cluster.table

    def touched(change):
        before = table.log.serial
        change()
        return sorted(name for name, row in table.row_of.items() if table.log.stamp(row, Facet.RESOURCES) > before)

    assert touched(lambda: found.put(resource_slice("s", ["d0", "d1"], nodeName="n1"))) == ["n1"]
    assert touched(lambda: found.put(resource_slice("t", ["e"], allNodes=True))) == ["n1", "n2"]
    assert touched(lambda: found.allocate(allocation("d0"))) == ["n1"]
    assert touched(lambda: found.put(resource_slice("s", ["d0", "d1"], nodeName="n1"))) == []
    assert touched(lambda: found.allocate(allocation("d0", adminAccess=True))) == []
    assert touched(lambda: found.put(N1)) == []


def test_only_resources_that_are_scored_are_counted():
    asked = []
    found = Counted(N1, CLASS, matches=lambda *it: asked.append(it), tracked=())
    found.put(resource_slice("s", ["d0"], nodeName="n1"))
    assert asked == []
    assert found.extended.scored("cpu") is None
    with pytest.raises(KeyError):
        found.counts.on_row(GPU, 0)


def test_a_resource_may_be_scored_when_all_is_there_already():
    found = Counted(N1, CLASS, resource_slice("s", ["d0", "d1"], nodeName="n1"), tracked=())
    found.allocate(allocation("d1"))
    assert found.extended.scored(GPU) is not None
    assert found.totals() == {"n1": (2, 1)}


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_agree_with_counting_anew(seed):
    rng = Random(seed)
    found = Counted()
    nodes, slices, classes, allocations = {}, {}, {}, []

    def where():
        return rng.choice(
            [
                {"nodeName": f"n{rng.randrange(5)}"},
                {"allNodes": True},
                {"nodeSelector": in_rack(f"r{rng.randrange(3)}")},
            ]
        )

    def device(i, per_device):
        more = {"attributes": {"broken": {"bool": True}}} if rng.random() < 0.05 else {}
        return f"d{i}", more | (where() if per_device and rng.random() < 0.9 else {})

    def step():
        kind = rng.randrange(7)
        if kind == 0:
            item = node(f"n{rng.randrange(5)}", labels={"rack": f"r{rng.randrange(3)}"})
            nodes[item["metadata"]["name"]] = item
            found.put(item)
        elif kind == 1 and nodes:
            name = rng.choice(sorted(nodes))
            del nodes[name]
            found.bench.cluster.remove_node(name)
        elif kind == 2 and slices:
            name = rng.choice(sorted(slices))
            del slices[name]
            found.drop_slice(name)
        elif kind == 3:
            item = device_class(rng.choice(["a", "only-drv", "only-other"]), GPU, rng.randint(1, 9))
            if item["metadata"]["name"] in classes and rng.random() < 0.5:
                del classes[item["metadata"]["name"]]
                found.bench.remove(item)
            else:
                classes[item["metadata"]["name"]] = item
                found.put(item)
        elif kind == 4 and len(allocations) < 9:
            allocations.append(allocation(f"d{rng.randrange(4)}", adminAccess=rng.random() < 0.2))
            found.allocate(allocations[-1])
        elif kind == 5 and allocations:
            found.release(allocations.pop(rng.randrange(len(allocations))))
        else:
            name, per_device = f"s{rng.randrange(5)}", rng.random() < 0.4
            devices = [device(i, per_device) for i in range(rng.randint(0, 4))]
            driver = rng.choice(["drv", "other"])
            reach = {} if per_device else where()
            slices[name] = resource_slice(name, devices, driver, per_device=per_device, **reach)
            found.put(slices[name])

    for _ in range(120):
        step()
        in_use = {
            ("drv", "p", result["device"])
            for item in allocations
            for result in item["devices"]["results"]
            if not result["adminAccess"]
        }
        chosen = found.extended.classes.get(GPU)

        def verdict(driver, item, chosen=chosen):
            if "broken" in item.get("attributes", {}):
                return None
            return not chosen.metadata.name.startswith("only-") or chosen.metadata.name == f"only-{driver}"

        expected = device_totals(nodes.values(), slices.values() if chosen else (), in_use, verdict)
        assert found.totals() == expected


# --- scores ------------------------------------------------------------------------------------------------------


def scored(found, strategy, item, resources=((GPU, 1),), **more):
    specs = tuple(ResourceSpec(*resource) for resource in resources)
    args = NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type=strategy, resources=specs, **more))
    return found.bench.score(found.bench.plugin("NodeResourcesFit", args), item)


def of_gpus(count):
    return pod("p", container(**{GPU: count}))


def mixed():
    """n1 has 8 devices, 3 in use; n2 has 4; n3 has 4 by a device plugin, one given out; n4 has nothing."""
    found = Counted(
        node("n1"),
        node("n2", **{GPU: 0}),
        node("n3", **{GPU: 4}),
        node("n4"),
        pod("w", container(**{GPU: 1}), on="n3"),
        pod("v", container(**{GPU: 3}), on="n1"),  # counts on the node too, but not twice
        CLASS,
        resource_slice("s1", [f"d{i}" for i in range(8)], pool="n1", nodeName="n1"),
        resource_slice("s2", [f"d{i}" for i in range(4)], pool="n2", nodeName="n2"),
        resource_slice("s3", ["d0"], pool="n3", nodeName="n3"),
    )
    found.allocate(allocation("d0", "d1", "d2", pool="n1"))
    return found


@pytest.mark.parametrize(
    "strategy, expected",
    [
        ("LeastAllocated", {"n1": 50, "n2": 75, "n3": 50, "n4": 0}),
        ("MostAllocated", {"n1": 50, "n2": 25, "n3": 50, "n4": 0}),
    ],
)
def test_devices_count_where_a_node_has_no_device_plugin(strategy, expected):
    found = mixed()
    assert scored(found, strategy, of_gpus(1)) == expected
    found.bench.remove(CLASS)
    assert scored(found, strategy, of_gpus(1)) == {"n1": 0, "n2": 0, "n3": expected["n3"], "n4": 0}


def test_requested_to_capacity_ratio_of_devices():
    shape = (UtilizationShapePoint(0, 0), UtilizationShapePoint(100, 10))
    param = RequestedToCapacityRatioParam(shape)
    found = scored(mixed(), "RequestedToCapacityRatio", of_gpus(1), requested_to_capacity_ratio=param)
    assert found == {"n1": 50, "n2": 25, "n3": 50, "n4": 0}


def test_a_pod_without_the_resource_is_scored_without_it():
    assert scored(mixed(), "LeastAllocated", pod("p", container(cpu=1))) == dict.fromkeys(("n1", "n2", "n3", "n4"), 0)


def test_balanced_allocation_of_devices():
    found = mixed()
    args = NodeResourcesBalancedAllocationArgs(resources=(ResourceSpec("cpu", 1), ResourceSpec(GPU, 1)))
    plugin = found.bench.plugin("NodeResourcesBalancedAllocation", args)
    # cpu 0 -> 50 %, devices 37.5 -> 50, 0 -> 25, 25 -> 50 %: deviations 18.75 -> 0, 0 -> 12.5, 12.5 -> 0.
    assert found.bench.score(plugin, pod("p", container(cpu=2, **{GPU: 1}))) == {"n1": 84, "n2": 68, "n3": 81, "n4": 75}


def test_without_counts_nodes_have_no_devices():
    bench = Bench(N1)
    bench.handle.features = GATES
    bench.add(CLASS)
    args = NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(type="LeastAllocated", resources=(ResourceSpec(GPU, 1),))
    )
    assert bench.score(bench.plugin("NodeResourcesFit", args), of_gpus(1)) == {"n1": 0}


@pytest.mark.parametrize("name", ["d-ext-score-least", "d-ext-score-mixed"])
def test_scores_are_those_of_the_reference(name):
    """Each pod in turn; what the reference gave it is in use for the next."""
    record = load(name)
    found = Counted(tracked=())
    args = found.bench.typed_args("NodeResourcesFit", record["config"]["profiles"][0]["pluginConfig"][0]["args"])
    fit = found.bench.plugin("NodeResourcesFit", args)
    balanced = found.bench.plugin("NodeResourcesBalancedAllocation")
    checked = 0
    claims = {item["metadata"]["name"]: item for item in record["expected"]["objects"]}
    for item in record["objects"]:
        if item["kind"] == "ResourceClaim":
            found.allocate(item["status"]["allocation"])
        elif item["kind"] == "Pod" and not item["spec"].get("nodeName"):
            expected = record["expected"][f"default/{item['metadata']['name']}"]
            assert found.bench.score(fit, item) == expected["scores"]["NodeResourcesFit"]
            assert found.bench.score(balanced, item) == expected["scores"]["NodeResourcesBalancedAllocation"]
            checked += 1
            item["metadata"]["uid"] = item["metadata"]["name"]
            item["spec"]["nodeName"] = expected["bound"]
            found.put(item)
            made = claims.get(f"{item['metadata']['name']}-extended-resources-*")
            if made is not None:
                found.allocate(made["status"]["allocation"])
        else:
            found.put(item)
    assert checked == (2 if name == "d-ext-score-least" else 1)


def test_what_is_counted_is_what_is_there_after_everything_is_listed_again():
    found = mixed()
    before = found.totals()
    for one in list(found.slices.values()):
        found.counts.slice_changed(one, msgspec.structs.replace(one))
    assert found.totals() == before
