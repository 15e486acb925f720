"""Storage: classes, drivers and volumes, claims that come and go, and the controllers that bind and provision them."""

from random import Random

from koordsched.fakecluster.controllers.context import ControllerContext
from koordsched.fakecluster.controllers.volumebinding import VolumeBindingController

STORAGE = "storage.k8s.io/v1"
DRIVER = "disk.test"
SHARED = ("s0", "s1", "s2", "s3")
"""Names of claims that several pods use."""
CLASSES = {
    "local": {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
    "late": {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"},
    "now": {"provisioner": DRIVER, "volumeBindingMode": "Immediate"},
}


class VolumeUsers:
    """Claims of pods are made before or after the pods; those that nobody uses any more are deleted, by and by."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} volume users")
        self.volumes = 0
        context = ControllerContext(self.server.registry)
        self.controller = VolumeBindingController(context, provision_delay=self.rng.uniform(0.1, 3))
        context.start()

    def settle_in(self):
        """What exists before any scheduler starts."""
        for name, spec in CLASSES.items():
            self.server.insert({"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": name}, **spec})
        self.server.registry.subscribe_changes(self.server.resource("Node"), self._node_changed)
        for _ in range(self.rng.randint(0, 2 * self.plan.nodes)):
            self._add_volume()
        for name in SHARED:
            self._add_claim(name)

    def actions(self):
        """(weight, action) of what happens."""
        return [(1, self._add_volume), (0.7, self._remove_volume), (1, self._add_shared), (1, self._change_limit),
                (1, self._remove_idle_claim)]  # fmt: skip

    def tidy_up(self):
        """Claims without which pods could never run are there in the end, mostly."""
        for name in SHARED:
            if self.rng.random() < 0.7:
                self._add_claim(name)

    # --- pods ------------------------------------------------------------------------------------------

    def uses(self):
        """What the pods of one workload use: a list of "own", "ephemeral" and names of shared claims."""
        rng = self.rng
        if rng.random() < 0.35:
            return []
        return [rng.choice(["own", "own", "ephemeral", *SHARED]) for _ in range(rng.choice([1, 1, 2]))]

    def equip(self, pod, uses):
        """Gives a pod, which is not created yet, its volumes; its claims will be there soon, or are already."""
        volumes = pod["spec"]["volumes"] = []
        for number, use in enumerate(dict.fromkeys(uses)):
            volume = {"name": f"v{number}"}
            if use == "ephemeral":
                volume["ephemeral"] = {"volumeClaimTemplate": {"spec": {}}}
            else:
                name = f"{pod['metadata']['name']}-data" if use == "own" else use
                volume["persistentVolumeClaim"] = {"claimName": name}
                if use == "own":
                    self._soon(self._add_claim, name, pod["metadata"]["namespace"])
            volumes.append(volume)

    def created(self, record):
        """A pod was created: somebody makes the claims of its ephemeral volumes."""
        pod = record.obj()
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral"):
                self._soon(self._add_ephemeral, pod, f"{record.name}-{volume['name']}")

    def _soon(self, action, *args):
        delay = self.rng.choice([0, 0, 0.3, 3]) * self.rng.random()
        if delay:
            self.server.registry.call_later(delay, action, *args)
        else:
            action(*args)

    # --- claims ----------------------------------------------------------------------------------------

    def _add_claim(self, name, namespace="default", owner=None):
        if self.server.get("PersistentVolumeClaim", name, namespace) is not None:
            return
        rng = self.rng
        spec = {
            "accessModes": [rng.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"])],
            "volumeMode": "Filesystem",
            "storageClassName": rng.choice(["local", "local", "late", "late", "late", "now"]),
            "resources": {"requests": {"storage": rng.choice(["1Gi", "5Gi"])}},
        }
        meta = {"name": name, "namespace": namespace, **({"ownerReferences": [owner]} if owner else {})}
        thing = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        self.server.insert({**thing, "status": {"phase": "Pending"}})

    def _add_ephemeral(self, pod, name):
        meta = pod["metadata"]
        current = self.server.get("Pod", meta["name"], meta["namespace"])
        if current is not None and current["metadata"]["uid"] == meta["uid"]:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            self._add_claim(name, meta["namespace"], owner)

    def _add_shared(self):
        self._add_claim(self.rng.choice(SHARED), self.rng.choice(["default", "other"]))

    def _remove_idle_claim(self):
        """One that no pod names: others are protected."""
        used = set()
        for pod in self.server.objects("Pod"):
            meta = pod["metadata"]
            for volume in pod["spec"].get("volumes") or ():
                named = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                used.add((meta["namespace"], named or f"{meta['name']}-{volume['name']}"))
        claims = [
            thing["metadata"]
            for thing in self.server.objects("PersistentVolumeClaim")
            if (thing["metadata"]["namespace"], thing["metadata"]["name"]) not in used
        ]
        if claims:
            meta = self.rng.choice(claims)
            self.server.remove("PersistentVolumeClaim", meta["name"], meta["namespace"])

    # --- volumes and drivers ---------------------------------------------------------------------------

    def _add_volume(self):
        """A disk of a node, or of a zone."""
        nodes = self.server.objects("Node")
        if not nodes or len(self.server.objects("PersistentVolume")) > 20:
            return
        labels = self.rng.choice(nodes)["metadata"]["labels"]
        key = self.rng.choice(["kubernetes.io/hostname", "kubernetes.io/hostname", "zone"])
        self.volumes += 1
        affinity = [{"matchExpressions": [{"key": key, "operator": "In", "values": [labels.get(key, "nowhere")]}]}]
        self.server.insert(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pv{self.volumes}"},
                "spec": {
                    "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
                    "capacity": {"storage": self.rng.choice(["1Gi", "5Gi", "20Gi"])},
                    "volumeMode": "Filesystem",
                    "storageClassName": "local",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "nodeAffinity": {"required": {"nodeSelectorTerms": affinity}},
                    "local": {"path": "/disk"},
                },
                "status": {"phase": "Available"},
            }
        )

    def _remove_volume(self):
        """One that belongs to nobody, or to nobody any more."""
        free = [
            thing["metadata"]["name"]
            for thing in self.server.objects("PersistentVolume")
            if (thing.get("status") or {}).get("phase") in ("Available", "Released")
        ]
        if free:
            self.server.remove("PersistentVolume", self.rng.choice(free))

    def _node_changed(self, change):
        """A node's driver comes and goes with it."""
        name = change.record.name
        if change.type == "DELETED":
            self.server.remove("CSINode", name, api_version=STORAGE)
        elif change.type == "ADDED" and self.server.get("CSINode", name, api_version=STORAGE) is None:
            driver = {"name": DRIVER, "nodeID": name, "topologyKeys": self.rng.choice([[], ["zone"]])}
            if self.rng.random() < 0.8:
                driver["allocatable"] = {"count": self.rng.choice([1, 2, 3, 10])}
            meta = {"name": name}
            self.server.insert(
                {"apiVersion": STORAGE, "kind": "CSINode", "metadata": meta, "spec": {"drivers": [driver]}}
            )

    def _change_limit(self):
        found = self.server.objects("CSINode", STORAGE)
        if found:
            count = self.rng.choice([1, 2, 3, 10])
            name = self.rng.choice(found)["metadata"]["name"]
            self.server.change("CSINode", name, lambda thing: _limit(thing, count), api_version=STORAGE)


def _limit(thing, count):
    thing["spec"]["drivers"][0]["allocatable"] = {"count": count}
