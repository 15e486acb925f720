"""Random cluster states and pods, dense enough that every plugin has something to refuse and to prefer."""

ZONES = ("z1", "z2", "z3")
KEYS = ("zone", "disk", "size", "rack")
VALUES = {"zone": ZONES, "disk": ("ssd", "hdd"), "size": ("1", "5", "12", "many"), "rack": ("r1", "r2", "r3", "r4")}
IMAGES = ("app:v1", "app:v2", "registry.lab:5000/db", "db:latest", "big@sha256:0123")
TAINTS = [("k", "v"), ("k", "w"), ("dedicated", "x"), ("spot", "")]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
APPS = ("web", "db", "cache")
TOPOLOGY_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "zone", "rack")
OWNERS = (("ReplicationController", "v1"), ("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"))
NAMESPACES = ("default", "prod", "test")


class RandomState:
    """Builds JSON objects from a seeded generator."""

    def __init__(self, rng, namespaces=NAMESPACES):
        self.rng = rng
        self.namespaces = namespaces

    def maybe(self, chance):
        return self.rng.random() < chance

    def some(self, values, most):
        return self.rng.sample(list(values), self.rng.randint(0, min(most, len(values))))

    # --- nodes -------------------------------------------------------------------------------------

    def node(self, name):
        rng = self.rng
        labels = {key: rng.choice(VALUES[key]) for key in KEYS if self.maybe(0.75)}
        if self.maybe(0.95):
            labels["kubernetes.io/hostname"] = name
        if self.maybe(0.8):
            labels["topology.kubernetes.io/zone"] = rng.choice(ZONES)
        allocatable = {"cpu": rng.choice(["2", "4", "3500m", "16"]), "memory": rng.choice(["4Gi", "8000Mi", "64Gi"])}
        allocatable["pods"] = rng.choice(["3", "10", "110"])
        if self.maybe(0.5):
            allocatable["ephemeral-storage"] = rng.choice(["10Gi", "100Gi"])
        if self.maybe(0.4):
            allocatable["ex.com/gpu"] = rng.choice(["1", "4", "8", "0"])
        if self.maybe(0.2):
            allocatable["hugepages-2Mi"] = "64Mi"
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "unschedulable": self.maybe(0.05),
                "taints": [{"key": k, "value": v, "effect": self.effect()} for k, v in self.some(TAINTS, 2)]
                if self.maybe(0.3)
                else [],
            },
            "status": {
                "allocatable": allocatable,
                "images": [
                    {"names": [image], "sizeBytes": rng.randrange(10 << 20, 3000 << 20)}
                    for image in self.some(IMAGES, 3)
                ],
                "declaredFeatures": self.some(
                    ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits"), 2
                ),
            },
        }

    def effect(self):
        return self.rng.choice(EFFECTS)

    # --- pods --------------------------------------------------------------------------------------

    def pod(self, name, on=None):
        rng = self.rng
        spec = {
            "schedulerName": "default-scheduler",
            "priority": rng.choice([0, 0, 10, -5]),
            "containers": [self.container(f"c{i}") for i in range(rng.randint(1, 3))],
        }
        if on:
            spec["nodeName"] = on
        if self.maybe(0.2):
            spec["initContainers"] = [
                self.container(f"i{i}") | ({"restartPolicy": "Always"} if self.maybe(0.5) else {})
                for i in range(rng.randint(1, 3))
            ]
        if self.maybe(0.1):
            spec["overhead"] = {"cpu": "50m", "memory": "64Mi"}
        if self.maybe(0.15):
            spec["resources"] = {"requests": {"cpu": rng.choice(["1", "2500m"]), "memory": "1Gi"}}
        if self.maybe(0.3):
            spec["nodeSelector"] = {key: rng.choice(VALUES[key]) for key in self.some(KEYS, 1)}
        if self.maybe(0.3):
            spec["topologySpreadConstraints"] = self.spread_constraints()
        affinity = self.affinity()
        if affinity:
            spec["affinity"] = affinity
        if self.maybe(0.5):
            spec["tolerations"] = [self.toleration() for _ in range(rng.randint(1, 3))]
        if self.maybe(0.05):
            spec |= {"hostNetwork": True, "hostUsers": False}
        if self.maybe(0.05):
            spec["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
        if self.maybe(0.1):
            spec["volumes"] = [{"name": "v", "image": {"reference": rng.choice(IMAGES)}}]
        labels = {"app": rng.choice(APPS)}
        if self.maybe(0.5):
            labels["tier"] = rng.choice(["front", "back"])
        if self.maybe(0.3):
            labels["version"] = rng.choice(["1", "2"])
        namespace = rng.choice(self.namespaces)
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels}
        if self.maybe(0.4):
            kind, version = rng.choice(OWNERS)
            metadata["ownerReferences"] = [
                {"kind": kind, "apiVersion": version, "name": "owner", "uid": "o", "controller": self.maybe(0.9)}
            ]
        if on and self.maybe(0.1):
            metadata["deletionTimestamp"] = "2031-05-04T08:00:00Z"
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": metadata,
            "spec": spec,
            "status": {},
        }

    def container(self, name):
        rng = self.rng
        requests = {}
        if self.maybe(0.75):
            requests["cpu"] = rng.choice(["100m", "500m", "1", "0", "1.5"])
        if self.maybe(0.75):
            requests["memory"] = rng.choice(["100Mi", "1Gi", "1500M", "0"])
        if self.maybe(0.1):
            requests["ephemeral-storage"] = rng.choice(["1Gi", "20Gi"])
        if self.maybe(0.1):
            requests["ex.com/gpu"] = rng.choice(["1", "2", "0"])
        if self.maybe(0.05):
            requests["hugepages-2Mi"] = "32Mi"
        made = {"name": name, "image": rng.choice([*IMAGES, "db", "unknown"]), "resources": {"requests": requests}}
        if self.maybe(0.1):
            ip, protocol = rng.choice(["", "0.0.0.0", "10.0.0.1"]), rng.choice(["TCP", "UDP"])
            made["ports"] = [{"hostPort": rng.choice([80, 443]), "hostIP": ip, "protocol": protocol}]
        return made

    def toleration(self):
        key, value = self.rng.choice(TAINTS)
        made = {"key": key, "operator": self.rng.choice(["Exists", "Equal"])}
        if made["operator"] == "Equal":
            made["value"] = value
        if self.maybe(0.1):
            made = {"operator": "Exists"}
        if self.maybe(0.3):
            made["effect"] = self.effect()
        return made

    def affinity(self):
        made = {}
        if self.maybe(0.3):
            node = {}
            if self.maybe(0.5):
                terms = [self.node_term() for _ in range(self.rng.randint(1, 2))]
                node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
            if self.maybe(0.7):
                node["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": self.rng.randint(1, 100), "preference": self.node_term()}
                    for _ in range(self.rng.randint(1, 3))
                ]
            made["nodeAffinity"] = node
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.maybe(0.25):
                made[kind] = self.pod_affinity()
        return made

    def pod_affinity(self):
        made = {}
        if self.maybe(0.5):
            terms = [self.pod_term() for _ in range(self.rng.choice([1, 1, 2]))]
            made["requiredDuringSchedulingIgnoredDuringExecution"] = terms
        if self.maybe(0.6):
            made["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.rng.choice([1, 5, 5, 100]), "podAffinityTerm": self.pod_term()}
                for _ in range(self.rng.randint(1, 2))
            ]
        return made

    def pod_term(self):
        made = {"topologyKey": self.rng.choice(TOPOLOGY_KEYS)}
        if self.maybe(0.95):
            made["labelSelector"] = self.label_selector()
        if self.maybe(0.3):
            made["namespaces"] = self.some(NAMESPACES, 2)
        if self.maybe(0.3):
            made["namespaceSelector"] = self.rng.choice(
                [{}, {"matchLabels": {"team": "a"}}, {"matchExpressions": [{"key": "team", "operator": "Exists"}]}]
            )
        return made

    def label_selector(self):
        made = {}
        if self.maybe(0.7):
            made["matchLabels"] = {"app": self.rng.choice(APPS)}
        if self.maybe(0.3):
            operator = self.rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            values = {"values": self.some(("front", "back"), 2) or ["none"]} if operator in ("In", "NotIn") else {}
            made["matchExpressions"] = [{"key": "tier", "operator": operator, **values}]
        return made

    def spread_constraints(self):
        made = []
        pairs = [(key, when) for key in TOPOLOGY_KEYS for when in ("DoNotSchedule", "ScheduleAnyway")]
        for key, when in self.some(pairs, 3):
            constraint = {"topologyKey": key, "whenUnsatisfiable": when, "maxSkew": self.rng.choice([1, 1, 2, 5])}
            if self.maybe(0.95):
                constraint["labelSelector"] = self.label_selector()
                if self.maybe(0.2):
                    constraint["matchLabelKeys"] = self.some(("version", "absent"), 2)
            if when == "DoNotSchedule" and self.maybe(0.3):
                constraint["minDomains"] = self.rng.randint(1, 4)
            if self.maybe(0.3):
                constraint["nodeAffinityPolicy"] = self.rng.choice(["Honor", "Ignore"])
            if self.maybe(0.3):
                constraint["nodeTaintsPolicy"] = self.rng.choice(["Honor", "Ignore"])
            made.append(constraint)
        return made

    # --- other objects -----------------------------------------------------------------------------

    def others(self):
        """Namespaces, services and controllers."""
        for name in NAMESPACES:
            labels = {"kubernetes.io/metadata.name": name} | (
                {"team": self.rng.choice("ab")} if self.maybe(0.6) else {}
            )
            yield {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}
        for i in range(self.rng.randint(0, 3)):
            selector = {"app": self.rng.choice(APPS)} | ({"tier": "front"} if self.maybe(0.3) else {})
            yield self.owned("Service", "v1", f"svc{i}", selector)
        for kind, version in OWNERS:
            selector = {"app": self.rng.choice(APPS)} | ({"version": "1"} if self.maybe(0.3) else {})
            yield self.owned(
                kind, version, "owner", selector if kind == "ReplicationController" else {"matchLabels": selector}
            )

    def owned(self, kind, version, name, selector):
        namespace = self.rng.choice(self.namespaces)
        metadata = {"name": name, "namespace": namespace, "uid": f"{kind}/{namespace}/{name}"}
        return {"kind": kind, "apiVersion": version, "metadata": metadata, "spec": {"selector": selector}}

    def node_term(self):
        expressions = [self.node_requirement() for _ in range(self.rng.randint(0, 2))]
        made = {"matchExpressions": expressions} if expressions else {}
        if self.maybe(0.1):
            operator = self.rng.choice(["In", "NotIn"])
            name = f"n{self.rng.randrange(8)}"
            made["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
        return made

    def node_requirement(self):
        key = self.rng.choice([*KEYS, "absent"])
        operator = self.rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        if operator in ("Gt", "Lt"):
            return {"key": key, "operator": operator, "values": [str(self.rng.randrange(13))]}
        return {"key": key, "operator": operator, "values": self.some(VALUES.get(key, ("x",)), 2) or ["none"]}

    # --- the whole ---------------------------------------------------------------------------------

    def cluster(self, nodes, pods):
        """`nodes` nodes, and up to `pods` pods on some of them."""
        names = [f"n{i}" for i in range(nodes)]
        objects = [*self.others(), *(self.node(name) for name in names)]
        return objects + [self.pod(f"e{i}", on=self.rng.choice(names)) for i in range(self.rng.randint(0, pods))]
