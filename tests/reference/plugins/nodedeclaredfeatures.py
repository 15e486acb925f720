"""Default-plugins spec 3.13."""

from tests.reference.status import SKIP, unresolvable


def needed_features(pod):
    spec = pod["spec"]
    needed = set()
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        for rule in container.get("restartPolicyRules") or []:
            if rule.get("action") == "RestartAllContainers":
                needed.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needed.add("UserNamespacesHostNetworkSupport")
    return needed


class NodeDeclaredFeatures:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        return None if needed_features(pod) else SKIP

    def filter(self, pod, node, world):
        if needed_features(pod) <= set(node.get("status", {}).get("declaredFeatures") or []):
            return None
        return unresolvable("node(s) didn't match Pod's required features")
