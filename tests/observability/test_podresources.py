"""/metrics/resources: requests and limits of every pod, with upstream's labels and units."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koordsched.api import core
from koordsched.cluster.pod import Pod
from koordsched.cluster.state import ClusterState
from koordsched.observability.podresources import PodResources, limits_of, unit_of


def make_pod(state: ClusterState, spec: dict[str, Any], name: str = "web", status: dict[str, Any] | None = None) -> Pod:
    wire = {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec, "status": status or {}}
    return state.pods.build(msgspec.convert(wire, core.Pod))


def text_of(state: ClusterState, pods: list[Pod]) -> list[str]:
    async def read() -> bytes:
        return b"".join([piece async for piece in PodResources(lambda: pods, state.table.resource_names).render()])

    return asyncio.run(read()).decode().splitlines()


def container(
    requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def test_text() -> None:
    state = ClusterState()
    bound = make_pod(
        state,
        {
            "nodeName": "node-1",
            "schedulerName": "default-scheduler",
            "priority": 100,
            "containers": [
                container({"cpu": "1500m", "memory": "1Gi", "example.com/gpu": 2}, {"cpu": "2", "memory": "2Gi"}),
                container({"cpu": "0"}, {"hugepages-2Mi": "4Mi", "cpu": "100u"}),
            ],
        },
    )
    waiting = make_pod(state, {"schedulerName": 's"x', "containers": [container({"ephemeral-storage": "1k"})]}, "idle")
    empty = make_pod(state, {"containers": [container()]}, "nothing")
    lines = text_of(state, [bound, waiting, empty])
    web = 'namespace="shop",pod="web",node="node-1",scheduler="default-scheduler",priority="100"'
    assert lines == [
        "# HELP kube_pod_resource_request [STABLE] What a pod counts against its node, by resource, "
        "in the unit of the resource if it has one.",
        "# TYPE kube_pod_resource_request gauge",
        f'kube_pod_resource_request{{{web},resource="cpu",unit="cores"}} 1.5',
        f'kube_pod_resource_request{{{web},resource="memory",unit="bytes"}} 1073741824',
        f'kube_pod_resource_request{{{web},resource="example.com/gpu",unit=""}} 2',
        'kube_pod_resource_request{namespace="shop",pod="idle",node="",scheduler="s\\"x",priority="",'
        'resource="ephemeral-storage",unit="bytes"} 1000',
        "# HELP kube_pod_resource_limit [STABLE] What a pod may use, by resource, "
        "in the unit of the resource if it has one.",
        "# TYPE kube_pod_resource_limit gauge",
        f'kube_pod_resource_limit{{{web},resource="cpu",unit="cores"}} 2.0001',
        f'kube_pod_resource_limit{{{web},resource="hugepages-2Mi",unit="bytes"}} 4194304',
        f'kube_pod_resource_limit{{{web},resource="memory",unit="bytes"}} 2147483648',
    ]


@pytest.mark.parametrize(
    ("spec", "milli_cpu"),
    [
        ({"containers": [container(limits={"cpu": "1"}), container(limits={"cpu": "500m"})]}, 1500),
        # The largest init container counts if it exceeds the sum.
        ({"containers": [container(limits={"cpu": "1"})], "initContainers": [container(limits={"cpu": "3"})]}, 3000),
        ({"containers": [container(limits={"cpu": "1"})], "initContainers": [container(limits={"cpu": "500m"})]}, 1000),
        # A sidecar runs beside the containers, and beside the init containers after it.
        (
            {
                "containers": [container(limits={"cpu": "1"})],
                "initContainers": [
                    container(limits={"cpu": "5"}),
                    container(limits={"cpu": "2"}, restartPolicy="Always"),
                    container(limits={"cpu": "4"}),
                ],
            },
            6000,
        ),
        (
            {
                "containers": [container(limits={"cpu": "1"})],
                "initContainers": [container(limits={"cpu": "2"}, restartPolicy="Always")],
            },
            3000,
        ),
        ({"containers": [container(limits={"cpu": "1"})], "resources": {"limits": {"cpu": "7"}}}, 7000),
        ({"containers": [container(limits={"cpu": "1"})], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container()], "overhead": {"cpu": "250m"}}, None),
    ],
)
def test_limits(spec: dict[str, Any], milli_cpu: int | None) -> None:
    limits = limits_of(msgspec.convert(spec, core.PodSpec))
    assert limits.get("cpu") == (None if milli_cpu is None else milli_cpu * 10**6)


def test_garbage_limits_cost_only_their_own_lines() -> None:
    state = ClusterState()
    pods = [make_pod(state, {"containers": [container({"cpu": "1"}, {"cpu": "lots"})]}, "odd")]
    values = [line.split(" ")[-1] for line in text_of(state, pods) if not line.startswith("#")]
    assert values == ["1"]


def test_a_resized_pod_shows_what_it_has() -> None:
    state = ClusterState()
    spec = {"nodeName": "n", "containers": [container({"cpu": "1"})]}
    resized = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    pods = [make_pod(state, spec, "a"), make_pod(state, spec, "b", resized)]
    values = [line.split(" ")[-1] for line in text_of(state, pods) if not line.startswith("#")]
    assert values == ["1", "3"]


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("storage", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("hugepages-1Gi", "bytes"),
        ("attachable-volumes-aws-ebs", "integer"),
        ("nvidia.com/gpu", ""),
    ],
)
def test_units(resource: str, unit: str) -> None:
    assert unit_of(resource) == unit


async def test_the_loop_gets_its_turn_and_pods_may_change_meanwhile() -> None:
    state = ClusterState()
    spec = {"nodeName": "n", "containers": [container({"cpu": "1"})]}
    pods = {f"p{i}": make_pod(state, spec, f"p{i}") for i in range(1000)}
    turns = 0

    async def disturb() -> None:
        nonlocal turns
        while pods:
            turns += 1
            pods.popitem()
            await asyncio.sleep(0)

    other = asyncio.create_task(disturb())
    lines = 0
    async for piece in PodResources(pods.values, state.table.resource_names).render():
        lines += piece.count(b"\n")
    other.cancel()
    assert lines == 1000 + 4
    assert turns >= 9
