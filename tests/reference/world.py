"""A cluster state: objects by kind, and the pods on each node."""

from tests.reference.podrequests import nonzero_requests, requests
from tests.reference.quantity import in_units_of, parse


class World:
    """`objects`: JSON objects in order of arrival; pods with spec.nodeName are placed, others pending."""

    def __init__(self, objects=()):
        self.objects = {}
        self.placed = []
        self.origin = self  # of what a copy is one
        self.image_sizes = {}  # as first seen; forgotten with the last node that has the image
        for item in objects:
            self.add(item)

    def add(self, item):
        """Takes in an object; returns self."""
        if item["kind"] == "Pod":
            if item["spec"].get("nodeName"):
                self.placed.append(item)
        else:
            self.objects.setdefault(item["kind"], []).append(item)
        if item["kind"] == "Node":
            self._images_appear(item)
        return self

    def _images_appear(self, node):
        for name, size in images_of(node):
            self.image_sizes.setdefault(name, size)

    def replace(self, item):
        """The object of the same kind and name is now this one; it keeps its place in the order."""
        kind = self.objects[item["kind"]]
        place = [other["metadata"]["name"] for other in kind].index(item["metadata"]["name"])
        before, kind[place] = kind[place], item
        if item["kind"] == "Node":
            others = {name for node in self.nodes if node is not item for name, _ in images_of(node)}
            for name, _ in images_of(before):
                if name not in others:
                    self.image_sizes.pop(name, None)
            self._images_appear(item)

    def with_pods(self, pods_and_nodes):
        """A copy of this world in which these pods are on those nodes."""
        return self._with([*self.placed, *(_placed_on(pod, node) for pod, node in pods_and_nodes)])

    def without(self, pods):
        """A copy of this world in which these pods are on no node."""
        return self._with([other for other in self.placed if not any(other is pod for pod in pods)])

    def _with(self, placed):
        copy = World()
        copy.objects = self.objects
        copy.origin = self.origin
        copy.image_sizes = self.image_sizes
        copy.placed = placed
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


def images_of(node):
    """(name, size) of the images on a node."""
    images = node.get("status", {}).get("images") or []
    return [(name, image["sizeBytes"]) for image in images for name in image["names"]]


def allocatable(node, resource):
    """A node's allocatable, 0 if it has none."""
    return in_units_of(resource, parse(node.get("status", {}).get("allocatable", {}).get(resource, 0)))


def labels_of(item):
    return item["metadata"].get("labels") or {}


def namespace_of(item):
    return item["metadata"].get("namespace", "default")


def is_deleting(pod):
    return pod["metadata"].get("deletionTimestamp") is not None
