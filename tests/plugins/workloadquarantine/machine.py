"""Quarantines without a scheduler: nodes, pods and namespaces are told one by one, and time is a number."""

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.cluster.builtinkinds import NAMESPACES
from koordsched.plugins.shared.moments import moment_text
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from koordsched.plugins.workloadquarantine.quarantines import Quarantines
from koordsched.plugins.workloadquarantine.record import key_of
from tests.plugins.nodecircuitbreaker import machine
from tests.plugins.objects import node, pod


class Machine(machine.Machine):
    """A cluster state and its quarantines."""

    def __init__(self, args=None, clock=None):
        super().__init__(None, clock)
        self.args = args
        self.quarantines = Quarantines.shared(args or WorkloadQuarantineArgs(), self.handle)

    def moment(self, ago=0.0):
        """The text of a time so many seconds ago."""
        return moment_text(self.clock.wall() - ago)

    def node(self, name, ready="True", since=None, boot="", unschedulable=False, made=None):
        """A node comes, or changes."""
        thing = node(name, unschedulable=unschedulable)
        if made is not None:
            thing["metadata"]["creationTimestamp"] = made
        thing["metadata"]["uid"] = f"uid-{name}"
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": self.moment() if since is None else since}
        thing["status"] |= {"conditions": [condition], "nodeInfo": {"bootID": boot}}
        self.cluster.upsert_node(convert(thing, core.Node))

    def nodes(self, count):
        """Nodes that are well."""
        for number in range(count):
            self.node(f"n{number}")

    def pod(self, name, on, owner, started=None, kind="StatefulSet", namespace="default"):
        """A pod of an owner that started at some time, now by default."""
        thing = pod(name, on=on, namespace=namespace)
        thing["metadata"]["ownerReferences"] = [
            {"kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
        thing["status"] = {"phase": "Running", "startTime": self.moment() if started is None else started}
        self.cluster.set_pod(self.build(thing, core.Pod))

    def namespace(self, name="default", **annotations):
        """A namespace comes, or changes."""
        meta = {"name": name, "annotations": {key.replace("__", "/"): text for key, text in annotations.items()}}
        self.cluster.objects.of(NAMESPACES).upsert(convert({"metadata": meta}, core.Namespace))

    def write(self, name="default"):
        """What the controller would write on a namespace."""
        held = self.quarantines.held
        texts = {key_of(each): self.quarantines.annotation(each) for each in held if each.namespace == name}
        meta = {"name": name, "annotations": texts}
        self.cluster.objects.of(NAMESPACES).upsert(convert({"metadata": meta}, core.Namespace))

    def held(self):
        """Names of the workloads that are held back."""
        return sorted(workload.name for workload in self.quarantines.held)
