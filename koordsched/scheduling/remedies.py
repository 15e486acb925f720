"""What would have to change on a node, or in the pod, for one plugin to accept them: a text per plugin.

Plugins answer yes or no; here the facts that decide are read again and put into words. Plugins that are `ExplainsNodes`
say it themselves. A plugin without an entry is named, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordsched.api.quantity import format_bytes
from koordsched.cluster.nodetable import NodeTable
from koordsched.cluster.pod import Pod
from koordsched.cluster.ports import shape_ports
from koordsched.cluster.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION as CIRCUIT_BREAKER
from koordsched.plugins.nodecircuitbreaker.record import record_of
from koordsched.plugins.shared.matching.tolerations import tolerations_of

Remedy = Callable[[Pod, NodeTable, int], str]
"""(pod, table, row) -> what would have to change. The plugin refuses the pod on this row."""


def shortages(pod: Pod, table: NodeTable, row: int) -> dict[int, int]:
    """Resource index -> how much more the pod asks for than is free on the row."""
    return {
        index: missing
        for index, amount in pod.shape.requests.amounts
        if index < len(table.allocatable)
        and (missing := amount - table.allocatable[index].data.item(row) + table.requested[index].data.item(row)) > 0
        and not table.serves_otherwise(index, row)
    }


def amount_text(resource: int, name: str, amount: int) -> str:
    """`500m cpu`, `2Gi memory`, `4 example.com/gpu`."""
    if resource == CPU:
        whole, milli = divmod(amount, 1000)
        return f"{amount}m {name}" if milli else f"{whole} {name}"
    if resource in (MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-"):
        return f"{format_bytes(amount)} {name}"
    return f"{amount} {name}"


def _more_room(pod: Pod, table: NodeTable, row: int) -> str:
    names = table.resource_names.names
    parts: list[str] = []
    too_small: list[str] = []
    for index, missing in shortages(pod, table, row).items():
        has = table.allocatable[index].data.item(row)
        asked = pod.shape.requests.get(index)
        if asked > has:
            there = amount_text(index, "", has).strip()
            too_small.append(f"{amount_text(index, names[index], asked)} (this one has {there})")
        else:
            parts.append(f"{amount_text(index, names[index], missing)} more free")
    if table.pods_count.data.item(row) >= table.pods_allocatable.data.item(row):
        parts.append(f"a free pod slot (all {table.pods_allocatable.data.item(row)} are taken)")
    if too_small:
        parts.insert(0, f"a node with {' and '.join(too_small)}")
    return " and ".join(parts)


def _tolerate(pod: Pod, table: NodeTable, row: int) -> str:
    taints = table.taint_sets[table.taint_set.data.item(row)]
    texts = [
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in tolerations_of(pod.shape).turned_away_by(taints)
    ]
    return f"a toleration of taint {' and '.join(texts)}"


def _uncordon(pod: Pod, table: NodeTable, row: int) -> str:
    return "the node uncordoned"


def _match_labels(pod: Pod, table: NodeTable, row: int) -> str:
    node = table.nodes[row]
    labels = node.metadata.labels if node is not None else {}
    differing = [f"{key}={value}" for key, value in pod.shape.spec.node_selector.items() if labels.get(key) != value]
    if differing:
        return f"the label {' and '.join(differing)} on the node"
    return "a node that matches its node affinity"


def _free_ports(pod: Pod, table: NodeTable, row: int) -> str:
    taken = [
        f"{port}/{protocol}"
        for ip, protocol, port in shape_ports(pod.shape)
        if any(row in rows for rows in table.ports.conflicts([(ip, protocol, port)]))
    ]
    return f"host port {' and '.join(taken)} free"


def _close_breaker(pod: Pod, table: NodeTable, row: int) -> str:
    node = table.nodes[row]
    text = node.metadata.annotations.get(CIRCUIT_BREAKER) if node is not None else None
    try:
        record = record_of(text) if text else None
    except ValueError:
        record = None
    if record is None or not record.is_open:
        return "the circuit breaker of the node closed (its probe decides)"
    return f"the circuit breaker of the node closed (open until {record.until or 'its cool-down ends'})"


REMEDIES: Mapping[str, Remedy] = {
    "NodeResourcesFit": _more_room,
    "TaintToleration": _tolerate,
    "NodeUnschedulable": _uncordon,
    "NodeAffinity": _match_labels,
    "NodePorts": _free_ports,
    "NodeCircuitBreaker": _close_breaker,
}
"""By the name of the plugin."""
