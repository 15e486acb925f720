"""The layers of a ClusterNetworkTopology, from the root of the tree to the nodes (coscheduling spec 3.11)."""

from __future__ import annotations

from typing import Any, NamedTuple

from koordsched.api.decoding import DecodeError, convert
from koordsched.api.meta import Wire
from koordsched.plugins.coscheduling.topology.kinds import CLUSTER_LAYER, NODE_LAYER, ClusterNetworkTopology

MOST_LAYERS = 32
"""More are refused: no network is that deep, and every decision looks at each of them."""


class MalformedTopology(ValueError):
    """There is no tree; the message says what is wrong with the object."""


class Layers(NamedTuple):
    """`names`: from the root to the nodes, both included. `keys`: for each the label keys that say which domain a node
    belongs to; () for the first and the last. `warnings`: what works, but is hardly meant."""

    names: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...] = ()


class _Entry(Wire, frozen=True):
    topology_layer: str = ""
    parent_topology_layer: str = ""
    label_key: tuple[str, ...] = ()


def layers_of(topology: ClusterNetworkTopology) -> Layers:
    """The layers. Raises MalformedTopology."""
    entries = _entries(topology.spec.network_topology_spec)
    by_name = {entry.topology_layer: entry for entry in entries}
    if len(by_name) < len(entries):
        twice = next(name for name in by_name if [e.topology_layer for e in entries].count(name) > 1)
        raise MalformedTopology(f'topology layer "{_short(twice)}" is there twice')
    root = by_name.pop(CLUSTER_LAYER, None)
    if len(by_name) > MOST_LAYERS:
        raise MalformedTopology(f"{len(by_name)} topology layers, {MOST_LAYERS} are the most")
    chain = _chain(by_name)
    warnings = []
    parent = chain[0].parent_topology_layer
    if parent not in ("", CLUSTER_LAYER):
        top = _short(chain[0].topology_layer)
        warnings.append(f'topology layer "{top}" is the topmost: its parent "{_short(parent)}" is no layer here')
    if root is not None and root.parent_topology_layer:
        warnings.append(f'"{CLUSTER_LAYER}" has no parent: "{_short(root.parent_topology_layer)}" is ignored')
    warnings.extend(
        f'topology layer "{_short(each.topology_layer)}" has no labelKey' for each in chain[:-1] if not each.label_key
    )
    inner = [(entry.topology_layer, entry.label_key) for entry in chain[:-1]]
    return Layers(
        (CLUSTER_LAYER, *(name for name, _ in inner), NODE_LAYER), ((), *(keys for _, keys in inner), ()), (*warnings,)
    )


def _entries(written: Any) -> tuple[_Entry, ...]:
    try:
        return convert(written if written is not None else [], tuple[_Entry, ...])
    except DecodeError as error:
        raise MalformedTopology(f"spec.networkTopologySpec: {error}") from None


def _chain(by_name: dict[str, _Entry]) -> list[_Entry]:
    """All entries, topmost first: the parents of NodeTopologyLayer one after the other."""
    chain: list[_Entry] = []
    layer, left = NODE_LAYER, dict(by_name)
    while left or not chain:
        entry = left.pop(layer, None)
        if entry is None:
            if layer in by_name:
                raise MalformedTopology(f'topology layer "{_short(layer)}" is a parent of itself')
            unused = ", ".join(sorted(map(_short, left)))
            raise MalformedTopology(
                f'topology layer "{_short(layer)}" not found in spec'
                + (f", which leaves out {unused}" if unused and layer != NODE_LAYER else "")
            )
        chain.append(entry)
        layer = entry.parent_topology_layer
    if layer in by_name:
        raise MalformedTopology(f'topology layer "{_short(layer)}" is a parent of itself')
    return chain[::-1]


def _short(name: str) -> str:
    return name if len(name) <= 64 else f"{name[:61]}..."
