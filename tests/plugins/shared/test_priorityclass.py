"""The priority band of pods that have neither a label nor a priority of one."""

import pytest

from koordsched.plugins.shared.priorityclass import LABELS, PRIORITY_CLASS, QOS_CLASS, PriorityClass, priority_class
from tests.plugins.harness import Bench
from tests.plugins.objects import container, pod


def band(*containers, **more):
    bench = Bench()
    bench.cluster.shape_facts.declare(labels=LABELS)
    return priority_class(bench.pod(pod("p", *containers, **more)).shape)


def limiting(**limits):
    return {"name": "c", "image": "img:1", "resources": {"limits": limits}}


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        ("LSE", PriorityClass.PROD),
        ("LSR", PriorityClass.PROD),
        ("LS", PriorityClass.PROD),
        ("SYSTEM", PriorityClass.PROD),
        ("BE", PriorityClass.BATCH),
    ],
)
@pytest.mark.parametrize("cpu", [None, "1"])
def test_it_goes_with_the_qos_that_the_label_names(qos, expected, cpu):
    assert band(container(cpu=cpu), labels={QOS_CLASS: qos}) is expected


@pytest.mark.parametrize(
    "resources",
    [
        container(),
        container(cpu="0", memory="0"),
        container(**{"ex.com/gpu": "1"}),
        limiting(**{"ex.com/gpu": "1"}),
        limiting(cpu="much"),
    ],
    ids=["nothing", "zero", "others", "limits of others", "what is no quantity"],
)
@pytest.mark.parametrize("labels", [{}, {QOS_CLASS: "unheard of"}, {PRIORITY_CLASS: "unheard of"}])
def test_pods_that_ask_for_no_cpu_and_no_memory_are_of_batch(resources, labels):
    assert band(resources, labels=labels) is PriorityClass.BATCH


@pytest.mark.parametrize(
    "resources",
    [container(cpu="1n"), container(memory="1Gi"), limiting(cpu="1"), limiting(cpu="much", memory="1Gi")],
    ids=["the least of cpu", "memory", "a limit", "a limit beside what is no quantity"],
)
def test_pods_that_ask_for_any_are_of_production(resources):
    assert band(resources) is PriorityClass.PROD
    assert band(container(), resources) is PriorityClass.PROD
    assert band(container(), initContainers=[resources]) is PriorityClass.PROD


@pytest.mark.parametrize(
    ("own", "expected"),
    [({"requests": {"cpu": "1"}}, PriorityClass.PROD), ({"requests": {}}, PriorityClass.BATCH)],
)
def test_what_the_pod_itself_asks_for_counts_instead_of_its_containers(own, expected):
    assert band(container(), resources=own) is expected
    assert band(container(cpu="1"), resources=own) is expected


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (2999, PriorityClass.PROD),
        (3000, PriorityClass.FREE),
        (3999, PriorityClass.FREE),
        (4000, PriorityClass.PROD),
        (5000, PriorityClass.BATCH),
        (5999, PriorityClass.BATCH),
        (7000, PriorityClass.MID),
        (7999, PriorityClass.MID),
        (9000, PriorityClass.PROD),
        (9999, PriorityClass.PROD),
    ],
)
def test_a_priority_of_a_band_counts_more_than_the_qos(priority, expected):
    assert band(container(cpu="1"), priority=priority) is expected
    assert band(container(cpu="1"), priority=priority, labels={PRIORITY_CLASS: "koord-mid"}) is PriorityClass.MID
