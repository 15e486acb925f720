"""Which members are judged by one cycle: those that no filter tells apart."""

from types import SimpleNamespace

import pytest

from koordsched.plugins.coscheduling.topology.alike import Alike
from koordsched.queue.hints import ByKey, GroupBy, Scope
from tests.plugins.harness import Bench
from tests.plugins.objects import container, pod

BY_PRIORITY = GroupBy(lambda pod: pod.priority)
BY_CLAIM = ByKey(lambda pod: (), lambda old, new: ())
BY_NAME = GroupBy(lambda pod: pod.name)


@pytest.mark.parametrize(
    ("scopes", "alike"),
    [
        ([BY_PRIORITY], True),
        ([BY_PRIORITY, Scope.SHAPE], True),
        ([BY_NAME], False),
        # What only some events are about, or every pod is asked for, does not say what the verdict depends on.
        ([BY_PRIORITY, BY_CLAIM], False),
        ([BY_PRIORITY, Scope.POD], False),
        ([Scope.SHAPE], False),
    ],
)
def test_pods_of_one_shape_are_alike_if_every_plugin_says_by_what_it_tells_them_apart(scopes, alike):
    plugin = SimpleNamespace(name="Picky", events_to_register=lambda: [SimpleNamespace(scope=each) for each in scopes])
    bench = Bench()
    first, second = [bench.pod(pod(name, container(cpu="1"))) for name in ("first", "second")]
    assert first.shape is second.shape
    handle = SimpleNamespace(filtering=SimpleNamespace(looking_at_pods=lambda shape: [plugin]))
    keys = Alike(handle, ())
    assert (keys.key(first) == keys.key(second)) is alike
    others = Alike(handle, ("Picky",))
    assert others.key(first) == others.key(second)
