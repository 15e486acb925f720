"""Default-plugins spec 3.11."""

from tests.reference.quantity import parse
from tests.reference.selectors import label_selector_matches, node_selector_matches
from tests.reference.status import ERROR, SKIP, Status, unresolvable
from tests.reference.volumes import (
    SELECTED_NODE,
    all_claims,
    annotations_of,
    claim_of,
    class_name,
    class_of,
    find,
    is_bound,
    owned_by,
    requested,
)
from tests.reference.world import labels_of, namespace_of

CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOTHING = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class VolumeBinding:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        if not all_claims(pod):
            return SKIP
        for name, ephemeral in all_claims(pod):
            claim = claim_of(world, pod, name)
            if claim is None and ephemeral:
                return unresolvable(
                    f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                )
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found')
            if claim.get("status", {}).get("phase") == "Lost":
                volume = claim["spec"].get("volumeName", "")
                return unresolvable(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"')
            if claim["metadata"].get("deletionTimestamp"):
                return unresolvable(f'persistentvolumeclaim "{name}" is being deleted')
            if ephemeral and not owned_by(claim, pod):
                key = f"{namespace_of(pod)}/{pod['metadata']['name']}"
                return unresolvable(f"PVC {namespace_of(pod)}/{name} was not created for pod {key} (pod is not owner)")
        kinds = [self._kind(claim, world) for claim in self._claims(pod, world)]
        for kind in kinds:
            if isinstance(kind, Status):
                return kind
        if "immediate" in kinds:
            return unresolvable("pod has unbound immediate PersistentVolumeClaims")
        return None

    def pre_score(self, pod, world, nodes):
        return SKIP

    def score(self, pod, node, world, nodes):
        return 0

    def _claims(self, pod, world):
        return [claim_of(world, pod, name) for name in dict.fromkeys(name for name, _ in all_claims(pod))]

    def _kind(self, claim, world):
        """bound, immediate or delayed."""
        if is_bound(claim):
            return "bound"
        storage_class = class_of(world, claim)
        if storage_class is None:
            return "immediate"
        if storage_class.get("volumeBindingMode") is None:
            return Status(ERROR, (f'VolumeBindingMode not set for StorageClass "{class_name(claim)}"',))
        delayed = storage_class["volumeBindingMode"] == "WaitForFirstConsumer" and not claim["spec"].get("volumeName")
        return "delayed" if delayed else "immediate"

    def filter(self, pod, node, world):
        claims = self._claims(pod, world)
        found = []
        for claim in claims:
            if self._kind(claim, world) != "bound":
                continue
            volume = find(world, "PersistentVolume", claim["spec"]["volumeName"])
            if volume is None:
                found.append(MISSING)
                break
            if not reachable(as_migrated(volume, node, world), node):
                found.append(CONFLICT)
                break
        problem = self._unbound(claims, node, world)
        if problem:
            found.append(problem)
        order = [CONFLICT, NOTHING, NO_SPACE, MISSING]
        return unresolvable(*sorted(found, key=order.index)) if found else None

    def _unbound(self, claims, node, world):
        """What is wrong with the node for the claims that wait for their consumer."""
        delayed = [claim for claim in claims if self._kind(claim, world) == "delayed"]
        chosen = [claim for claim in delayed if SELECTED_NODE in annotations_of(claim)]
        if any(annotations_of(claim)[SELECTED_NODE] != node["metadata"]["name"] for claim in chosen):
            return NOTHING
        to_match = sorted([c for c in delayed if c not in chosen], key=lambda c: requested(c) or 0)
        taken, to_provision = [], list(chosen)
        for claim in to_match:
            volume = match(claim, node, world, taken)
            if volume is None:
                to_provision.append(claim)
            else:
                taken.append(volume)
        for claim in to_provision:
            problem = provision_problem(claim, node, world)
            if problem:
                return problem
        return None


def reachable(volume, node):
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or node_selector_matches(required, node)


MIGRATED_ZONES = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "topology.ebs.csi.aws.com/zone"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "topology.gke.io/zone"),
    "cinder": ("kubernetes.io/cinder", "topology.cinder.csi.openstack.org/zone"),
}
GA, BETA = "topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/"


