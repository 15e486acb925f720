"""Default-plugins spec 3.5."""

from tests.reference.status import SKIP, unschedulable


def host_ports(pod):
    """(ip, protocol, port) of containers and sidecars."""
    spec = pod["spec"]
    sidecars = [c for c in spec.get("initContainers", []) if c.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in [*spec.get("containers", []), *sidecars]
        for port in container.get("ports", [])
        if port.get("hostPort", 0) > 0
    ]


class NodePorts:
    def __init__(self, args):
        pass

    def pre_filter(self, pod, world):
        return None if host_ports(pod) else SKIP

    def filter(self, pod, node, world):
        for ip, protocol, port in host_ports(pod):
            for other in world.pods_on(node):
                for other_ip, other_protocol, other_port in host_ports(other):
                    same_ip = ip == other_ip or "0.0.0.0" in (ip, other_ip)
                    if same_ip and (protocol, port) == (other_protocol, other_port):
                        return unschedulable("node(s) didn't have free ports for the requested pod ports")
        return None
