"""The objects of the plugin: ElasticQuota, ElasticQuotaProfile, their labels and annotations, and those of pods.

Amounts are kept as written; `definitions` says what is wrong with one (elasticquota spec 2).
"""

from __future__ import annotations

from koordsched.api.core import Quantities
from koordsched.api.meta import LabelSelector, ObjectMeta, Wire
from koordsched.cluster.kinds import Kind, Need, every_pod

ROOT_QUOTA = "koordinator-root-quota"
DEFAULT_QUOTA = "koordinator-default-quota"
SYSTEM_QUOTA = "koordinator-system-quota"

PREFIX = "quota.scheduling.koordinator.sh/"

# Labels of pods.
QUOTA_NAME = PREFIX + "name"
PREEMPTIBLE = PREFIX + "preemptible"

# Labels of quotas.
PARENT = PREFIX + "parent"
IS_PARENT = PREFIX + "is-parent"
ALLOW_LENT_RESOURCE = PREFIX + "allow-lent-resource"
ALLOW_FORCE_UPDATE = PREFIX + "allow-force-update"
TREE_ID = PREFIX + "tree-id"
IS_ROOT = PREFIX + "is-root"
IGNORE_DEFAULT_TREE = PREFIX + "ignore-default-tree"
PROFILE = PREFIX + "profile"

# Annotations that are inputs.
SHARED_WEIGHT = PREFIX + "shared-weight"
NAMESPACES = PREFIX + "namespaces"
TOTAL_RESOURCE = PREFIX + "total-resource"
ADMISSION = PREFIX + "admission"
MAX_STRICT_CHECK_RESOURCE_KEYS = PREFIX + "max-strict-check-resource-keys"
RESOURCE_KEYS = PREFIX + "resource-keys"

# Annotations that components write.
UNSCHEDULABLE_RESOURCE = PREFIX + "unschedulable-resource"
RUNTIME = PREFIX + "runtime"
REQUEST = PREFIX + "request"
CHILD_REQUEST = PREFIX + "child-request"
GUARANTEED = PREFIX + "guaranteed"
ALLOCATED = PREFIX + "allocated"
NON_PREEMPTIBLE_REQUEST = PREFIX + "non-preemptible-request"
NON_PREEMPTIBLE_USED = PREFIX + "non-preemptible-used"


class ElasticQuotaSpec(Wire, frozen=True):
    """What the quota is guaranteed (`min`) and may use at most (`max`)."""

    min: Quantities = {}
    max: Quantities = {}


class ElasticQuotaStatus(Wire, frozen=True):
    """What the pods of the quota use."""

    used: Quantities = {}


class ElasticQuota(Wire, frozen=True):
    """A quota. Everything beyond the amounts is in labels and annotations."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class ElasticQuotaProfileSpec(Wire, frozen=True):
    """A quota tree for the nodes of a selector."""

    quota_name: str = ""
    quota_labels: dict[str, str] = {}
    resource_ratio: str | None = None
    node_selector: LabelSelector | None = None


class ElasticQuotaProfile(Wire, frozen=True):
    """Keeps the root quota of a tree at the size of its nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaProfileSpec = ElasticQuotaProfileSpec()


# Built-in quotas and those of profiles are created; usage and runtime are written to all.
ELASTIC_QUOTAS = Kind(
    "scheduling.sigs.k8s.io/v1alpha1",
    "elasticquotas",
    ElasticQuota,
    verbs={"": ("create", "patch")},
    need=Need(("ElasticQuota",), every_pod, "pods of profiles with ElasticQuota wait"),
)
# A profile without a tree gets the label of one.
ELASTIC_QUOTA_PROFILES = Kind(
    "quota.koordinator.sh/v1alpha1", "elasticquotaprofiles", ElasticQuotaProfile, verbs={"": ("patch",)}
)
