"""Short ways to write topologies, and nodes in them."""

import numpy as np

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.state import ClusterState
from koordsched.plugins.coscheduling.topology.kinds import NODE_LAYER, ClusterNetworkTopology
from koordsched.plugins.coscheduling.topology.layers import layers_of
from koordsched.plugins.coscheduling.topology.tree import build
from tests.plugins.objects import node

SPINE = "network.topology.nvidia.com/spine"
BLOCK = "network.topology.nvidia.com/block"
T8 = {
    "node-1": ("s1", "b1"),
    "node-2": ("s1", "b2"),
    "node-3": ("s2", "b3"),
    "node-4": ("s2", "b4"),
    "node-5": ("s2", "b4"),
    "node-6": ("s2", "b3"),
    "node-7": ("s1", "b2"),
    "node-8": ("s1", "b1"),
}
T4 = {"n1": ("s1", "b1"), "n2": ("s1", "b1"), "n3": ("s1", "b2"), "n4": ("s1", "b2")}
T4_OFFERS = {"n1": 5, "n2": 7, "n3": 6, "n4": 4}


def entry(layer, parent="", *keys):
    """An entry of a networkTopologySpec."""
    made = {"topologyLayer": layer}
    if parent:
        made["parentTopologyLayer"] = parent
    if keys:
        made["labelKey"] = list(keys)
    return made


SPINES_AND_BLOCKS = (
    entry("SpineLayer", "", SPINE),
    entry("BlockLayer", "SpineLayer", BLOCK),
    entry(NODE_LAYER, "BlockLayer"),
)


def topology(*entries, name="default"):
    """A ClusterNetworkTopology."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"networkTopologySpec": list(entries)},
    }


def layers(*entries):
    """The layers of these entries."""
    return layers_of(convert(topology(*entries), ClusterNetworkTopology))


def labelled(name, values, **more):
    """A node with the labels of a spine and a block; None leaves one out."""
    labels = {key: value for key, value in zip((SPINE, BLOCK), values, strict=True) if value is not None}
    return node(name, **{"cpu": "16", "labels": labels, **more})


def cluster_of(nodes):
    """The state of a cluster with these nodes."""
    state = ClusterState()
    for each in nodes:
        state.upsert_node(convert(each, core.Node))
    return state


def tree_of(places, order=None):
    """(node table, tree) of nodes given as name -> (spine, block), added in an order."""
    state = cluster_of(labelled(name, places[name]) for name in order or places)
    return state.table, build(layers(*SPINES_AND_BLOCKS), state.table)


def amounts(table, by_name, dtype=np.int64):
    """By row, what is given by name; 0 for others."""
    found = np.zeros(table.size, dtype=dtype)
    for name, amount in by_name.items():
        found[table.row_of[name]] = amount
    return found
