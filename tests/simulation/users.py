"""What users do to pods and nodes."""

import asyncio
from random import Random

from koordsched.fakecluster.clock import rfc3339_micro
from koordsched.fakecluster.defaults import default_pod_spec
from tests.plugins.objects import container, node, pod, taint
from tests.simulation.invariants import is_gone
from tests.simulation.permits import GATE

ZONES = ("z1", "z2", "z3")
APPS = ("web", "db", "cache")
NAMESPACES = ("default", "other")
MALFORMED = (
    {"tolerations": "none"},
    {"containers": [{"name": "c", "resources": {"requests": {"cpu": "a lot"}}}]},
    {"priority": "high"},
    {"affinity": {"nodeAffinity": 7}},
)


class Users:
    """Creates, changes and deletes pods and nodes at random."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} users")
        self.quotas = simulation.quotas
        self.extender = simulation.extender
        self.volumes = simulation.volumes
        self.loads = simulation.loads
        self.faults = simulation.faults
        self.numa = simulation.numa
        self.devices = simulation.devices
        self.reservations = simulation.reservations
        self.gangs = simulation.gangs
        self.claims = simulation.claims
        later = (simulation.natives, simulation.resizes, simulation.interruptions, simulation.moves)
        more = (self.loads, self.faults, self.numa, self.devices, self.reservations, self.gangs, self.claims, *later)
        self._more = [each for each in more if each is not None]
        """Those who act on what a world has beside pods, nodes, volumes and quotas."""
        self.names = 0
        self.templates = [self._template() for _ in range(6)]
        self.broken = {}
        """uid -> name of the pods that nobody can understand."""

    def settle_in(self):
        """What exists before any scheduler starts."""
        for namespace in NAMESPACES:
            if self.server.get("Namespace", namespace) is None:
                self.server.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for i in range(self.plan.nodes):
            self.server.insert(self._node(f"n{i}"))
        if self.volumes is not None:
            self.volumes.settle_in()
        if self.quotas is not None:
            self.quotas.settle_in()
        for each in self._more:
            each.settle_in()
        for _ in range(self.rng.randint(0, 5)):
            self._foreign_pod()
        for _ in range(self.plan.pods):
            self.create()

    async def run(self):
        """Until cancelled."""
        actions = [
            (10, self.create), (4, self._burst), (7, self._delete), (2, self._replace), (3, self._relabel),
            (3, self._open_gate), (4, self._finish), (1, self._foreign_pod), (1, self._steal),
            (2.5, self._add_node), (2, self._remove_node), (1.5, self._flap_node), (3, self._change_node),
            (1, self._heartbeat), (0.7, self._malformed_pod), (0.4, self._malformed_node),
        ]  # fmt: skip
        if self.quotas is not None:
            actions += [*self.quotas.actions(), (2, self._go_to_another_quota)]
        if self.volumes is not None:
            actions += self.volumes.actions()
        for each in self._more:
            actions += each.actions()
        if "permits" in self.plan.features:
            actions.append((2, self._turn_gate))
        if self.extender is not None:
            actions.append((1, self.extender.change_its_mind))
        weights = [weight for weight, _ in actions]
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.plan.pause_between))
            self.rng.choices([action for _, action in actions], weights)[0]()

    def tidy_up(self):
        """Mends what is malformed and takes away what is too much: the state that remains must come to rest."""
        for thing in self.server.objects("Node"):
            if isinstance(thing["spec"].get("taints"), dict):
                self.server.change("Node", thing["metadata"]["name"], _mend_node)
        for thing in self.server.objects("Pod"):
            if thing["metadata"]["uid"] in self.broken and self.rng.random() < 0.5:
                self.server.remove("Pod", thing["metadata"]["name"], thing["metadata"]["namespace"])
        if self.quotas is not None:
            self.quotas.tidy_up()
        if self.volumes is not None:
            self.volumes.tidy_up()
        for each in self._more:
            each.tidy_up()
        if self.extender is not None:
            self.extender.recover()
        for thing in self.server.objects("Node"):
            if "permits" in self.plan.features:
                self.server.change("Node", thing["metadata"]["name"], _open_gate)
            if self.extender is not None:
                # Nobody can know what an extender waits for: something has to happen.
                self.server.change("Node", thing["metadata"]["name"], _nudge)

    # --- pods --------------------------------------------------------------------------------------

    def _template(self):
        """What the replicas of one workload have in common."""
        rng, kinds = self.rng, self.plan.kinds

        def may(kind, chance):
            return kind in kinds and rng.random() < chance

        app = rng.choice(APPS)
        amounts = {"cpu": rng.choice(["100m", "500m", "1", "2"]), "memory": rng.choice(["100Mi", "1Gi", "3Gi", None])}
        if may("gpu", 0.4):
            amounts["gpu"] = rng.choice([1, 2])
        ports = [rng.choice([80, 443])] if may("ports", 0.4) else []
        spec = {"priority": rng.choice([0, 10, 100]) if may("priority", 0.8) else 0}
        if spec["priority"] and rng.random() < 0.2:
            spec["preemptionPolicy"] = "Never"
        if may("gates", 0.3):
            spec["schedulingGates"] = [{"name": "wait"}]
        if may("selector", 0.4):
            spec["nodeSelector"] = {"disk": rng.choice(["ssd", "hdd"])}
        if may("tolerations", 0.5):
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        same = {"matchLabels": {"app": app}}
        if may("spread", 0.5):
            key = rng.choice(["zone", "kubernetes.io/hostname"])
            spec["topologySpreadConstraints"] = [
                {"topologyKey": key, "maxSkew": rng.choice([1, 2]), "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": same}
            ]  # fmt: skip
        for kind, name in (("anti", "podAntiAffinity"), ("affinity", "podAffinity")):
            if may(kind, 0.3):
                terms = [{"topologyKey": rng.choice(["zone", "kubernetes.io/hostname"]), "labelSelector": same}]
                spec["affinity"] = {name: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        uses = self.volumes.uses() if self.volumes is not None else []
        return app, amounts, ports, spec, uses

    def new_pod(self, app, amounts, ports=(), **spec):
        """A pod of an app that requests these amounts, and nothing else that matters to nodes."""
        return self._pod((app, amounts, list(ports), {"priority": 0, **spec}, []))

    def _pod(self, template, **more):
        app, amounts, ports, spec, uses = template
        self.names += 1
        one = container(ports=ports, **amounts)
        if "gpu" in amounts:
            one["resources"]["limits"] = {"ex.com/gpu": str(amounts["gpu"])}
        made = pod(
            f"p{self.names}",
            one,
            labels={"app": app},
            namespace=self.rng.choice(NAMESPACES),
            **{**spec, **more},
        )
        if self.quotas is not None:
            made["metadata"]["labels"] |= self.quotas.labels()
        if self.numa is not None:
            self.numa.equip_pod(made)
        if self.devices is not None:
            self.devices.equip_pod(made)
        if self.reservations is not None:
            self.reservations.equip_pod(made)
        if self.claims is not None:
            self.claims.equip_pod(made)
        del made["metadata"]["uid"]
        if uses:
            self.volumes.equip(made, uses)
        if self.faults is not None and template in self.templates:
            self.faults.equip(made, self.templates.index(template))
        return made

    def insert(self, made):
        """A pod comes into being."""
        if self.reservations is not None:
            default_pod_spec(made["spec"])  # running pods are annotated: an update must not seem to change more
            made["spec"].setdefault("enableServiceLinks", True)
        record = self.server.insert(made)
        if self.volumes is not None:
            self.volumes.created(record)
        return record

    def room(self):
        """How many more pods there may be."""
        return self.plan.most_pods - len(self.server.objects("Pod"))

    def create(self):
        if self.room() > 0:
            self.insert(self._pod(self.rng.choice(self.templates)))

    def _burst(self):
        template = self.rng.choice(self.templates)
        for _ in range(min(self.rng.randint(2, 8), self.room())):
            self.insert(self._pod(template))

    def _some_pod(self, wanted=lambda thing: True):
        found = [thing for thing in self.server.objects("Pod") if wanted(thing)]
        return self.rng.choice(found) if found else None

    def _change_pod(self, thing, make):
        self.server.change("Pod", thing["metadata"]["name"], make, thing["metadata"]["namespace"])

    def _delete(self):
        thing = self._some_pod()
        if thing is not None:
            grace = self.rng.choice([0, None, 5])
            self.server.remove("Pod", thing["metadata"]["name"], thing["metadata"]["namespace"], grace=grace)

    def _replace(self):
        """Another pod by the name of an old one, at once."""
        thing = self._some_pod()
        if thing is None:
            return
        meta = thing["metadata"]
        self.server.remove("Pod", meta["name"], meta["namespace"])
        made = self._pod(self.rng.choice(self.templates))
        made["metadata"] |= {"name": meta["name"], "namespace": meta["namespace"]}
        self.insert(made)

    def _relabel(self):
        thing = self._some_pod()
        if thing is not None:
            app = self.rng.choice(APPS)
            self._change_pod(thing, lambda changed: changed["metadata"]["labels"].update(app=app))

    def _go_to_another_quota(self):
        thing = self._some_pod()
        if thing is not None:
            labels = {"app": thing["metadata"]["labels"]["app"], **self.quotas.labels()}
            self._change_pod(thing, lambda changed: changed["metadata"].update(labels=labels))

    def _open_gate(self):
        thing = self._some_pod(lambda thing: thing["spec"].get("schedulingGates"))
        if thing is not None:
            self._change_pod(thing, lambda changed: changed["spec"].pop("schedulingGates"))

    def _finish(self):
        thing = self._some_pod(lambda thing: thing["spec"].get("nodeName") and not is_gone(thing))
        if thing is not None:
            phase = self.rng.choice(["Succeeded", "Failed"])
            self._change_pod(thing, lambda changed: changed["status"].update(phase=phase))

    def _foreign_pod(self):
        """A pod that comes with its node (a static pod, say), or waits for another scheduler."""
        names = [thing["metadata"]["name"] for thing in self.server.objects("Node")]
        if names and self.rng.random() < 0.7:
            made = self._pod(self.rng.choice(self.templates), nodeName=self.rng.choice(names))
            made["spec"].pop("schedulingGates", None)
            self.insert(made)
        else:
            self.insert(self._pod(self.rng.choice(self.templates), schedulerName="other-scheduler"))

    def _steal(self):
        """Somebody else binds a pod of ours."""
        nodes = self.server.objects("Node")
        thing = self._some_pod(lambda thing: not thing["spec"].get("nodeName") and not is_gone(thing))
        if thing is None or thing["spec"].get("schedulingGates") or thing["metadata"]["uid"] in self.broken:
            return
        if nodes:
            meta = thing["metadata"]
            target = self.rng.choice(nodes)["metadata"]["name"]
            self.server.registry.bind(meta["namespace"], meta["name"], meta["uid"], target)

    def _malformed_pod(self):
        made = self._pod(self.rng.choice(self.templates))
        made["spec"] |= self.rng.choice(MALFORMED)
        made["metadata"].pop("ownerReferences", None)  # the controller of DaemonSets reads affinities
        record = self.insert(made)
        self.broken[record.uid] = record.name

    # --- nodes -------------------------------------------------------------------------------------

    def _node(self, name):
        rng = self.rng
        labels = {"zone": rng.choice(ZONES), "disk": rng.choice(["ssd", "hdd"])}
        more = {"gpu": rng.choice(["1", "4"])} if rng.random() < 0.4 else {}
        made = node(name, rng.choice(["1", "2", "4"]), rng.choice(["2Gi", "8Gi"]), labels=labels, **more)
        made["status"]["allocatable"]["pods"] = rng.choice(["3", "5", "110"])
        if "permits" in self.plan.features and rng.random() < 0.25:
            made["metadata"]["labels"][GATE] = "closed"
        if rng.random() < 0.15:
            made["spec"]["taints"] = [taint("spot")]
        if self.faults is not None:
            self.faults.place(made)
        if self.numa is not None:
            self.numa.equip_node(made)
        if self.devices is not None:
            self.devices.equip_node(made)
        if self.claims is not None:
            self.claims.equip_node(made)
        return made

    def _some_node(self):
        found = self.server.objects("Node")
        return self.rng.choice(found)["metadata"]["name"] if found else None

    def _add_node(self):
        self.add_node(f"n{self.rng.randrange(self.plan.nodes + 3)}")

    def add_node(self, name):
        """A node of that name, unless there is one."""
        if self.server.get("Node", name) is None:
            self.server.insert(self._node(name))

    def _remove_node(self):
        name = self._some_node()
        if name is not None:
            self.server.remove("Node", name)

    def _flap_node(self):
        """Gone and back, perhaps of another size; its pods stay."""
        name = self._some_node()
        if name is not None:
            self.server.remove("Node", name)
            self.server.insert(self._node(name))

    def _change_node(self):
        name = self._some_node()
        if name is None:
            return
        fresh = self._node(name)
        what = self.rng.choice(["cordon", "taint", "size", "labels"])

        def make(thing):
            if isinstance(thing["spec"].get("taints"), dict):
                return
            if what == "cordon":
                thing["spec"]["unschedulable"] = not thing["spec"].get("unschedulable")
            elif what == "taint":
                thing["spec"]["taints"] = [] if thing["spec"].get("taints") else [taint("spot")]
            elif what == "size":
                thing["status"]["allocatable"] = fresh["status"]["allocatable"]
            else:
                thing["metadata"]["labels"] = fresh["metadata"]["labels"]

        self.server.change("Node", name, make)

    def _turn_gate(self):
        name = self._some_node()
        if name is not None:
            self.server.change("Node", name, _turn_gate)

    def _heartbeat(self):
        now = self.server.clock.wall()
        for thing in self.server.objects("Node"):
            self.server.change("Node", thing["metadata"]["name"], lambda changed: _beat(changed, now))

    def _malformed_node(self):
        if self.volumes is not None:
            return  # the controllers of volumes are not made for what an API server would not let in
        name = f"m{self.rng.randrange(3)}"
        if self.server.get("Node", name) is not None or self.rng.random() < 0.5:
            name = self._some_node()
        if name is None or self.server.get("Node", name) is None:
            made = self._node(name or "m0")
            made["spec"]["taints"] = {"not": "a list"}
            self.server.insert(made)
        else:
            self.server.change("Node", name, lambda thing: thing["spec"].update(taints={"not": "a list"}))


def _beat(thing, now):
    thing["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": rfc3339_micro(now)}]


def _turn_gate(thing):
    labels = thing["metadata"]["labels"]
    labels[GATE] = "open" if labels.get(GATE) == "closed" else "closed"


def _open_gate(thing):
    if thing["metadata"]["labels"].get(GATE) == "closed":
        _turn_gate(thing)


def _nudge(thing):
    thing["metadata"]["labels"]["nudged"] = "yes"


def _mend_node(thing):
    thing["spec"]["taints"] = []
