"""NodeResourceTopology: what the agent of a node reports about its CPUs and NUMA nodes. Labels and annotations.

Only what decisions read is decoded (nodenumaresource spec 2.3 to 2.5).
"""

from __future__ import annotations

from koordsched.api.meta import ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, every_pod

# Annotations of pods.
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"

# Labels of nodes.
CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"

# Annotations of nodes and of their NodeResourceTopology.
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"

# Annotations of a NodeResourceTopology.
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
NODE_RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"

OF_NODES = (AMPLIFICATION_RATIO,)
OF_TOPOLOGIES = (
    AMPLIFICATION_RATIO,
    CPU_TOPOLOGY,
    CPU_MANAGER_POLICY,
    POD_CPU_ALLOCS,
    NODE_RESERVATION,
    SYSTEM_QOS_RESOURCE,
)


class ZoneResource(Wire, frozen=True):
    """How much of a resource a NUMA node has for pods."""

    name: str = ""
    allocatable: str | int | float = 0


class Zone(Wire, frozen=True):
    """A part of the machine: of type `Node`, the NUMA node that its name (`node-1`) says."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(Wire, frozen=True):
    """The report about the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()


NODE_RESOURCE_TOPOLOGIES = Kind(
    "topology.node.k8s.io/v1alpha1",
    "noderesourcetopologies",
    NodeResourceTopology,
    namespaced=False,
    need=Need(("NodeNUMAResource",), every_pod, "pods of profiles with NodeNUMAResource wait"),
)
