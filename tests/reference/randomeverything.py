"""Random clusters in which everything happens at once: what a node and a pod may say, other pods, and volumes."""

from tests.reference.randomstate import NAMESPACES, RandomState
from tests.reference.randomvolumes import RandomVolumes


class RandomEverything:
    """Builds JSON objects from a seeded generator. Half of the pods have volumes, and those are in one namespace."""

    def __init__(self, rng, nodes):
        self.rng = rng
        self.general = RandomState(rng)
        self.storage = RandomVolumes(rng, nodes)
        self.in_default = RandomState(rng, NAMESPACES[:1])

    def cluster(self, pods):
        """All objects, up to `pods` pods on nodes among them."""
        names = self.storage.node_names
        nodes = {name: self.node(name) for name in names}
        placed = [self.pod(f"e{i}", on=self.rng.choice(names)) for i in range(self.rng.randint(pods // 2, pods))]
        attachments = [self.storage.attachment(i) for i in range(self.rng.randrange(len(names) + 1))]
        rest = [item for item in self.storage.objects if item["kind"] != "Node"]
        return [*self.general.others(), *nodes.values(), *rest, *placed, *attachments]

    def node(self, name):
        """A node, with the labels that volumes ask for."""
        made = self.general.node(name)
        for label, value in self.storage.node(name)["metadata"]["labels"].items():
            made["metadata"]["labels"].setdefault(label, value)
        return made

    def changed(self, name):
        """The node of this name as it is from now on."""
        return self.node(name)

    def pod(self, name, on=None):
        """A pod; the claims that it brings, if any, are part of a cluster that is asked for later."""
        if self.rng.random() < 0.5:
            return self.general.pod(name, on)
        made = self.in_default.pod(name, on)
        made["spec"].setdefault("volumes", [])
        made["metadata"]["uid"] = f"uid-{name}"
        made["spec"]["volumes"] += self.storage.pod(name)["spec"]["volumes"]
        return made
