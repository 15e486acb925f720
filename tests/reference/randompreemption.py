"""Random full clusters: pods of many priorities under disruption budgets, and pods that need their room."""

from tests.reference.randomstate import RandomState

PRIORITIES = (-(2**31), -50, -50, 0, 0, 10, 10, 100, 101, 1000)
NAMESPACES = ("default", "prod")
APPS = ("web", "db", "cache")
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "disk.test"
CLAIMS = 6


class RandomFullCluster(RandomState):
    """Builds JSON objects from a seeded generator. No two pods started at the same time, so that every order is one."""

    def __init__(self, rng):
        super().__init__(rng, NAMESPACES)
        self.minutes = rng.sample(range(60 * 24 * 28), 4000)
        # With few priorities and sizes, nodes differ only in what is compared last.
        self.priorities = rng.choice([PRIORITIES, PRIORITIES, (0,), (0, 10)])
        self.sizes = rng.choice([(100, 300, 500, 1000, 1500), (500,)])
        # With nothing but room to decide about, many nodes are tried at once.
        self.rich = self.maybe(0.6)
        # With room to spare it is not resources that are in the way.
        self.fill = rng.choice([1.0, 1.0, 0.6])
        self.numbers = 0

    # --- nodes and storage -------------------------------------------------------------------------

    def node(self, name):
        rng = self.rng
        made = super().node(name)
        labels = {HOSTNAME: name, "rack": rng.choice(["r1", "r2"])}
        if self.maybe(0.85):
            labels[ZONE] = rng.choice(["z1", "z2"])
        made["metadata"]["labels"] = labels
        made["spec"] = {"unschedulable": self.maybe(0.05)}
        if self.maybe(0.15):
            made["spec"]["taints"] = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
        made["status"]["allocatable"] = {
            "cpu": rng.choice(["2", "4", "4", "8"]),
            "memory": rng.choice(["8Gi", "16Gi"]),
            "pods": rng.choice(["4", "6", "110", "110"]),
        }
        if self.maybe(0.4):
            made["status"]["allocatable"]["ex.com/gpu"] = rng.choice(["2", "4"])
        return made

    def storage(self, node_names):
        """Claims that are bound to volumes of one driver, and how many of them each node takes."""
        for i in range(CLAIMS):
            mode = "ReadWriteOncePod" if i == 0 else "ReadWriteOnce"
            for namespace in NAMESPACES:
                name = f"{namespace}-{i}"
                yield {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name, "uid": f"pv/{name}"},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": [mode],
                        "csi": {"driver": DRIVER, "volumeHandle": name},
                        "claimRef": {"namespace": namespace, "name": f"c{i}", "uid": f"pvc/{name}"},
                    },
                    "status": {"phase": "Bound"},
                }
                yield {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": f"c{i}",
                        "namespace": namespace,
                        "uid": f"pvc/{name}",
                        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                    },
                    "spec": {
                        "accessModes": [mode],
                        "volumeName": name,
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                    "status": {"phase": "Bound"},
                }
        for name in node_names:
            if self.maybe(0.5):
                limit = {"count": self.rng.randint(1, 3)}
                drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": limit}]
                yield {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {"drivers": drivers},
                }

    # --- pods --------------------------------------------------------------------------------------

    def plain(self, name, priority, cpu, on=None):
        """A pod with little more than a request and a start time."""
        rng = self.rng
        namespace = rng.choice(NAMESPACES)
        requests = {"cpu": f"{cpu}m", "memory": rng.choice(["100Mi", "500Mi", "1Gi"])}
        if self.maybe(0.2):
            requests["ex.com/gpu"] = "1"
        limits = {name: amount for name, amount in requests.items() if "/" in name}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}
        if self.rich and self.maybe(0.15):
            port = {"hostPort": rng.choice([80, 443]), "containerPort": 80, "protocol": "TCP"}
            container["ports"] = [port | ({"hostIP": "10.0.0.1"} if self.maybe(0.3) else {})]
        spec = {"schedulerName": "default-scheduler", "priority": priority, "containers": [container]}
        if self.rich and self.maybe(0.25):
            spec["volumes"] = [self.some_volume(namespace)]
        status = {}
        if on is not None:
            spec["nodeName"] = on
            minute = self.minutes.pop()
            status["startTime"] = f"2030-02-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z"
        labels = {} if self.maybe(0.05) else {"app": rng.choice(APPS)}
        if labels and self.maybe(0.5):
            labels["tier"] = rng.choice(["front", "back"])
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}

    def some_volume(self, namespace):
        """Disks belong to a namespace: of one that another namespace lets go nobody is told (core spec 3.4)."""
        if self.maybe(0.3):
            disk = {"pdName": f"{namespace}-{self.rng.choice('ab')}", "readOnly": self.maybe(0.3)}
            return {"name": "v", "gcePersistentDisk": disk}
        return {"name": "v", "persistentVolumeClaim": {"claimName": f"c{self.rng.randrange(CLAIMS)}"}}

    def repelling(self):
        """Required anti-affinity."""
        selector = {"matchLabels": {"app": self.rng.choice(APPS)}}
        term = {"topologyKey": self.rng.choice([HOSTNAME, HOSTNAME, ZONE]), "labelSelector": selector}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def victim(self, on, cpu):
        """A pod that may have to go."""
        self.numbers += 1
        made = self.plain(f"v{self.numbers:03}", self.rng.choice(self.priorities), cpu, on)
        if self.rich and self.maybe(0.1):
            made["spec"]["affinity"] = self.repelling()
        if self.maybe(0.08):
            self.terminating(made, preempted=self.maybe(0.5))
        return made

    def terminating(self, pod, *, preempted):
        """The pod is on its way out; returns it."""
        pod["metadata"]["deletionTimestamp"] = "2030-03-18T00:00:00Z"
        reason = "PreemptionByScheduler" if preempted else "EvictionByEvictionAPI"
        pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
        return pod

    def preemptor(self, name, node_names):
        """A pod that needs room."""
        rng = self.rng
        cpu = rng.choice([500, 1500, 1900, 3000] if self.fill == 1.0 else [50, 50, 500])
        made = self.plain(name, rng.choice([-40, 10, 50, 100, 500, 2000, 2000]), cpu)
        spec = made["spec"]
        if self.maybe(0.3):
            spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
        if self.rich and self.maybe(0.2):
            spec["affinity"] = self.repelling()
        elif self.rich and self.maybe(0.08):
            affine = self.repelling()["podAntiAffinity"]
            spec["affinity"] = {"podAffinity": affine}
        if self.rich and self.maybe(0.25):
            spec["topologySpreadConstraints"] = [
                {
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "maxSkew": rng.choice([1, 1, 2]),
                    "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
                }
                for key in rng.sample([ZONE, HOSTNAME], rng.choice([1, 1, 2]))
            ]
        if self.maybe(0.1):
            spec["nodeSelector"] = {"rack": rng.choice(["r1", "r2", "r3"])}
        if self.maybe(0.04):
            spec["preemptionPolicy"] = "Never"
        if self.maybe(0.15):
            made["status"]["nominatedNodeName"] = rng.choice(node_names)
        return made

    def nominated(self, name, node_names):
        """A pod that was promised a node, and is not let into the queue."""
        made = self.plain(name, self.rng.choice([10, 100, 1000, 3000]), self.rng.choice([200, 1000, 2000]))
        made["spec"]["schedulingGates"] = [{"name": "hold"}]
        if self.rich and self.maybe(0.3):
            made["spec"]["affinity"] = self.repelling()
        made["status"]["nominatedNodeName"] = self.rng.choice([*node_names, "elsewhere"])
        return made

    # --- budgets -----------------------------------------------------------------------------------

    def budget(self, name, pods):
        """A PodDisruptionBudget, perhaps exhausted; it may have been charged for some evictions already."""
        rng = self.rng
        selector = rng.choice(
            [
                {"matchLabels": {"app": rng.choice(APPS)}},
                {"matchLabels": {"app": rng.choice(APPS)}},
                {"matchLabels": {"tier": "front"}},
                {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
                {},
                None,
            ]
        )
        charged = rng.sample(pods, min(len(pods), rng.choice([0, 0, 1, 3])))
        spec = {} if selector is None else {"selector": selector}
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": rng.choice(NAMESPACES)},
            "spec": spec,
            "status": {
                "disruptionsAllowed": rng.choice([0, 0, 1, 1, 2, 4]),
                "disruptedPods": {pod["metadata"]["name"]: "2030-03-17T00:00:00Z" for pod in charged},
            },
        }

    # --- the whole ---------------------------------------------------------------------------------

    def full_cluster(self, nodes):
        """(objects, names of the nodes): nearly full nodes, budgets, namespaces, claims."""
        names = [f"n{i}" for i in range(nodes)]
        made = [self.node(name) for name in names]
        pods = [pod for node in made for pod in self.potential(node)]
        budgets = [self.budget(f"b{i}", pods) for i in range(self.rng.choice([0, 1, 2, 3, 5]))]
        spaces = [{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": n, "labels": {}}} for n in NAMESPACES]
        return [*spaces, *made, *self.storage(names), *budgets, *pods], names

    def potential(self, node):
        """The pods of one node, one of which may not have started yet."""
        name = node["metadata"]["name"]
        room = int(1000 * self.fill * int(node["status"]["allocatable"]["cpu"]))
        slots = int(node["status"]["allocatable"]["pods"])
        used = self.rng.randint(0, room // 4)
        made = []
        while used < room and len(made) < slots:
            cpu = min(self.rng.choice(self.sizes), room - used)
            made.append(self.victim(name, cpu))
            used += cpu
        if made and self.maybe(0.3):
            del self.rng.choice(made)["status"]["startTime"]
        return made
