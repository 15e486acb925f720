"""Random clusters with claims and volumes in every state, dense enough that volume plugins refuse often."""

ZONES = ("za", "zb", "zc")
ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
DRIVERS = ("disk.test", "file.test")
HOSTNAME = "kubernetes.io/hostname"
MIGRATED = ("kubernetes.io/aws-ebs", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs", "kubernetes.io/cinder", "")
CLASSES = {
    "local": {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
    "late": {"provisioner": "disk.test", "volumeBindingMode": "WaitForFirstConsumer"},
    "zonal": {
        "provisioner": "file.test",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["za", "zb"]}]}],
    },
    "now": {"provisioner": "disk.test", "volumeBindingMode": "Immediate"},
    "ebs": {"provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"},
}


class RandomVolumes:
    """Builds JSON objects from a seeded generator. `objects` grows as pods ask for claims."""

    def __init__(self, rng, nodes=6):
        self.rng = rng
        self.node_names = [f"n{i}" for i in range(nodes)]
        self.claims = 0
        self.volumes = 0
        self.objects = [self.node(name) for name in self.node_names]
        self.objects += [
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **spec}
            for name, spec in CLASSES.items()
            if self.maybe(0.9)
        ]
        self.objects += [self.csi_node(name) for name in self.node_names if self.maybe(0.8)]
        self.objects += [self.driver(name) for name in DRIVERS if self.maybe(0.6)]
        self.objects += [self.capacity(i) for i in range(rng.randrange(6))]
        for _ in range(rng.randrange(12)):
            self.free_volume()

    def maybe(self, chance):
        return self.rng.random() < chance

    # --- nodes and drivers -------------------------------------------------------------------------

    def node(self, name):
        labels = {HOSTNAME: name}
        if self.maybe(0.8):
            labels[self.rng.choice([ZONE, ZONE, ZONE, BETA_ZONE])] = self.rng.choice(ZONES)
        if self.maybe(0.5):
            labels["topology.ebs.csi.aws.com/zone"] = self.rng.choice(ZONES)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
        }

    def csi_node(self, name):
        drivers = []
        for driver in (*DRIVERS, "ebs.csi.aws.com"):
            if self.maybe(0.7):
                entry = {"name": driver, "nodeID": name, "topologyKeys": []}
                if self.maybe(0.8):
                    entry["allocatable"] = {"count": self.rng.randrange(4)}
                drivers.append(entry)
        metadata = {"name": name}
        if self.maybe(0.6):
            metadata["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": self.rng.choice(MIGRATED)}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": metadata,
            "spec": {"drivers": drivers},
        }

    def driver(self, name):
        spec = {"storageCapacity": self.maybe(0.6)}
        return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}

    def capacity(self, number):
        made = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": f"cap{number}", "namespace": "default"},
            "storageClassName": self.rng.choice(["late", "zonal"]),
        }
        topology = self.rng.choice(
            [
                None,
                {},
                {"matchLabels": {ZONE: self.rng.choice(ZONES)}},
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": self.some_nodes()}]},
                {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["za"]}]},
                {"matchExpressions": [{"key": BETA_ZONE, "operator": "DoesNotExist"}]},
            ]
        )
        if topology is not None:
            made["nodeTopology"] = topology
        for field in ("capacity", "maximumVolumeSize"):
            if self.maybe(0.6):
                made[field] = self.size()
        return made

    def some_nodes(self):
        return self.rng.sample(self.node_names, self.rng.randint(1, min(2, len(self.node_names))))

    def size(self):
        return self.rng.choice(["1Gi", "3Gi", "5Gi", "5G", "10Gi", "20Gi"])

    # --- volumes and claims --------------------------------------------------------------------------

    def affinity(self):
        """The node affinity of a volume; None for none."""
        if self.maybe(0.25):
            return None
        expressions = self.rng.choice(
            [
                [{"key": HOSTNAME, "operator": "In", "values": self.some_nodes()}],
                [{"key": ZONE, "operator": "In", "values": self.rng.sample(ZONES, self.rng.randint(1, 2))}],
                [{"key": BETA_ZONE, "operator": "In", "values": [self.rng.choice(ZONES)]}],
                [{"key": ZONE, "operator": "Exists"}, {"key": HOSTNAME, "operator": "NotIn", "values": ["n0"]}],
            ]
        )
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}

    def volume(self, class_name, **spec):
        """A new PersistentVolume."""
        self.volumes += 1
        name = f"pv{self.rng.randrange(10)}{self.volumes}"
        labels = {}
        if self.maybe(0.3):
            labels[self.rng.choice([ZONE, BETA_ZONE])] = self.rng.choice(["za", "zb", "za__zc", "zb__"])
        if self.maybe(0.3):
            labels["tier"] = "gold"
        made = {
            "capacity": {"storage": self.size()},
            "accessModes": self.rng.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"]]),
            "volumeMode": "Block" if self.maybe(0.15) else "Filesystem",
            **({"volumeAttributesClassName": "fast"} if self.maybe(0.1) else {}),
            **spec,
        }
        if class_name is not None:
            made["storageClassName"] = class_name
        if self.maybe(0.7):
            made["csi"] = {"driver": self.rng.choice(DRIVERS), "volumeHandle": f"h{self.rng.randrange(6)}"}
        elif self.maybe(0.8):
            made["awsElasticBlockStore"] = {"volumeID": f"vol-{self.rng.randrange(4)}"}
        affinity = self.affinity()
        if affinity is not None:
            made["nodeAffinity"] = affinity
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.volumes), "labels": labels}
        if self.maybe(0.05):
            metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": made, "status": {}}
        self.objects.append(volume)
        return volume

    def free_volume(self):
        volume = self.volume(self.rng.choice(["local", "local", "late", "zonal", "now", None]))
        volume["status"]["phase"] = "Available" if self.maybe(0.85) else "Released"

    def claim(self, name=None, owner=None):
        """A new PersistentVolumeClaim in any state; returns its name."""
        self.claims += 1
        name = name or f"c{self.claims}"
        class_name = self.rng.choice(["local", "local", "late", "zonal", "now", "ebs", "absent"])
        spec = {
            "accessModes": [self.rng.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany"])],
            "volumeMode": "Block" if self.maybe(0.1) else "Filesystem",
            "storageClassName": class_name,
        }
        if self.maybe(0.95):
            spec["resources"] = {"requests": {"storage": self.size()}}
        if self.maybe(0.1):
            spec["selector"] = {"matchLabels": {"tier": "gold"}}
        if self.maybe(0.05):
            spec["volumeAttributesClassName"] = "fast"
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "annotations": {},
        }
        if owner is not None:
            metadata["ownerReferences"] = [{"uid": owner, "controller": True, "kind": "Pod"}]
        if self.maybe(0.03):
            metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        if self.maybe(0.05):
            metadata["annotations"]["volume.beta.kubernetes.io/storage-class"] = self.rng.choice(["late", ""])
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": {}}
        reference = {"namespace": "default", "name": name, "kind": "PersistentVolumeClaim"}
        if self.maybe(0.5):
            bound = self.volume(class_name, claimRef={**reference, "uid": metadata["uid"]})
            bound["status"]["phase"] = "Bound"
            spec["volumeName"] = bound["metadata"]["name"] if self.maybe(0.96) else "ghost"
            if self.maybe(0.95):
                metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
            made["status"]["phase"] = "Lost" if self.maybe(0.03) else "Bound"
        elif self.maybe(0.25):
            uid = self.rng.choice([{}, {"uid": metadata["uid"]}, {"uid": "another"}])
            self.volume(class_name, claimRef={**reference, **uid})["status"]["phase"] = "Available"
        elif self.maybe(0.2):
            metadata["annotations"]["volume.kubernetes.io/selected-node"] = self.rng.choice(self.node_names)
        self.objects.append(made)
        return name

    # --- pods ----------------------------------------------------------------------------------------

    def inline(self):
        rng = self.rng
        return rng.choice(
            [
                {"gcePersistentDisk": {"pdName": rng.choice("ab"), "readOnly": self.maybe(0.5)}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{rng.randrange(3)}", "readOnly": self.maybe(0.5)}},
                {"iscsi": {"iqn": rng.choice("ab"), "targetPortal": "x", "lun": 0, "readOnly": self.maybe(0.5)}},
                {
                    "rbd": {
                        "monitors": rng.sample(["m1", "m2", "m3"], rng.randint(1, 2)),
                        "image": rng.choice("ab"),
                        "readOnly": self.maybe(0.5),
                    }
                },
                {"emptyDir": {}},
            ]
        )

    def pod(self, name, on=None):
        """A pod with a few volumes, whose claims mostly exist."""
        uid = f"uid-{name}"
        existing = [o["metadata"]["name"] for o in self.objects if o["kind"] == "PersistentVolumeClaim"]
        volumes = []
        for i in range(self.rng.choice([0, 1, 1, 2, 2, 3])):
            volume = {"name": f"v{i}"}
            kind = self.rng.random()
            if kind < 0.55:
                reuse = existing and self.maybe(0.4)
                claim = self.rng.choice(existing) if reuse else self.claim() if self.maybe(0.97) else "missing"
                volume["persistentVolumeClaim"] = {"claimName": claim}
            elif kind < 0.65:
                volume["ephemeral"] = {"volumeClaimTemplate": {"spec": {}}}
                if self.maybe(0.95):
                    self.claim(f"{name}-v{i}", owner=uid if self.maybe(0.95) else "other")
            else:
                volume.update(self.inline())
            volumes.append(volume)
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "default-scheduler", "volumes": volumes}
        if on is not None:
            spec["nodeName"] = on
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": spec,
            "status": {},
        }

    def attachment(self, number):
        volumes = [o["metadata"]["name"] for o in self.objects if o["kind"] == "PersistentVolume"]
        source = {"persistentVolumeName": self.rng.choice(volumes)} if volumes and self.maybe(0.95) else {}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": f"att{number}"},
            "spec": {
                "attacher": self.rng.choice(DRIVERS),
                "nodeName": self.rng.choice([*self.node_names, "elsewhere"]),
                "source": source,
            },
        }

    def cluster(self, pods):
        """All objects: nodes, storage, up to `pods` placed pods and a few attachments."""
        placed = [self.pod(f"e{i}", on=self.rng.choice(self.node_names)) for i in range(self.rng.randint(0, pods))]
        attachments = [self.attachment(i) for i in range(self.rng.randrange(6))]
        return [*self.objects, *placed, *attachments]
