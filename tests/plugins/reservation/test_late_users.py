"""A pod may say which Reservation it uses after it has its node: another scheduler's writes arrive one by one."""

import json

import pytest

from koordsched.plugins.reservation.judging import FEW
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod
from tests.plugins.reservation.test_explained import asking
from tests.plugins.reservation.test_pages import PROFILE, reservation

HOLDS = {"cpu": "4", "memory": "8Gi", "pods": "1"}


@pytest.mark.parametrize("requests", [{"cpu": "1"}, {}], ids=["CPU", "nothing but its slot"])
@pytest.mark.parametrize("count", [1, FEW + 1])
def test_what_it_uses_is_taken_from_then_on(requests, count):
    def late(**annotations):
        thing = pod("late", container(**requests), on="n0")
        return {**thing, "metadata": {**thing["metadata"], "annotations": annotations}}

    def using(name):
        return late(**{RESERVATION_ALLOCATED: json.dumps({"name": name, "uid": name})})

    def held(number):
        thing = reservation(f"r{number}", f"n{number}", allocatePolicy="Restricted", template=template)
        return {**thing, "status": {**thing["status"], "allocatable": HOLDS}}

    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": HOLDS}}]}}
    nodes = [node(f"n{number}", cpu="8", memory="32Gi") for number in range(count)]
    offline = scheduler([*nodes, *map(held, range(count)), late(), asking("4", affinity={})], PROFILE)
    assert offline.attempt("default/p").filter().feasible == count
    offline.add(using("r0"))
    assert offline.attempt("default/p").filter().feasible == count - 1
    # Then it says that it uses another one.
    offline.add(using("s"))
    assert offline.attempt("default/p").filter().feasible == count
