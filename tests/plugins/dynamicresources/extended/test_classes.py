"""Which class stands for a resource (dra spec 3.10, defect B7)."""

import pytest

from koordsched.api.decoding import convert
from koordsched.api.resource import DeviceClass
from koordsched.plugins.shared.extendedresources import ClassesByResource, may_have_class
from tests.plugins.dynamicresources.extended.objects import device_class


class Told:
    """Classes, and the resources whose class changed since it was asked last."""

    def __init__(self, *classes):
        self.classes = ClassesByResource()
        self._known = {}
        self._changed = []
        self.classes.on_change(self._changed.append)
        for item in classes:
            self.put(item)

    def put(self, item):
        new = convert(item, DeviceClass)
        self.classes.class_changed(self._known.get(new.metadata.name), new)
        self._known[new.metadata.name] = new

    def delete(self, name):
        self.classes.class_changed(self._known.pop(name), None)

    def name(self, resource):
        found = self.classes.get(resource)
        return found.metadata.name if found is not None else None

    def changed(self):
        changed, self._changed[:] = sorted(self._changed), []
        return changed


IMPLICIT = "deviceclass.resource.kubernetes.io/"


@pytest.mark.parametrize("named", [None, "", IMPLICIT + "a"], ids=["none", "empty", "its implicit one"])
def test_a_class_that_names_no_other_resource_stands_for_the_implicit_one_alone(named):
    told = Told(device_class("a", named))
    assert told.changed() == [IMPLICIT + "a"]
    told.delete("a")
    assert told.changed() == [IMPLICIT + "a"]


def test_dra_case_89_the_newest_class_then_the_lower_name():
    told = Told(device_class("a", "x/gpu", 1), device_class("b", "x/gpu", 2))
    assert told.name("x/gpu") == "b"
    assert told.name(IMPLICIT + "b") == "b"
    told = Told(device_class("b", "x/gpu", 1), device_class("a", "x/gpu", 1))
    assert told.name("x/gpu") == "a"


def test_the_order_of_events_does_not_matter():
    classes = [device_class("a", "x/gpu", 1), device_class("b", "x/gpu", 3), device_class("c", "x/gpu", 2)]
    for order in (classes, classes[::-1], [classes[1], classes[0], classes[2]]):
        assert Told(*order).name("x/gpu") == "b"


def test_a_class_without_a_creation_time_is_the_oldest():
    assert Told(device_class("a", "x/gpu"), device_class("b", "x/gpu", 1)).name("x/gpu") == "b"


def test_b7_the_older_class_has_its_implicit_name():
    told = Told(device_class("new", "x/gpu", 2), device_class("old", "x/gpu", 1))
    assert told.name("x/gpu") == "new"
    assert told.name(IMPLICIT + "old") == "old"


def test_b7_an_update_that_keeps_the_name_replaces_the_object():
    told = Told(device_class("a", "x/gpu", 1))
    before = told.classes.get("x/gpu")
    changed = device_class("a", "x/gpu", 1)
    changed["spec"]["selectors"] = [{"cel": {"expression": "true"}}]
    told.put(changed)
    assert told.classes.get("x/gpu") != before
    assert told.classes.get("x/gpu").spec.selectors[0].cel.expression == "true"


@pytest.mark.parametrize("gone, left", [("a", "b"), ("b", "a")])
def test_b7_the_other_class_remains_when_one_is_deleted(gone, left):
    told = Told(device_class("a", "x/gpu", 1), device_class("b", "x/gpu", 2))
    told.delete(gone)
    assert told.name("x/gpu") == left
    assert told.name(IMPLICIT + gone) is None
    told.delete(left)
    assert told.name("x/gpu") is None
    assert "x/gpu" not in told.classes


def test_a_class_that_takes_another_name_gives_the_old_one_up():
    told = Told(device_class("a", "x/gpu", 1), device_class("b", "x/gpu", 2))
    told.put(device_class("b", "x/nic", 2))
    assert (told.name("x/gpu"), told.name("x/nic")) == ("a", "b")
    told.put(device_class("b", None, 2))
    assert (told.name("x/nic"), told.name(IMPLICIT + "b")) == (None, "b")


def test_listeners_hear_of_resources_whose_class_is_another_one():
    told = Told()
    told.put(device_class("a", "x/gpu", 2))
    assert told.changed() == [IMPLICIT + "a", "x/gpu"]
    told.put(device_class("b", "x/gpu", 1))
    assert told.changed() == [IMPLICIT + "b"]
    told.delete("a")
    assert told.changed() == [IMPLICIT + "a", "x/gpu"]


@pytest.mark.parametrize(
    "name, may",
    [
        ("x.io/gpu", True),
        (IMPLICIT + "a", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch-cpu", False),
        ("attachable-volumes-csi", False),
    ],
)
def test_only_extended_and_implicit_resources_may_have_a_class(name, may):
    assert may_have_class(name) is may
