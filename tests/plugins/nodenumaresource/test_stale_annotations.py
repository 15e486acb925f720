"""What an earlier attempt wrote on a pod does not outlive its failure."""

import asyncio
import json

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.nodenumaresource.cluster import configuration
from tests.plugins.nodenumaresource.machines import detail, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING
from tests.virtualtime import run

STATUS = f"{SCHEDULING}resource-status"


def bound(annotations, labels):
    """The annotations of a pod after it was bound to a node with these labels."""

    async def main():
        embedded = Embedded()
        for thing in custom_resources():
            embedded.insert(thing)
        embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        for thing in (node("8", "16Gi", **labels), topology(detail(1, 2, 2), [("4", "8Gi"), ("4", "8Gi")])):
            embedded.insert(thing)
        async with scheduler_on(embedded, configuration()) as running:
            thing = pod("p", "2", "1Gi", "LS", status=json.loads(annotations))
            thing["spec"]["schedulerName"] = "default-scheduler"
            thing["spec"]["containers"][0]["image"] = "app"
            thing["status"] = {"phase": "Pending"}
            embedded.insert(thing)
            await asyncio.sleep(5)
            shown = embedded.get("Pod", "p")
            assert shown["spec"].get("nodeName") == "m1", shown["status"]
            plugin = running.scheduler.profiles["default-scheduler"].plugins["NodeNUMAResource"]
            return shown["metadata"]["annotations"].get(STATUS), plugin.columns.held(0)

    return run(main())


@pytest.mark.parametrize(
    ("labels", "text", "held"),
    [
        ({}, None, 0),
        ({"cpu_bind_policy": "FullPCPUsOnly"}, '{"cpuset":"0-1"}', 0b11),
        (
            {"numa_topology_policy": "SingleNUMANode"},
            '{"numaNodeResources":[{"node":0,"resources":{"cpu":"2","memory":"1Gi"}}]}',
            0,
        ),
    ],
    ids=["nothing is given here", "CPUs are given", "amounts of NUMA nodes are given"],
)
def test_a_pod_that_was_to_have_cpus_elsewhere_says_what_it_has_here(labels, text, held):
    assert bound('{"cpuset":"4-5"}', labels) == (text, held)
