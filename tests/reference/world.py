"""A cluster state: objects by kind, and the pods on each node."""

from tests.reference.podrequests import nonzero_requests, requests
from tests.reference.quantity import in_units_of, parse


class World:
    """`objects`: JSON objects in order of arrival; pods with spec.nodeName are placed, others pending."""

    def __init__(self, objects=()):
        self.objects = {}
        self.placed = []
        for item in objects:
            self.add(item)

    def add(self, item):
        """Takes in an object; returns self."""
        if item["kind"] == "Pod":
            if item["spec"].get("nodeName"):
                self.placed.append(item)
        else:
            self.objects.setdefault(item["kind"], []).append(item)
        return self

    def with_pods(self, pods_and_nodes):
        """A copy of this world in which these pods are on those nodes."""
        copy = World()
        copy.objects = self.objects
        copy.placed = [*self.placed, *(_placed_on(pod, node) for pod, node in pods_and_nodes)]
        return copy

    def place(self, pod, node):
        """The pod is on the node from now on."""
        self.placed.append(_placed_on(pod, node))

    def kind(self, kind):
        """All objects of a kind."""
        return self.objects.get(kind, [])

    @property
    def nodes(self):
        return self.kind("Node")

    def pods_on(self, node):
        """The pods on a node."""
        return [pod for pod in self.placed if pod["spec"]["nodeName"] == node["metadata"]["name"]]

    def placed_with_node(self):
        """(pod, node) for every pod on a node that exists."""
        by_name = {node["metadata"]["name"]: node for node in self.nodes}
        return [(p, by_name[p["spec"]["nodeName"]]) for p in self.placed if p["spec"]["nodeName"] in by_name]

    def requested(self, node, resource):
        """Sum of effective requests on a node."""
        return sum(requests(pod).get(resource, 0) for pod in self.pods_on(node))

    def requested_nonzero(self, node, resource):
        """The same with defaults for containers without requests."""
        return sum(nonzero_requests(pod).get(resource, 0) for pod in self.pods_on(node))

    def namespace_labels(self, name):
        """Labels of a namespace; every namespace carries its name."""
        for namespace in self.kind("Namespace"):
            if namespace["metadata"]["name"] == name:
                return namespace["metadata"].get("labels") or {}
        return {}


def _placed_on(pod, node):
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def allocatable(node, resource):
    """A node's allocatable, 0 if it has none."""
    return in_units_of(resource, parse(node.get("status", {}).get("allocatable", {}).get(resource, 0)))


def labels_of(item):
    return item["metadata"].get("labels") or {}


def namespace_of(item):
    return item["metadata"].get("namespace", "default")


def is_deleting(pod):
    return pod["metadata"].get("deletionTimestamp") is not None
