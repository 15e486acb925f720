"""core/v1: pods, nodes and namespaces, as the scheduler reads them."""

from __future__ import annotations

import msgspec

from koordsched.api.meta import Int32, Int64, LabelSelector, ObjectMeta, Wire
from koordsched.api.podvolumes import Volume

Quantity = str | int | float
Quantities = dict[str, Quantity]
"""Resource name -> quantity as written: text, or a number if the manifest has one."""


# --- pods ----------------------------------------------------------------------------------------


class ContainerPort(Wire, frozen=True):
    """A port of a container; only host ports matter for placement."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerClaim(Wire, frozen=True):
    """A container uses the claim to devices of the pod's entry `name`."""

    name: str = ""


class ResourceRequirements(Wire, frozen=True):
    """Requests and limits of a container or of a whole pod, and the claims that a container uses."""

    requests: Quantities = {}
    limits: Quantities = {}
    claims: tuple[ContainerClaim, ...] = ()


class RestartRule(Wire, frozen=True):
    """A container restart rule; the action decides which node feature is needed."""

    action: str = ""


class Container(Wire, frozen=True):
    """A container or init container; `restart_policy` Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] = ()


class Toleration(Wire, frozen=True):
    """Tolerates taints with this key, value and effect; empty fields match all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Wire, frozen=True):
    """One expression of a node selector term: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """Requirements on labels and fields, ANDed; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms, ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    """A preference for nodes matching a term."""

    weight: Int32
    preference: NodeSelectorTerm


class NodeAffinity(Wire, frozen=True):
    """Required and preferred node selectors."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True):
    """Pods selected by labels and namespaces, related to a node through a topology key."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    """A preferred pod (anti-)affinity term."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Wire, frozen=True):
    """Required and preferred terms; anti-affinity has the same shape."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    """How pods matching a selector spread over the domains of a topology key."""

    max_skew: Int32
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class NamedReference(Wire, frozen=True):
    """Any reference that is only a name: a scheduling gate, a local object, a claim template."""

    name: str = ""


class PodResourceClaim(Wire, frozen=True):
    """A reference to a ResourceClaim (dynamic resource allocation)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Wire, frozen=True):
    """The PodGroup (scheduling.k8s.io) whose pods are scheduled together."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    """What the user asked for, as far as placement is concerned."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: Int32 | None = None
    preemption_policy: str | None = None
    scheduling_gates: tuple[NamedReference, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: Int64 | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(Wire, frozen=True):
    """A condition of a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(Wire, frozen=True):
    """What the node agent reports of a container; `resources` are those in force after a resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}


class PodResourceClaimStatus(Wire, frozen=True):
    """The claim that was made of a template for the pod's entry `name`; none was needed if it has no name."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Wire, frozen=True):
    """Which request of the claim stands for an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Wire, frozen=True):
    """The claim that the scheduler made for the pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableResourceClaimStatus(Wire, frozen=True):
    """What the devices of a claim take of the node's allocatable resources, for these containers."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: Quantities = {}


class PodStatus(Wire, frozen=True):
    """What happened to the pod so far; `resources` are those of the whole pod in force after a resize."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities = {}
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()

    def condition(self, kind: str) -> PodCondition | None:
        """The condition of that type, if the pod has it."""
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None


class Pod(Wire, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- nodes ---------------------------------------------------------------------------------------


class Taint(Wire, frozen=True):
    """A taint of a node; effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    """What the operator set on the node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Wire, frozen=True):
    """A condition of a node."""

    type: str
    status: str = ""
    last_transition_time: str | None = None


class NodeSystemInfo(Wire, frozen=True):
    """What machine it is; `boot_id` changes with every start of it."""

    boot_id: str = msgspec.field(default="", name="bootID")


class ContainerImage(Wire, frozen=True):
    """An image present on a node, under all its names."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Wire, frozen=True):
    """What the node reports."""

    allocatable: Quantities = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo | None = None


class Node(Wire, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Wire, frozen=True):
    """A namespace; its labels decide which pods a namespace selector reaches."""

    metadata: ObjectMeta = ObjectMeta()


# --- objects read by the volume and spread plugins ------------------------------------------------


class ServiceSpec(Wire, frozen=True):
    """The pods a service selects; an empty selector selects none."""

    selector: dict[str, str] = {}


class ConfigMap(Wire, frozen=True):
    """Texts by key."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class Service(Wire, frozen=True):
    """A service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Wire, frozen=True):
    """The pods a replication controller owns, by equality of labels."""

    selector: dict[str, str] = {}


class ReplicationController(Wire, frozen=True):
    """A replication controller."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
