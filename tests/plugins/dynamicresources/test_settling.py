"""What evaluations without an API server make of the claims of a pod that they place."""

import pytest

from koordsched.cluster.builtinkinds import RESOURCE_CLAIMS
from tests.plugins.dynamicresources.deviceworld import (
    GPU,
    N1,
    allocated,
    claim,
    claiming,
    device_class,
    slice_of,
    wanting,
)
from tests.plugins.harness import scheduler


@pytest.mark.parametrize("users", [(), ("old",), ("p",), ("old", "p")])
def test_a_claim_is_reserved_once_for_each_pod(users):
    held = claim(status=allocated("d0", users=users))
    offline = scheduler([N1, device_class(), slice_of("n1", "d0"), held, claiming("p", "c"), claiming("q", "c")])
    assert [offline.schedule(f"default/{name}").node for name in "pq"] == ["n1", "n1"]
    books = offline.profiles["default-scheduler"].plugins["DynamicResources"].books
    reserved = [user.name for user in books.claims.get("default", "c").status.reserved_for]
    assert reserved == [*users, *(name for name in "pq" if name not in users)]


def test_the_claim_for_extended_resources_is_made():
    offline = scheduler([N1, GPU, slice_of("n1", "d0"), wanting("p"), wanting("q")])
    assert [offline.schedule(f"default/{name}").node for name in "pq"] == ["n1", ""]
    made = offline.cluster.objects.of(RESOURCE_CLAIMS).get("default", "p-extended-resources")
    (request,) = made.spec.devices.requests
    assert (request.exactly.device_class_name, request.exactly.count) == ("dc", 1)
    assert [result.device for result in made.status.allocation.devices.results] == ["d0"]
    assert [user.name for user in made.status.reserved_for] == ["p"]
