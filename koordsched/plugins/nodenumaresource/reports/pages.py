"""Pages about CPUs and NUMA nodes: one node as upstream's plugin shows it (nodenumaresource spec 3.8), and our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from koordsched.framework.declaration import NotFound, Page, report_pages
from koordsched.plugins.nodenumaresource.allocation import NUMAAmounts, quantity_of
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.podrequest import NUMA_POLICY_NAMES, exclusive_policy_of
from koordsched.plugins.nodenumaresource.policies import ExclusivePolicy
from koordsched.plugins.nodenumaresource.reports.report import (
    overviewing,
    report_on,
)
from koordsched.plugins.nodenumaresource.supply import supply_of
from koordsched.plugins.nodenumaresource.topology import CORE_BITS, CPU, CPUTopology
from koordsched.plugins.shared import cpuset

NODES = "/debug/numa"
NODE = NODES + "/{name}"
UPSTREAM = "/apis/v1/plugins/NodeNUMAResource/nodes/{name}"


def _node(plugin: NodeNUMAResource, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One node. Raises NotFound for one that is unknown, or whose CPUs are."""
    name = parameters["name"]
    row = plugin.table.row_of.get(name)
    node = plugin.nodes.of_node(name)
    if row is None or node is None:
        raise NotFound(f'node "{name}" not found')
    layout = plugin.columns.layout(row)
    if layout is None:
        raise NotFound("invalid topology, please check the NodeResourceTopology object")
    rows, columns = np.array([row], dtype=np.intp), plugin.columns
    count = columns.zone_count.data.item(row)
    supply = supply_of(columns, rows, count, range(len(columns.resources)))
    given = [columns.amounts_of(columns.used, rows)[0, :, numa].any() for numa in range(count)]
    held = columns.held(row)
    return {
        "name": name,
        "cpuTopology": _topology(layout.topology),
        "reservedCPUs": cpuset.text(node.options.reserved),
        "maxRefCount": 1,
        "policy": plugin.nodes.manager_policy(name),
        "numaTopologyPolicy": NUMA_POLICY_NAMES[node.numa],
        "numaNodeResources": _amounts(columns.resources, supply.capacity[0], supply.present[0], range(count)),
        **({"amplificationRatios": node.ratios} if node.ratios else {}),
        "remainingNUMANodeResources": _amounts(columns.resources, supply.available[0], supply.present[0], range(count))
        or None,
        "allocatedNUMANodeResources": _amounts(
            columns.resources,
            supply.used[0],
            columns.amounts_of(columns.used, rows)[0, :, :count] != 0,
            [numa for numa in range(count) if given[numa]],
        )
        or None,
        "availableCPUs": cpuset.text(columns.free(row, layout)),
        "allocatedCPUs": {str(cpu.id): _cpu(cpu) for cpu in layout.topology.members if held >> cpu.id & 1},
        "allocatedPods": _pods(plugin, row) or None,
    }


def _amounts(names: list[str], amounts: Any, present: Any, numa_nodes: Iterable[int]) -> list[dict[str, Any]]:
    return [
        {
            "node": numa,
            "resources": {
                name: quantity_of(name, int(amounts[at, numa])) for at, name in enumerate(names) if present[at, numa]
            },
        }
        for numa in numa_nodes
    ]


def _topology(topology: CPUTopology) -> dict[str, Any]:
    return {
        "numCPUs": len(topology.order),
        "numCores": len(topology.cores),
        "numNodes": len(topology.nodes),
        "numSockets": len(topology.sockets),
        "cpuDetails": {str(cpu.id): _cpu(cpu) for cpu in topology.members},
    }


def _cpu(cpu: CPU) -> dict[str, int]:
    return {
        "cpuID": cpu.id,
        "coreID": cpu.socket << CORE_BITS | cpu.core,
        "nodeID": cpu.node,
        "socketID": cpu.socket,
    }


def _pods(plugin: NodeNUMAResource, row: int) -> list[dict[str, Any]]:
    found = []
    for pod, given in plugin.allocations_on(row):
        shown: dict[str, Any] = {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "cpuset": cpuset.text(given.cpus),
        }
        exclusive = exclusive_policy_of(pod.shape)
        if exclusive is not ExclusivePolicy.NONE:
            shown["cpuExclusivePolicy"] = exclusive.value
        if given.numa:
            shown["numaNodeResources"] = [numa_amounts(each) for each in given.numa]
        found.append(shown)
    return sorted(found, key=lambda shown: (shown["namespace"], shown["name"]))


def numa_amounts(numa: NUMAAmounts) -> dict[str, Any]:
    """What a pod was given of a NUMA node, as its annotation says it."""
    return {"node": numa.node, "resources": {name: quantity_of(name, amount) for name, amount in numa.amounts}}


PAGES = (*report_pages(NODES, overviewing, report_on), Page(UPSTREAM, _node))
