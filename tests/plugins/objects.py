"""Short ways to write nodes and pods as JSON."""

MEBI = 1 << 20


def node(name, cpu="4", memory="8Gi", *, labels=None, taints=(), unschedulable=False, images=None, features=(), **more):
    """A node; `more` are further allocatable resources (`gpu` is ex.com/gpu), `images` name -> MiB."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    allocatable |= {"ex.com/gpu" if key == "gpu" else key: value for key, value in more.items()}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [taint(*t) for t in taints], "unschedulable": unschedulable},
        "status": {
            "allocatable": allocatable,
            "images": [{"names": [key], "sizeBytes": size * MEBI} for key, size in (images or {}).items()],
            "declaredFeatures": list(features),
        },
    }


def taint(key, effect="NoSchedule", value=""):
    """A taint."""
    return {"key": key, "effect": effect, "value": value}


def requests(cpu=None, memory=None, **more):
    """A container's resources; `gpu` is ex.com/gpu."""
    amounts = {"cpu": cpu, "memory": memory, **more}
    if "gpu" in amounts:
        amounts["ex.com/gpu"] = amounts.pop("gpu")
    return {"requests": {name: str(amount) for name, amount in amounts.items() if amount is not None}}


def container(image="img:1", name="c", ports=(), restart_policy=None, **amounts):
    """A container; `ports` are host ports: numbers or (ip, protocol, number)."""
    made = {"name": name, "image": image, "resources": requests(**amounts)}
    if ports:
        made["ports"] = [_port(port) for port in ports]
    if restart_policy:
        made["restartPolicy"] = restart_policy
    return made


def _port(port):
    if isinstance(port, int):
        return {"hostPort": port, "containerPort": port}
    ip, protocol, number = port
    return {"hostPort": number, "containerPort": number, "hostIP": ip, "protocol": protocol}


def pod(name, *containers, on=None, labels=None, namespace="default", priority=0, **spec):
    """A pod; `on` is its node. `spec` are further fields."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels or {}},
        "spec": {
            "containers": list(containers) or [container()],
            "schedulerName": "default-scheduler",
            "priority": priority,
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {},
    }


def node_affinity(required=None, preferred=()):
    """An affinity; `required` is a list of terms, `preferred` of (weight, term)."""
    made = {}
    if required is not None:
        made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    if preferred:
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": term} for weight, term in preferred
        ]
    return {"nodeAffinity": made}


def term(*expressions, fields=()):
    """A node selector term of (key, operator, *values)."""
    made = {}
    if expressions:
        made["matchExpressions"] = [_requirement(*e) for e in expressions]
    if fields:
        made["matchFields"] = [_requirement(*f) for f in fields]
    return made


def _requirement(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def spread(key, max_skew, labels, *, hard=True, **more):
    """A spread constraint; `labels` None is an absent selector."""
    made = {"topologyKey": key, "maxSkew": max_skew, **more}
    made["whenUnsatisfiable"] = "DoNotSchedule" if hard else "ScheduleAnyway"
    if labels is not None:
        made["labelSelector"] = {"matchLabels": labels}
    return made


def pod_term(key, labels, **more):
    """A pod affinity term."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}


def pod_affinity(required=(), required_anti=(), preferred=(), preferred_anti=()):
    """An affinity; preferred terms are (weight, term)."""
    made = {}
    for kind, hard, soft in (
        ("podAffinity", required, preferred),
        ("podAntiAffinity", required_anti, preferred_anti),
    ):
        if hard or soft:
            made[kind] = {
                "requiredDuringSchedulingIgnoredDuringExecution": list(hard),
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": weight, "podAffinityTerm": each} for weight, each in soft
                ],
            }
    return made


def service(name, selector, namespace="default"):
    """A service."""
    metadata = {"name": name, "namespace": namespace}
    return {"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {"selector": selector}}


def deployed(name, labels, namespace="default"):
    """A replica set."""
    metadata = {"name": name, "namespace": namespace}
    spec = {"selector": {"matchLabels": labels}}
    return {"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": metadata, "spec": spec}
