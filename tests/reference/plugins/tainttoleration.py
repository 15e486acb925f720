"""Default-plugins spec 3.3."""

from tests.reference.normalization import default_normalize
from tests.reference.status import unresolvable
from tests.reference.taints import taints_of, tolerates, untolerated


class TaintToleration:
    def __init__(self, args):
        pass

    def filter(self, pod, node, world):
        if untolerated(pod, taints_of(node), ("NoSchedule", "NoExecute")):
            return unresolvable("node(s) had untolerated taint(s)")
        return None

    def score(self, pod, node, world, nodes):
        considered = [
            t for t in pod["spec"].get("tolerations") or [] if t.get("effect") in (None, "", "PreferNoSchedule")
        ]
        soft = [taint for taint in taints_of(node) if taint["effect"] == "PreferNoSchedule"]
        return len([taint for taint in soft if not any(tolerates(t, taint) for t in considered)])

    def normalize(self, pod, scores, world):
        return default_normalize(scores, reverse=True)
