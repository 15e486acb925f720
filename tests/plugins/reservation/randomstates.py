"""Random nodes, Reservations and pods, and what happens to them step by step, as plain API objects, from a seed.

The same seed and the same answers give the same story.
"""

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.info import Info

START = 1_900_000_000.0
POLICIES = (("",), (names.ALIGNED, names.RESTRICTED), (names.RESTRICTED,), ("", names.ALIGNED, names.RESTRICTED))
API_VERSION = "kubescheduler.config.k8s.io/v1"
PROFILE = "koord-scheduler"
EXTENDED = "example.com/card"
HOST = "kubernetes.io/hostname"
APPS = ("web", "db", "api")
LANES = ("one", "two")
TAINTS = (
    {"key": "k", "value": "v", "effect": "NoSchedule"},
    {"key": "k", "value": "w", "effect": "NoExecute"},
    {"key": "other", "value": "", "effect": "NoSchedule"},
    {"key": "soft", "value": "v", "effect": "PreferNoSchedule"},
)
TOLERATIONS = (
    {"key": "k", "operator": "Exists"},
    {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)


@dataclass
class Step:
    """`what`: put or remove an object, or decide about one that waits (`thing`), or let time pass (`seconds`)."""

    what: str
    thing: dict = None
    seconds: float = 0.0


def configuration(args=None, devices=False):
    """A profile with the default plugins and Reservation; `devices`: and DeviceShare."""
    here = {"enabled": [{"name": names.PLUGIN}, *([{"name": names.DEVICES}] if devices else [])]}
    points = ("preFilter", "filter", "reserve", "preBind")
    plugins = {
        **dict.fromkeys(points, here),
        "preScore": {"enabled": [{"name": names.PLUGIN}]},
        "postFilter": {"disabled": [{"name": "*"}], "enabled": [{"name": names.PLUGIN}]},
        "score": {"enabled": [{"name": names.PLUGIN, "weight": 5000}]},
        "bind": {"disabled": [{"name": "*"}], "enabled": [{"name": names.PLUGIN}, {"name": "DefaultBinder"}]},
    }
    given = {"apiVersion": API_VERSION, "kind": "ReservationArgs", **(args or {})}
    return {
        "schedulerName": PROFILE,
        "plugins": plugins,
        "pluginConfig": [{"name": names.PLUGIN, "args": given}],
    }


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Draw:
    """Draws one thing after the other.

    `rare`: with what is malformed or seldom. `taking`: with Reservations that take over the room of running pods.
    `devices`: with GPUs; then no pod and no Reservation is on a node in the beginning that asks for one.
    """

    def __init__(self, seed, rare=False, taking=False, devices=False):
        self.rng, self.rare, self.taking = random.Random(f"reservation-{seed}"), rare, taking
        self.devices = devices
        self.clock, self.number = START, 0

    def often(self, share):
        return self.rng.random() < share

    def rarely(self, share):
        return self.rare and self.rng.random() < share

    def args(self):
        args = {}
        if self.often(0.3):
            args["ignoredResources"] = [EXTENDED]
        args["preAllocationConfig"] = {
            "enableClusterMode": self.often(0.8),
            "preferNoPreAllocatedPods": self.often(0.3),
        }
        return args

    def next(self, prefix):
        self.number += 1
        return f"{prefix}{self.number}"

    # Nodes

    def node(self, name):
        rng = self.rng
        labels = {HOST: name, "zone": rng.choice("ab"), **({"lane": rng.choice(LANES)} if self.often(0.2) else {})}
        allocatable = {
            "cpu": str(rng.choice([6, 8, 12, 16])),
            "memory": f"{rng.choice([8, 16, 24])}Gi",
            "pods": str(rng.choice([4, 6, 110, 110])),
            "ephemeral-storage": "20Gi",
        }
        if self.often(0.5):
            allocatable[EXTENDED] = str(rng.choice([2, 4]))
        if self.devices:
            count = str(100 * self.rng.choice([2, 3, 3]))
            allocatable |= {names.GPU_CORE: count, names.GPU_RATIO: count, "cpu": "32", "memory": "64Gi", "pods": "110"}
        spec = {"unschedulable": True} if self.often(0.05) else {}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"node-{name}", "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }

    @staticmethod
    def device(node):
        """The GPUs of a node."""
        total = {names.GPU_CORE: "100", names.GPU_RATIO: "100", "koordinator.sh/gpu-memory": "16Gi"}
        count = int(node["status"]["allocatable"][names.GPU_RATIO]) // 100
        listed = [{"type": "gpu", "minor": n, "id": f"g{n}", "health": True, "resources": total} for n in range(count)]
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": node["metadata"]["name"], "uid": f"device-{node['metadata']['name']}"},
            "spec": {"devices": listed},
        }

    # What both templates and pods say

    def requests(self, largest=8, devices=True):
        rng, found = self.rng, {}
        if self.devices and devices and self.often(0.85):
            amounts = ["100", "200", "200", "50"] if largest > 6 else ["25", "50", "75", "100", "200"]
            asked = rng.choice(amounts)
            found |= dict.fromkeys((names.GPU_CORE, names.GPU_RATIO), asked)
            return {"cpu": "500m", "memory": "1Gi", **found}
        if self.often(0.93):
            found["cpu"] = rng.choice(["500m", "1", "1", "2", "2", "3", "4", "6", "8"][: largest + 1])
        if self.often(0.9):
            found["memory"] = rng.choice(["1Gi", "2Gi", "2Gi", "4Gi", "6Gi", "8Gi"])
        if self.often(0.2):
            found[EXTENDED] = rng.choice(["1", "2", "2"])
        if self.often(0.15):
            found["ephemeral-storage"] = rng.choice(["1Gi", "4Gi", "12Gi"])
        return found

    def pod_spec(self, requests):
        rng = self.rng
        container = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
        if self.often(0.15):
            container["ports"] = [{"containerPort": 80, "hostPort": rng.choice([8080, 8081]), "protocol": "TCP"}]
        spec = {"schedulerName": PROFILE, "containers": [container]}
        if self.devices:
            return spec
        if self.rarely(0.15):
            spec["initContainers"] = [{"name": "init", "image": "app:1", "resources": {"requests": self.requests(4)}}]
        if self.often(0.1):
            spec["nodeSelector"] = {"zone": rng.choice("ab")}
        if self.often(0.1):
            spec["affinity"] = self.affinity()
        return spec

    def affinity(self):
        rng = self.rng
        term = {
            "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
            "topologyKey": rng.choice([HOST, "zone"]),
        }
        kind = rng.choice(["podAntiAffinity", "podAntiAffinity", "podAffinity", "nodeAffinity"])
        if kind != "nodeAffinity":
            return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        fields = [{"key": "metadata.name", "operator": "In", "values": [rng.choice(["n0", "n1", "n2"])]}]
        zone = [{"key": "zone", "operator": "In", "values": [rng.choice("ab")]}]
        if self.often(0.2):
            fields.append({"key": "metadata.name", "operator": "In", "values": ["n1"]})
        term = rng.choice([{"matchFields": fields}, {"matchExpressions": zone}])
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    def own_labels(self):
        labels = {"app": self.rng.choice(APPS)} if self.often(0.9) else {}
        if self.often(0.3):
            labels["lane"] = self.rng.choice(LANES)
        return labels

    # Reservations

    def reservation(self, nodes, policies):
        rng, name = self.rng, self.next("r")
        self.clock += rng.choice([0, 1])
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": at(self.clock), "labels": {}}
        labels, annotations = metadata["labels"], {}
        if self.often(0.25):
            labels[names.ORDER] = rng.choice(["1", "5", "5", "-3", "0", "x"])
        if self.often(0.5):
            labels["lane"] = rng.choice(LANES)
        spec = {
            "template": {"metadata": {"labels": self.own_labels()}, "spec": self.pod_spec(self.requests())},
            "owners": self.owners(),
            "ttl": rng.choice(["1h", "1h", "0s", "90s"]),
            "allocatePolicy": rng.choice(policies),
        }
        if self.devices or self.often(0.75):
            spec["allocateOnce"] = self.often(0.05 if self.devices else 0.15)
        if self.often(0.1):
            spec["expires"] = at(self.clock + rng.choice([-1, 60, 9000]))
        if spec["allocatePolicy"] == names.RESTRICTED:
            self.restrict(spec, annotations)
        if self.often(0.35):
            inner = rng.choice([{"cpu": "1"}, {"memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}])
            said = {"resources": inner} if self.often(0.7) else {"reservedCPUs": "0-1"}
            annotations[names.INNER] = json.dumps(said)
        if self.often(0.02 if self.devices else 0.12):
            spec["unschedulable"] = True
        if self.often(0.05 if self.devices else 0.2):
            spec["taints"] = rng.sample(TAINTS, rng.choice([1, 1, 2]))
        template = spec["template"]["spec"]
        if self.often(0.3):
            template["nodeName"] = rng.choice(nodes)
        if self.often(0.15):
            template["priority"] = rng.choice([0, 100])
        if self.often(0.1):
            spec["template"]["metadata"]["namespace"] = "other"
        if self.rarely(0.1):
            annotations[names.OPTIONS] = "{"
        if self.rarely(0.05):
            del spec["ttl"]
        metadata["annotations"] = annotations
        thing = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": metadata,
            "spec": {key: value for key, value in spec.items() if value != ""},
        }
        if not self.devices and self.often(0.6):
            thing["status"] = self.placed(thing, template.pop("nodeName", None) or rng.choice(nodes))
        elif self.taking and self.often(0.7):
            self.pre_allocate(thing)
        return thing

    def restrict(self, spec, annotations):
        if self.often(0.25):
            listed = self.rng.choice([["cpu"], ["memory"], ["cpu", "memory"], [EXTENDED], ["none"], []])
            annotations[names.OPTIONS] = json.dumps({"resources": listed})
        if self.often(0.5):
            (container,) = spec["template"]["spec"]["containers"]
            container["resources"]["requests"]["pods"] = self.rng.choice(["1", "2"])

    def owners(self):
        rng = self.rng
        if self.devices and self.often(0.8):
            return [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]
        return [self.owner() for _ in range(rng.choice([1, 1, 1, 2]))]

    def owner(self):
        rng = self.rng
        if self.rarely(0.1):
            return {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Sideways"}]}}
        by_label = {"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}}
        if self.often(0.7):
            return by_label
        reference = {"kind": "ReplicaSet", "name": rng.choice(["rs-a", "rs-b"]), "controller": True}
        by_set = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}}
        wanted = {"namespace": "default", "apiVersion": "v1", "kind": "Pod"}
        return rng.choice([{"controller": reference}, by_set, {"object": wanted}, {"object": wanted, **by_label}])

    def placed(self, thing, node):
        """The status of a Reservation that is on a node."""
        requests = {name: str_of(n) for name, n in Info(thing).template_requests().items()}
        if requests.get("cpu") and self.often(0.1):
            requests["cpu"] = "5"
        conditions = [
            {"type": "Scheduled", "status": "True", "reason": "Scheduled"},
            {"type": "Ready", "status": "True", "reason": "Available"},
        ]
        return {"phase": "Available", "nodeName": node, "allocatable": requests, "conditions": conditions}

    def pre_allocate(self, thing):
        rng, spec = self.rng, thing["spec"]
        spec["preAllocation"] = True
        if self.often(0.9):
            spec["allocatePolicy"] = names.RESTRICTED
        spec["allocateOnce"] = False
        if self.often(0.7):
            spec["owners"] = [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]
        if self.often(0.6):
            policy = {"mode": rng.choice(["Default", "Cluster"]), "enableMultiple": self.often(0.5)}
            spec["preAllocationPolicy"] = policy
        if self.often(0.35):
            thing["metadata"]["labels"][names.REQUIRED] = "true"

    # Pods

    def pod(self, node=None, reservations=()):
        rng, name = self.rng, self.next("p")
        annotations, labels = {}, self.own_labels()
        if self.often(0.1 if node else 0.6 if self.devices else 0.4):
            annotations[names.AFFINITY] = self.reservation_affinity(reservations)
        if self.often(0.05 if node else 0.15):
            listed = rng.choice([["cpu"], ["cpu", "memory"], [EXTENDED, "cpu"], []])
            annotations[names.EXACT] = json.dumps({"resourceNames": listed})
        if self.often(0.1):
            labels[names.IGNORED] = "true"
        if self.often(0.3):
            labels[names.CANDIDATE] = "true"
            annotations[names.CANDIDATE_PRIORITY] = rng.choice(["10", "50", "90", "x"])
        metadata = {
            "name": name,
            "namespace": "default" if self.often(0.9) else "other",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": annotations,
        }
        if self.often(0.3):
            reference = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": rng.choice(["rs-a", "rs-b"]),
                "uid": "rs",
            }
            metadata["ownerReferences"] = [{**reference, "controller": self.often(0.8)}]
        spec = {**self.pod_spec(self.requests(6, devices=node is None)), "priority": rng.choice([0, 0, 100])}
        if node:
            spec["nodeName"] = node
        phase = {"phase": "Running" if node else "Pending"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": phase}

    def reservation_affinity(self, reservations):
        rng = self.rng
        if self.rarely(0.1):
            return rng.choice(["{", "[]", '{"requiredDuringSchedulingIgnoredDuringExecution": 3}'])
        if reservations and self.often(0.25):
            return json.dumps({"name": rng.choice([*reservations, "none"])})
        said = {}
        if self.devices and self.often(0.7):
            return "{}"
        if self.often(0.35):
            said["reservationSelector"] = {"lane": rng.choice(LANES)}
        if self.often(0.2):
            expressions = [{"key": rng.choice(["lane", "zone"]), "operator": "In", "values": ["one", "a"]}]
            terms = [{"matchExpressions": expressions}]
            if reservations and self.often(0.4):
                fields = [{"key": "metadata.name", "operator": "In", "values": [rng.choice(reservations)]}]
                terms.append({"matchFields": fields})
            said["requiredDuringSchedulingIgnoredDuringExecution"] = {"reservationSelectorTerms": terms}
        if self.often(0.35):
            said["tolerations"] = rng.sample(TOLERATIONS, rng.choice([1, 2]))
        return json.dumps(said) if said or self.often(0.7) else ""


def str_of(amount):
    return str(amount.numerator) if amount.denominator == 1 else f"{int(amount * 1000)}m"


class Story:
    """What happens, drawn step by step. `cluster`: as it is at each step, kept up to date by the caller."""

    def __init__(self, seed, cluster, **options):
        self.draw, self.cluster = Draw(seed, **options), cluster
        self.rng = self.draw.rng
        self.args = self.draw.args()
        self.names = [f"n{at}" for at in range(self.rng.choice([1, 2, 2] if self.draw.devices else [2, 3, 4]))]
        self.policies = self.rng.choice(POLICIES)

    def steps(self, length=25):
        """The objects of the beginning, then as many steps."""
        for name in self.names:
            node = self.draw.node(name)
            yield Step("put", node)
            if self.draw.devices:
                yield Step("put", self.draw.device(node))
        for _ in range(self.rng.choice([1, 3, 5])):
            thing = self.draw.reservation(self.names, self.policies)
            yield Step("put", thing)
            if "status" not in thing:
                yield Step("decide", thing)
        for _ in range(self.rng.choice([6, 9] if self.draw.taking else [0, 3, 6])):
            yield Step("put", self.draw.pod(self.rng.choice(self.names), self.listed()))
        for _ in range(length):
            yield from self.step()

    def listed(self):
        return sorted(self.cluster.reservations)

    def step(self):
        self.draw.clock = max(self.draw.clock, int(self.cluster.now))
        dice = self.rng.random()
        if dice < 0.62:
            yield Step("decide", self.draw.pod(None, self.listed()))
        elif dice < 0.77:
            thing = self.draw.reservation(self.names, self.policies)
            yield Step("put", thing)
            if "status" not in thing:
                yield Step("decide", thing)
        elif dice < 0.89:
            if self.cluster.pods:
                yield Step("remove", self.cluster.pods[self.rng.choice(sorted(self.cluster.pods))])
        elif dice < 0.93:
            if self.cluster.reservations:
                yield Step("remove", self.cluster.reservations[self.rng.choice(self.listed())])
        elif dice < 0.97:
            yield from self.change()
        else:
            yield Step("time", seconds=self.rng.choice([31, 81, 4001]))

    def change(self):
        """A Reservation that is on a node is changed by its user."""
        if not self.cluster.reservations:
            return
        thing = self.cluster.reservations[self.rng.choice(self.listed())]
        metadata, spec = thing["metadata"], thing["spec"]
        kind = self.rng.choice(["unschedulable", "labels", "deleting", "owners", "policy"])
        if kind == "unschedulable":
            spec = {**spec, "unschedulable": not spec.get("unschedulable")}
        elif kind == "labels":
            metadata = {**metadata, "labels": {**metadata["labels"], names.ORDER: "2", "lane": self.rng.choice(LANES)}}
        elif kind == "owners":
            spec = {**spec, "owners": self.draw.owners()}
        elif kind == "policy":
            spec = {**spec, "allocateOnce": not spec.get("allocateOnce", True)}
        elif self.draw.rare:
            metadata = {**metadata, "deletionTimestamp": at(self.draw.clock)}
        yield Step("put", {**thing, "metadata": metadata, "spec": spec})
