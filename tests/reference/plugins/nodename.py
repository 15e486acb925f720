"""Default-plugins spec 3.2."""

from tests.reference.status import unresolvable


class NodeName:
    def __init__(self, args):
        pass

    def filter(self, pod, node, world):
        if pod["spec"].get("nodeName") in (None, "", node["metadata"]["name"]):
            return None
        return unresolvable("node(s) didn't match the requested node name")
