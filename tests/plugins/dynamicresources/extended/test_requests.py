"""What the special claim requests, and which container uses what (dra spec 3.10, cases 82 to 87)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.api.core import PodSpec
from koordsched.api.decoding import convert
from koordsched.plugins.dynamicresources.extended.requests import NOTHING, ContainerRequests
from tests.plugins.dynamicresources.extended.naive import requests_and_mappings

CLASSES = {"x/gpu": "a", "x/nic": "b"}


def container(name, restart_policy=None, **requests):
    """A container; `gpu` and `nic` are x/gpu and x/nic."""
    named = {f"x/{key}" if key in ("gpu", "nic") else key: str(value) for key, value in requests.items()}
    made = {"name": name, "resources": {"requests": named}}
    return made | ({"restartPolicy": restart_policy} if restart_policy else {})


def special(containers, init=(), classes=None):
    """([(request, class, count)], [(container, resource, request)])."""
    classes = CLASSES if classes is None else classes
    spec = convert({"containers": list(containers), "initContainers": list(init)}, PodSpec)
    found = ContainerRequests(spec).on(tuple(sorted(classes.items())))
    return plain(found)


def plain(found):
    requests = [(r.name, r.exactly.device_class_name, r.exactly.count) for r in found.requests]
    assert {r.exactly.allocation_mode for r in found.requests} <= {"ExactCount"}
    return requests, [(m.container_name, m.resource_name, m.request_name) for m in found.mappings]


def test_dra_case_82_the_index_is_that_among_all_requests_of_the_container():
    requests, mappings = special([container("m", cpu=1, memory="1Gi", gpu=2)])
    assert requests == [("container-0-request-2", "a", 2)]
    assert mappings == [("m", "x/gpu", "container-0-request-2")]


def test_dra_case_83_one_request_per_container_and_resource():
    requests, _ = special([container("m", gpu=2, nic=1), container("n", cpu=1), container("o", gpu=1)])
    assert requests == [
        ("container-0-request-0", "a", 2),
        ("container-0-request-1", "b", 1),
        ("container-2-request-0", "a", 1),
    ]


def test_dra_case_84_an_init_container_uses_what_later_containers_have():
    assert special([container("m", gpu=2)], [container("i", gpu=1)]) == (
        [("container-1-request-0", "a", 2)],
        [("m", "x/gpu", "container-1-request-0"), ("i", "x/gpu", "container-1-request-0")],
    )
    assert special([container("m", gpu=2)], [container("i", gpu=3)]) == (
        [("container-0-request-0", "a", 1), ("container-1-request-0", "a", 2)],
        [
            ("m", "x/gpu", "container-1-request-0"),
            ("i", "x/gpu", "container-1-request-0"),
            ("i", "x/gpu", "container-0-request-0"),
        ],
    )


def test_dra_case_85_init_containers_share_the_largest_rest():
    assert special([container("m", gpu=2)], [container("i", gpu=3), container("j", gpu=5)]) == (
        [("container-1-request-0", "a", 3), ("container-2-request-0", "a", 2)],
        [
            ("m", "x/gpu", "container-2-request-0"),
            ("i", "x/gpu", "container-2-request-0"),
            ("i", "x/gpu", "container-1-request-0"),
            ("j", "x/gpu", "container-2-request-0"),
            ("j", "x/gpu", "container-1-request-0"),
        ],
    )


def test_dra_case_86_a_sidecar_that_runs_already_is_not_used():
    init = [container("i", gpu=1), container("s", "Always", gpu=1), container("j", gpu=2)]
    assert special([container("m", gpu=1)], init) == (
        [("container-1-request-0", "a", 1), ("container-2-request-0", "a", 1), ("container-3-request-0", "a", 1)],
        [
            ("s", "x/gpu", "container-1-request-0"),
            ("m", "x/gpu", "container-3-request-0"),
            ("i", "x/gpu", "container-1-request-0"),
            ("j", "x/gpu", "container-3-request-0"),
            ("j", "x/gpu", "container-2-request-0"),
        ],
    )


def test_dra_case_87_requests_are_in_order_of_their_names_as_texts():
    requests, mappings = special([container(f"c{i}", gpu=1) for i in range(11)])
    order = [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [name for name, _, _ in requests] == [f"container-{i}-request-0" for i in order]
    assert [name for name, _, _ in mappings] == [f"c{i}" for i in range(11)]


def test_dra_case_88_only_what_dra_serves_is_claimed():
    requests, mappings = special([container("m", gpu=1, nic=1)], classes={"x/nic": "b"})
    assert requests == [("container-0-request-1", "b", 1)]
    assert mappings == [("m", "x/nic", "container-0-request-1")]


def test_the_first_of_equal_rests_is_kept():
    requests, mappings = special([container("m", cpu=1)], [container("i", gpu=2), container("j", gpu=2)])
    assert requests == [("container-0-request-0", "a", 2)]
    assert [request for _, _, request in mappings] == ["container-0-request-0"] * 2


@pytest.mark.parametrize("quantity", ["0", "500m"])
def test_nothing_and_parts_of_a_device_are_not_claimed(quantity):
    assert special([container("m", gpu=quantity)]) == ([], [])


def test_quantities_may_be_written_in_any_form():
    assert special([container("m", gpu="1e1")])[0] == [("container-0-request-0", "a", 10)]
    assert special([container("m", gpu="2000m")])[0] == [("container-0-request-0", "a", 2)]


def test_b6_without_served_resources_there_is_no_claim():
    assert ContainerRequests(convert({"containers": [container("m", gpu=1)]}, PodSpec)).on(()) is NOTHING
    assert not NOTHING


def test_the_answer_is_kept_for_replicas():
    containers = ContainerRequests(convert({"containers": [container("m", gpu=1)]}, PodSpec))
    served = (("x/gpu", "a"),)
    assert containers.on(served) is containers.on(served)


def test_few_answers_are_kept():
    containers = ContainerRequests(convert({"containers": [container("m", gpu=1)]}, PodSpec))
    served = (("x/gpu", "a"),)
    first = containers.on(served)
    for other in range(100):
        containers.on((("x/gpu", f"class-{other}"),))
    again = containers.on(served)
    assert again == first
    assert again is not first


AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.just(1), "gpu": st.integers(0, 5), "nic": st.integers(0, 3), "example.com": st.just(1)}
)
KINDS = st.sampled_from([None, "Always"])


@given(
    regular=st.lists(AMOUNTS, min_size=1, max_size=12),
    init=st.lists(st.tuples(KINDS, AMOUNTS), max_size=6),
    classes=st.sets(st.sampled_from(sorted(CLASSES))),
)
@settings(max_examples=400, deadline=None)
def test_any_pod_gets_what_the_spec_says(regular, init, classes):
    containers = [container(f"c{i}", **amounts) for i, amounts in enumerate(regular)]
    init = [container(f"i{i}", kind, **amounts) for i, (kind, amounts) in enumerate(init)]
    served = {resource: CLASSES[resource] for resource in classes}
    assert special(containers, init, served) == requests_and_mappings(
        {"containers": containers, "initContainers": init}, served
    )
