"""Default-plugins spec 3.2."""

from tests.reference.status import unresolvable
from tests.reference.taints import tolerates


class NodeUnschedulable:
    def __init__(self, args):
        pass

    def filter(self, pod, node, world):
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if not node.get("spec", {}).get("unschedulable"):
            return None
        if any(tolerates(toleration, cordon) for toleration in pod["spec"].get("tolerations") or []):
            return None
        return unresolvable("node(s) were unschedulable")