def as_migrated(volume, node, world):
    """An in-tree volume as its CSI driver sees it, if that is in charge on the node."""
    kind = next((kind for kind in MIGRATED_ZONES if volume["spec"].get(kind)), None)
    csi_node = find(world, "CSINode", node["metadata"]["name"])
    if kind is None or csi_node is None:
        return volume
    plugin, zone_key = MIGRATED_ZONES[kind]
    listed = annotations_of(csi_node).get("storage.alpha.kubernetes.io/migrated-plugins", "")
    if plugin not in listed.split(","):
        return volume
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    terms = [[dict(e) for e in term.get("matchExpressions", [])] for term in required.get("nodeSelectorTerms", [])]
    used = {e["key"] for term in terms for e in term}
    prefix = next((p for keys in (used, labels_of(volume)) for p in (GA, BETA) if p + "zone" in keys), GA)
    zones = [z.strip() for z in labels_of(volume).get(prefix + "zone", "").split("__") if z.strip()]
    if any(e["key"] == prefix + "zone" and e.get("values") for term in terms for e in term):
        rename(terms, prefix + "zone", zone_key)
    elif zones:
        terms = [[*term, {"key": zone_key, "operator": "In", "values": zones}] for term in terms or [[]]]
    if prefix == BETA:
        rename(terms, BETA + "region", GA + "region")
    if not terms and not required:
        return volume
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {**volume, "spec": {**volume["spec"], "nodeAffinity": {"required": selector}}}


def rename(terms, old, new):
    for term in terms:
        for expression in term:
            if expression["key"] == old:
                expression["key"] = new


def is_for(volume, claim):
    reference = volume["spec"].get("claimRef")
    return (
        reference is not None
        and (reference["namespace"], reference["name"]) == (namespace_of(claim), claim["metadata"]["name"])
        and reference.get("uid", "") in ("", claim["metadata"].get("uid", ""))
    )


def capacity(volume):
    return parse(volume["spec"]["capacity"]["storage"])


def match(claim, node, world, taken):
    """The volume that the claim would get on the node."""
    spec = claim["spec"]
    fitting = [
        volume
        for volume in world.kind("PersistentVolume")
        if volume not in taken
        and class_name(volume) == class_name(claim)
        and (volume["spec"].get("claimRef") is None or is_for(volume, claim))
        and capacity(volume) >= (requested(claim) or 0)
        and volume["spec"].get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
        and volume["spec"].get("volumeAttributesClassName", "") == spec.get("volumeAttributesClassName", "")
        and not volume["metadata"].get("deletionTimestamp")
    ]
    fitting.sort(key=lambda volume: volume["metadata"]["name"])
    for volume in fitting:
        if is_for(volume, claim):
            return volume if reachable(volume, node) else None
    fitting = [
        volume
        for volume in fitting
        if volume["status"]["phase"] == "Available"
        and ("selector" not in spec or label_selector_matches(spec["selector"], labels_of(volume)))
        and reachable(volume, node)
        and set(spec["accessModes"]) <= set(volume["spec"]["accessModes"])
    ]
    return min(fitting, key=capacity, default=None)


def provision_problem(claim, node, world):
    """Why the claim's volume cannot be provisioned for the node; None if it can."""
    storage_class = class_of(world, claim)
    if storage_class["provisioner"] in ("", "kubernetes.io/no-provisioner"):
        return NOTHING
    topologies = storage_class.get("allowedTopologies") or []
    if topologies and not any(in_topology(topology, node) for topology in topologies):
        return NOTHING
    driver = find(world, "CSIDriver", storage_class["provisioner"])
    if driver is None or not driver["spec"].get("storageCapacity") or requested(claim) is None:
        return None
    for item in world.kind("CSIStorageCapacity"):
        limit = item.get("maximumVolumeSize", item.get("capacity"))
        if (
            item["storageClassName"] == storage_class["metadata"]["name"]
            and limit is not None
            and parse(limit) >= requested(claim)
            and label_selector_matches(item.get("nodeTopology"), labels_of(node))
        ):
            return None
    return NO_SPACE


def in_topology(topology, node):
    expressions = topology.get("matchLabelExpressions") or []
    return bool(expressions) and all(labels_of(node).get(e["key"]) in e["values"] for e in expressions)
