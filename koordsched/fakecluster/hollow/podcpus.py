"""CPUs that a pod has or wants for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koordsched.fakecluster.admission.pods import qos_class
from koordsched.fakecluster.hollow.allocation import amounts
from koordsched.fakecluster.hollow.annotationtext import decode_text
from koordsched.fakecluster.hollow.cpuset import parse_cpuset

Object = dict[str, Any]

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
"""Pod annotation: the CPUs that the scheduler chose."""
_LONGEST_TEXT = 65536
QOS_LABEL = "koordinator.sh/qosClass"


class PodCpus(NamedTuple):
    """What matters of a pod on a node."""

    namespace: str
    name: str
    wanted: int
    """CPUs that a kubelet with the static policy gives the pod."""
    qos: str
    """The label."""
    status: str | None
    """The annotation, as written."""
    bound: frozenset[int]
    """The CPUs in the annotation."""

    @property
    def by_kubelet(self) -> bool:
        """Whether the pod has CPUs that the kubelet chose, if any: koordlet takes care of all others."""
        return self.wanted > 0 and not self.bound and self.qos not in ("LS", "BE")


class _ResourceStatus(msgspec.Struct, frozen=True):
    cpuset: str | None = None


def read_resource_status(text: str | None) -> frozenset[int]:
    """The CPUs that an annotation names. Raises ValueError."""
    if not text or text == "null":
        return frozenset()
    return parse_cpuset(decode_text(text, _ResourceStatus, _LONGEST_TEXT).cpuset or "")


def exclusive_requests(pod: Object) -> list[int]:
    """How many CPUs each container gets for itself under the static policy: whole numbers in Guaranteed pods.

    Ordinary init containers count as one, with the most that one of them requests beyond what all others do, whose CPUs
    they use before them (kubernetes: pkg/kubelet/cm/cpumanager/policy_static.go).
    """
    spec = pod["spec"]
    if ((pod.get("status") or {}).get("qosClass") or qos_class(spec)) != "Guaranteed":
        return []
    initial = spec.get("initContainers") or ()
    sidecars = [container for container in initial if container.get("restartPolicy") == "Always"]
    lasting = [*_whole(sidecars), *_whole(spec.get("containers") or ())]
    first = max(_whole(container for container in initial if container not in sidecars), default=0)
    return [*lasting, max(0, first - sum(lasting))]


def _whole(containers: Any) -> Iterator[int]:
    for container in containers:
        milli = amounts((container.get("resources") or {}).get("requests") or {}).get("cpu", 0)
        if milli % 1000 == 0:
            yield milli // 1000


def pod_texts(metadata: Mapping[str, Any]) -> tuple[str, str | None]:
    """QoS label and resource status of a pod, all of it that may change while the pod runs."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return labels.get(QOS_LABEL, ""), annotations.get(RESOURCE_STATUS)
