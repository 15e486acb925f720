"""ClusterNetworkTopology: the layers of the network, and the labels of nodes that say where in them a node is.

The layers stay JSON values here: users write them, and what is malformed must end in a message about the object
(`layers`). Only the object named `default` is read (coscheduling spec 2.4).
"""

from __future__ import annotations

from typing import Any

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.events import EventResource
from koordsched.cluster.kinds import Kind

DEFAULT = "default"
"""The name of the only object that counts."""

NETWORK_TOPOLOGY = EventResource("ClusterNetworkTopology")

CLUSTER_LAYER = "ClusterTopologyLayer"
NODE_LAYER = "NodeTopologyLayer"


class ClusterNetworkTopologySpec(Wire, frozen=True):
    """`networkTopologySpec`: a list of `{topologyLayer, parentTopologyLayer, labelKey}`."""

    network_topology_spec: Any = None


class ClusterNetworkTopologyStatus(Wire, frozen=True):
    """`detailStatus`: what the scheduler made of it; written by the scheduler, and only compared here."""

    detail_status: Any = None


class ClusterNetworkTopology(Wire, frozen=True):
    """The layers of the network."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()
    status: ClusterNetworkTopologyStatus = ClusterNetworkTopologyStatus()


# The tree that the nodes form is written to the status.
CLUSTER_NETWORK_TOPOLOGIES = Kind(
    "scheduling.koordinator.sh/v1alpha1",
    "clusternetworktopologies",
    ClusterNetworkTopology,
    NETWORK_TOPOLOGY,
    namespaced=False,
    verbs={"status": ("patch",)},
)
