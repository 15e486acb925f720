"""Taints of DeviceTaintRules (dra spec 3.3, case 94), behind their gate."""

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceTaintRule, ResourceSlice
from koordsched.cluster.builtinkinds import DEVICE_TAINT_RULES, RESOURCE_SLICES
from koordsched.cluster.objects import Store
from koordsched.plugins.dynamicresources.taintrules import TaintedSlices
from tests.plugins.dynamicresources.deviceworld import slice_of


def rule(name, **selector):
    spec = {"taint": {"key": name, "effect": "NoSchedule"}}
    if selector:
        spec["deviceSelector"] = selector
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


class Slices:
    """Slices with taints, as the allocator gets them, and those that rules changed."""

    def __init__(self, *slices):
        self.slices, self.rules = Store(RESOURCE_SLICES), Store(DEVICE_TAINT_RULES)
        self.seen, self.changed = {}, []
        for each in slices:
            self.slices.upsert(convert(each, ResourceSlice))
        TaintedSlices(self.slices, self.rules, self.put, lambda old, new: self.changed.append(new.metadata.name))

    def put(self, old, new):
        if new is None:
            del self.seen[old.metadata.name]
        else:
            self.seen[new.metadata.name] = new

    def taints(self):
        """slice/device -> keys of its taints."""
        return {
            f"{name}/{device.name}": [taint.key for taint in device.taints]
            for name, found in self.seen.items()
            for device in found.spec.devices
            if device.taints
        }


OWN = ("d1", {"taints": [{"key": "own", "effect": "NoSchedule"}]})


@pytest.mark.parametrize(
    "selector, tainted",
    [
        ({}, ["a/d0", "a/d1", "b/d0", "c/d0"]),
        ({"driver": "drv", "device": "d0"}, ["a/d0", "b/d0"]),
        ({"pool": "n1"}, ["a/d0", "a/d1"]),
        ({"driver": "none"}, []),
    ],
)
def test_dra_case_94_which_devices_a_rule_taints(selector, tainted):
    there = Slices(
        slice_of("n1", "d0", "d1", name="a"),
        slice_of("n2", "d0", name="b"),
        slice_of("n3", "d0", name="c", driver="other"),
    )
    there.rules.upsert(rule("sick", **selector))
    assert there.taints() == {name: ["sick"] for name in tainted}
    assert sorted(there.changed) == sorted({name.partition("/")[0] for name in tainted})
    there.rules.delete("", "sick")
    assert there.taints() == {}


def test_taints_of_rules_come_after_the_devices_own_and_follow_their_slice():
    there = Slices(slice_of("n1", "d0", OWN, name="a"))
    there.rules.upsert(rule("z", device="d1"))
    there.rules.upsert(rule("y"))
    assert there.taints() == {"a/d0": ["y"], "a/d1": ["own", "y", "z"]}
    there.changed.clear()
    there.rules.upsert(rule("y"))
    assert there.changed == []
    there.slices.upsert(convert(slice_of("n1", "d1", name="a"), ResourceSlice))
    assert there.taints() == {"a/d1": ["y", "z"]}
    there.slices.delete("", "a")
    assert there.seen == {}
