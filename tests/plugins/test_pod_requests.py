"""What a pod on a node counts there, for the filter and for scores (default-plugins spec 3.1)."""

import pytest

from koordsched.cluster.resources import CPU, MEMORY, exceeded_by_parts, limits_of
from tests.plugins.harness import Bench
from tests.plugins.objects import container, node, pod, requests
from tests.reference import podrequests

MI = 1 << 20


def resized(name, cpu=None, memory=None, allocated=None):
    """The status of a container, or of the pod as a whole, that was resized."""
    status = {"resources": requests(cpu, memory)}
    if name:
        status["name"] = name
    if allocated:
        status["allocatedResources"] = requests(*allocated)["requests"]
    return status


def on_node(*containers, status=None, infeasible=False, **spec):
    made = pod("p", *containers, on="n", **spec)
    made["status"] = dict(status or {})
    if infeasible:
        made["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    return made


WHOLE = {"resources": requests("2", "1Gi")}


@pytest.mark.parametrize(
    "placed, plain, nonzero",
    [
        # (milli-CPU, bytes)
        pytest.param(on_node(container()), (0, 0), (100, 200 * MI), id="nothing"),
        pytest.param(on_node(container(cpu="0")), (0, 0), (0, 200 * MI), id="an explicit zero stays"),
        pytest.param(
            on_node(container(name="a", memory="100Mi"), container(name="b")), (0, 100 * MI), (200, 300 * MI),
            id="each container by itself",
        ),
        pytest.param(
            on_node(container(name="a"), container(name="b"), **WHOLE), (2000, 1024 * MI), (2000, 1024 * MI),
            id="the pod as a whole",
        ),
        pytest.param(
            on_node(container(name="a"), container(name="b"), resources=requests("2")), (2000, 0), (2000, 400 * MI),
            id="what neither pod nor container names has its default per container",
        ),
        pytest.param(
            on_node(container(name="a", memory="100Mi"), container(name="b"), resources=requests("2")),
            (2000, 100 * MI), (2000, 100 * MI),
            id="what one container names has no default in another",
        ),
        pytest.param(
            on_node(container(name="a", memory="0"), container(name="b"), resources=requests("2")),
            (2000, 0), (2000, 0),
            id="even if that is zero",
        ),
        pytest.param(
            on_node(container(), resources=requests("2"), overhead={"memory": "120Mi"}),
            (2000, 120 * MI), (2000, 120 * MI),
            id="nor does what the overhead names",
        ),
        pytest.param(
            on_node(container(), overhead={"memory": "120Mi"}), (0, 120 * MI), (100, 320 * MI),
            id="which is different without requests of the whole pod",
        ),
        pytest.param(
            on_node(container(), resources={"requests": {"hugepages-2Mi": "4Mi"}}), (0, 0), (100, 200 * MI),
            id="huge pages of the whole pod change nothing",
        ),
        pytest.param(
            on_node(container(cpu="1"), status={"containerStatuses": [resized("c", "3", allocated=("2",))]}),
            (3000, 0), (3000, 200 * MI),
            id="container: in force",
        ),
        pytest.param(
            on_node(container(cpu="1"), status={"containerStatuses": [resized("c", "2", allocated=("3",))]}),
            (3000, 0), (3000, 200 * MI),
            id="container: allocated",
        ),
        pytest.param(
            on_node(container(cpu="9"), status={"containerStatuses": [resized("c", "2")]}, infeasible=True),
            (2000, 0), (2000, 200 * MI),
            id="container: infeasible",
        ),
        pytest.param(
            on_node(container(cpu="9"), status={"containerStatuses": [resized("c", "0")]}, infeasible=True),
            (0, 0), (0, 200 * MI),
            id="container: zero in force is explicit",
        ),
        pytest.param(
            on_node(container(), status=resized("", "3", "512Mi"), **WHOLE), (3000, 1024 * MI), (3000, 1024 * MI),
            id="pod: in force",
        ),
        pytest.param(
            on_node(container(), status=resized("", "1", "512Mi", allocated=("1", "2Gi")), **WHOLE),
            (2000, 2048 * MI), (2000, 2048 * MI),
            id="pod: allocated",
        ),
        pytest.param(
            on_node(container(), status=resized("", "1", "512Mi"), infeasible=True, **WHOLE),
            (1000, 512 * MI), (1000, 512 * MI),
            id="pod: infeasible",
        ),
        pytest.param(
            on_node(container(), status=resized("", "1"), infeasible=True, **WHOLE), (1000, 0), (1000, 0),
            id="pod: infeasible, and nothing else known",
        ),
        pytest.param(
            on_node(container(), status={"allocatedResources": {"cpu": "7"}}, **WHOLE),
            (2000, 1024 * MI), (2000, 1024 * MI),
            id="pod: nothing in force yet",
        ),
        pytest.param(
            on_node(container(cpu="1"), status=resized("", "3")), (1000, 0), (1000, 200 * MI),
            id="pod: without requests of its own",
        ),
        pytest.param(
            on_node(container(), status=resized("", "3"), overhead={"cpu": "50m"}, **WHOLE),
            (3050, 1024 * MI), (3050, 1024 * MI),
            id="pod: overhead comes on top",
        ),
    ],
)  # fmt: skip
def test_what_counts_on_a_node(placed, plain, nonzero):
    bench = Bench(node("n", "16", "64Gi"), placed)
    table = bench.cluster.table
    row = table.row_of["n"]
    assert tuple(int(table.requested[i].data[row]) for i in (CPU, MEMORY)) == plain
    assert tuple(int(table.requested_nonzero[i].data[row]) for i in (CPU, MEMORY)) == nonzero
    for reference, expected in ((podrequests.requests, plain), (podrequests.nonzero_requests, nonzero)):
        found = reference(placed)
        assert (found.get("cpu", 0), found.get("memory", 0)) == expected


def test_a_resize_of_the_whole_pod_is_heard():
    placed = on_node(container(), **WHOLE)
    bench = Bench(node("n", "16", "64Gi"), placed)
    bench.add({**placed, "status": resized("", "5", "1Gi")})
    table = bench.cluster.table
    assert int(table.requested[CPU].data[table.row_of["n"]]) == 5000


def test_limits_of_the_whole_pod():
    limited = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    made = [{"name": name, "image": "i", **limited} for name in ("a", "b")]
    spec = Bench().pod(pod("p", *made, overhead={"cpu": "500m", "example.com/x": "1"})).shape.spec
    assert limits_of(spec) == {"cpu": 2_500_000_000, "memory": 2 * 1024**3 * 10**9}


@pytest.mark.parametrize(
    ("cpu", "claimed", "exceeded"), [("2", {}, ""), ("2", {"cpu": 1}, "cpu"), ("1999m", {}, "cpu"), (None, {}, "")]
)
def test_what_containers_and_claims_need_must_not_exceed_what_the_pod_asks_for(cpu, claimed, exceeded):
    whole = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    spec = Bench().pod(pod("p", container(cpu="1"), container(cpu="1"), **whole)).shape.spec
    assert exceeded_by_parts(spec, claimed) == exceeded
