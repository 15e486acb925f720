"""Users who reserve room on nodes, whose pods use it, and who change their minds at any time."""

import json
from random import Random

from koordsched.fakecluster.clock import rfc3339
from tests.plugins.objects import pod_affinity, pod_term
from tests.plugins.reservation.naive import names
from tests.simulation.agentusers import annotate
from tests.simulation.apiserver import call_later
from tests.simulation.configuration import reservation_args
from tests.simulation.definitions import definitions
from tests.simulation.invariants import is_gone

API_VERSION, KIND = "scheduling.koordinator.sh/v1alpha1", "Reservation"
NAMES = tuple(f"r{number}" for number in range(8))
OPERATING, OWNERS = f"{names.DOMAIN}operating-mode", f"{names.DOMAIN}reservation-owners"
PROTECTED = f"{names.DOMAIN}disable-preemptible"
APPS = ("web", "db", "cache")
KEEPER = {"role": "keeper"}
"""Labels of pods that act as Reservations, from which some of those that may use them keep away: only in their place
there is none."""
TAINT = {"key": "kept", "value": "yes", "effect": "NoSchedule"}
OVER = ("Succeeded", "Failed")
NODE_ALLOCATIONS = (names.DEVICE_ALLOCATED, f"{names.DOMAIN}resource-status")
"""What pods and Reservations say that they were given: no template has it."""


class ReservationUsers:
    """Acts on the objects; what they should come to is for the naive model to say."""

    def __init__(self, simulation):
        self._simulation = simulation
        self.server = simulation.server
        self.args = reservation_args(simulation.plan)
        self.rng = Random(f"{simulation.plan.seed} reservation users")
        self.moved = set()
        """uids of pods of which another hand than the scheduler's has written what they use."""
        self._operates = self.rng.random() < 0.5
        self._keeps_away = Random(f"{simulation.plan.seed} owners that keep away")
        self._takes_over = self.rng.random() < 0.5
        for thing in definitions("reservations"):
            self.server.insert(thing)

    @property
    def users(self):
        return self._simulation.users

    def objects(self):
        """The Reservations."""
        return self.server.objects(KIND, API_VERSION)

    def settle_in(self):
        """What exists before any scheduler starts."""
        for _ in range(self.rng.randint(1, 4)):
            self._create()

    def actions(self):
        """(weight, action) of what happens."""
        return [
            (8, self._create),
            (1.5, self._delete),
            (1, self._replace),
            (2, self._close_or_open),
            (1, self._taint),
            (1, self._relabel),
            (1, self._give_to_others),
            (1, self._restrict),
            (1.5, self._end_soon),
            (0.7, self._scribble),
            (1.5, self._move),
            (4, self._use),
            (3, self._end_owner),
        ]

    def tidy_up(self):
        """Nothing has to be mended. At rest some Reservations end, some open, some come, and owners leave: others are
        woken by that."""
        for thing in self.objects():
            meta, chance = thing["metadata"], self.rng.random()
            if chance < 0.2:
                call_later(self.rng.uniform(8, 30), self._expire, meta["name"])
            elif chance < 0.35:
                call_later(self.rng.uniform(8, 30), self._remove, meta["name"])
            elif chance < 0.6:
                call_later(self.rng.uniform(8, 30), self._open, meta["name"])
        for _ in range(self.rng.choice([0, 3, 6])):
            self._use()
        for _ in range(self.rng.choice([0, 2, 4])):
            call_later(self.rng.uniform(5, 20), self._create)
        for _ in range(self.rng.randint(0, 5)):
            call_later(self.rng.uniform(20, 40), self.rng.choice([self._end_owner, self._end_owner, self._move]))

    # --- Reservations --------------------------------------------------------------------------------

    def _change(self, name, make):
        self.server.change(KIND, name, make, api_version=API_VERSION)

    def _remove(self, name):
        self.server.remove(KIND, name, api_version=API_VERSION)

    def _some(self, wanted=lambda thing: True):
        found = sorted(thing["metadata"]["name"] for thing in self.objects() if wanted(thing))
        return self.rng.choice(found) if found else None

    def _create(self):
        free = sorted(set(NAMES).difference(thing["metadata"]["name"] for thing in self.objects()))
        if free:
            self.server.insert(self._made(self.rng.choice(free)))

    def _made(self, name):
        rng, labels, annotations = self.rng, {}, {}
        app = rng.choice(APPS)
        spec = {"template": self._template(app), "owners": self._owners(app), **self._life()}
        if (once := rng.choice([None, True, False, False])) is not None:
            spec["allocateOnce"] = once
        if (policy := rng.choice(["", "Aligned", "Restricted", "Restricted"])) != "":
            spec["allocatePolicy"] = policy
        if rng.random() < 0.1:
            spec["unschedulable"] = True
        if rng.random() < 0.1:
            spec["taints"] = [dict(TAINT)]
        if self._takes_over and rng.random() < 0.4:
            spec |= {"preAllocation": True, "allocateOnce": False}
            spec["allocatePolicy"] = "Restricted" if rng.random() < 0.95 else "Aligned"
            if rng.random() < 0.6:
                mode = rng.choice(["Default", "Cluster"])
                spec["preAllocationPolicy"] = {"mode": mode, "enableMultiple": rng.random() < 0.5}
            if rng.random() < 0.3:
                labels[names.REQUIRED] = "true"
        if rng.random() < 0.4:
            labels["tier"] = "gold"
        if rng.random() < 0.2:
            labels[names.ORDER] = rng.choice(["1", "2", "3", "first"])
        if rng.random() < 0.2:
            labels[names.PRIORITY] = rng.choice(["0", "50"])
        if rng.random() < 0.2:
            annotations[names.OPTIONS] = self._options()
        if rng.random() < 0.1:
            annotations[names.INNER] = rng.choice(['{"resources":{"cpu":"200m"}}', '{"resources":{"memory":"100Mi"}}'])
        meta = {"name": name, "labels": labels, "annotations": annotations}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}

    def _options(self):
        texts = ['{"resources":["cpu"]}', '{"resources":["memory","ex.com/gpu"]}', '{"resources":[]}', "{"]
        return self.rng.choices(texts, [6, 3, 2, 1])[0]

    def _template(self, app):
        rng = self.rng
        amounts = {"cpu": rng.choice(["500m", "1", "1", "2", "2"]), "memory": rng.choice(["200Mi", "1Gi", "2Gi", None])}
        if rng.random() < 0.15:
            amounts["gpu"] = rng.choice([1, 2])
        ports = [rng.choice([80, 443])] if rng.random() < 0.1 else []
        made = self.users.new_pod(app, amounts, ports)
        spec = {key: value for key, value in made["spec"].items() if key not in ("schedulerName", "priority")}
        if rng.random() < 0.4:
            spec["priority"] = rng.choice([0, 10, 100])
        if rng.random() < 0.15:
            spec["nodeSelector"] = {"disk": rng.choice(["ssd", "hdd"])}
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        if rng.random() < 0.1:
            spec["nodeName"] = f"n{rng.randrange(self._simulation.plan.nodes)}"
        if rng.random() < 0.05:
            spec["schedulerName"] = "other-scheduler"
        meta = made["metadata"]
        annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if not _is_of_pods(k)}
        labels = {k: v for k, v in meta["labels"].items() if not _is_of_pods(k)}
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}

    def _owners(self, app):
        rng = self.rng
        pods = sorted(thing["metadata"]["name"] for thing in self.server.objects("Pod"))
        one = {"labelSelector": {"matchLabels": {"app": app}}}
        draw = rng.random()
        if draw < 0.15:
            one = {"controller": controller_of(app)}
        elif draw < 0.25:
            one = {"controller": {**controller_of(app), "namespace": "default"}, **one}
        elif draw < 0.35 and pods:
            one = {"object": {"name": rng.choice([*pods, f"p{self.users.names + 2}"])}}
        elif draw < 0.4:
            one = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [app]}]}}
        elif draw < 0.43:
            one = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near", "values": [app]}]}}
        return [one] if rng.random() < 0.8 else [one, {"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}}]

    def _life(self):
        rng = self.rng
        if rng.random() < 0.15:
            return {"expires": rfc3339(self.server.clock.wall() + rng.choice([20, 60, 3600])), "ttl": "24h"}
        ttl = rng.choice(["24h", "24h", "24h", "0s", None, "20s", "50s", "130s"])
        return {} if ttl is None else {"ttl": ttl}

    def _delete(self):
        name = self._some()
        if name is not None:
            self._remove(name)

    def _replace(self):
        """Another Reservation by the name of an old one, at once."""
        name = self._some()
        if name is not None:
            self._remove(name)
            self.server.insert(self._made(name))

    def _close_or_open(self):
        name = self._some()
        if name is not None:
            self._change(name, lambda thing: thing["spec"].update(unschedulable=not thing["spec"].get("unschedulable")))

    def _open(self, name):
        self._change(name, lambda thing: thing["spec"].update(unschedulable=False, taints=[]))

    def _taint(self):
        name = self._some()
        if name is not None:
            self._change(
                name, lambda thing: thing["spec"].update(taints=[] if thing["spec"].get("taints") else [dict(TAINT)])
            )

    def _relabel(self):
        name, tier = self._some(), self.rng.choice(["gold", "iron"])
        if name is not None:
            self._change(name, lambda thing: thing["metadata"].setdefault("labels", {}).update(tier=tier))

    def _give_to_others(self):
        name, owners = self._some(), self._owners(self.rng.choice(APPS))
        if name is not None:
            self._change(name, lambda thing: thing["spec"].update(owners=owners))

    def _restrict(self):
        name, text = self._some(), self.rng.choice([self._options(), None])
        if name is not None:
            self._change(name, lambda thing: annotate(thing, names.OPTIONS, text))

    def _end_soon(self):
        name = self._some()
        if name is not None:
            self._expire(name)

    def _expire(self, name):
        self._change(name, lambda thing: thing["spec"].update(ttl="1s"))

    def _scribble(self):
        """Another client writes what is the scheduler's to write."""
        name = self._some(lambda thing: thing["spec"].get("allocateOnce") is False)
        if name is not None:
            wrong = self.rng.choice([{"allocated": {"cpu": "77"}}, {"currentOwners": []}, {"allocated": {}}])
            self._change(name, lambda thing: thing.setdefault("status", {}).update(wrong))

    # --- pods ----------------------------------------------------------------------------------------

    def equip_pod(self, pod):
        """What a pod says about Reservations."""
        rng, meta = self.rng, pod["metadata"]
        app, labels, annotations = meta["labels"]["app"], {}, {}
        if rng.random() < 0.4:
            meta["ownerReferences"] = [controller_of(app)]
        if rng.random() < 0.2:
            annotations[names.AFFINITY] = self._affinity()
        if rng.random() < 0.04:
            labels[names.IGNORED] = "true"
        if rng.random() < 0.04:
            annotations[names.EXACT] = rng.choice(
                ['{"resourceNames":["cpu"]}', '{"resourceNames":["cpu","memory"]}', "{"]
            )
        if rng.random() < 0.2:
            labels[names.CANDIDATE] = "true"
            annotations[names.CANDIDATE_PRIORITY] = rng.choice(["1", "5", "high"])
        if rng.random() < 0.05:
            labels[PROTECTED] = "true"
        if self._operates and rng.random() < 0.12:
            labels[OPERATING] = "Reservation"
            text = json.dumps(self._owners(rng.choice(APPS)))
            labels |= KEEPER
            annotations[OWNERS] = text if rng.random() < 0.95 else "{"
        if rng.random() < (0.4 if pod["spec"].get("nodeName") else 0.05):
            annotations[names.ALLOCATED] = self._foreign()
        meta["labels"] |= labels
        meta["annotations"] = {**(meta.get("annotations") or {}), **annotations}

    def _affinity(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.4:
            return rng.choice(["", "{}"])
        if draw < 0.6:
            return json.dumps({"name": rng.choice(NAMES)})
        if draw < 0.75:
            return json.dumps({"reservationSelector": {"tier": "gold"}})
        if draw < 0.85:
            tolerations = [{"key": "kept", "operator": "Exists"}, {"key": "node.kubernetes.io/unschedulable"}]
            return json.dumps({"tolerations": tolerations[: rng.choice([1, 2])]})
        if draw < 0.97:
            key, values = rng.choice([("tier", ["gold"]), ("zone", ["z1", "z2"]), ("disk", ["ssd"])])
            terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
            return json.dumps({"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": terms}})
        return "{"

    def _foreign(self):
        """What pods say that come with their node, or are made from the manifest of one that ran elsewhere."""
        known = sorted((thing["metadata"]["name"], thing["metadata"]["uid"]) for thing in self.objects())
        said = [json.dumps({"name": name, "uid": uid}) for name, uid in known]
        return self.rng.choice([*said, '{"name":"r0","uid":"of-an-earlier-one"}', "{}", "{"])

    def started(self, pod):
        """A pod that acts as a Reservation is ready when it runs."""
        if pod["status"].get("phase") == "Running" and is_operating(pod):
            others = [each for each in pod["status"].get("conditions") or () if each["type"] != "Ready"]
            pod["status"]["conditions"] = [*others, {"type": "Ready", "status": "True"}]

    def _use(self):
        """Pods of owners, to which little else matters."""
        rng = self.rng
        app = rng.choice(APPS)
        for _ in range(min(rng.choice([1, 1, 2, 3]), self.users.room())):
            pod = self.users.new_pod(
                app, {"cpu": rng.choice(["100m", "500m", "1"]), "memory": rng.choice(["100Mi", "1Gi"])}
            )
            for key in (names.IGNORED, OPERATING):
                pod["metadata"]["labels"].pop(key, None)
            if rng.random() < 0.6:
                pod["metadata"]["annotations"][names.AFFINITY] = "{}"
            if self._operates and self._keeps_away.random() < 0.4:
                key = self._keeps_away.choice(["zone", "kubernetes.io/hostname", "kubernetes.io/hostname"])
                pod["spec"]["affinity"] = pod_affinity(required_anti=[pod_term(key, KEEPER)])
            self.users.insert(pod)

    def _using(self):
        pods = [pod for pod in self.server.objects("Pod") if pod["spec"].get("nodeName") and not is_gone(pod)]
        return [pod for pod in pods if names.ALLOCATED in (pod["metadata"].get("annotations") or {})]

    def _end_owner(self):
        if pods := self._using():
            meta = self.rng.choice(pods)["metadata"]
            self.server.remove("Pod", meta["name"], meta["namespace"])

    def _move(self):
        """An administrator says that a running pod uses another Reservation, or none."""
        pods = self._using() or [pod for pod in self.server.objects("Pod") if pod["spec"].get("nodeName")]
        if pods:
            meta, text = self.rng.choice(pods)["metadata"], self.rng.choice([self._foreign(), None])
            self.moved.add(meta["uid"])
            self.server.change("Pod", meta["name"], lambda pod: annotate(pod, names.ALLOCATED, text), meta["namespace"])


def controller_of(app):
    """The controller of the pods of an app."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"rs-{app}",
        "uid": f"uid-rs-{app}",
        "controller": True,
    }


def is_operating(pod):
    """Whether a pod is to act as a Reservation."""
    return (pod["metadata"].get("labels") or {}).get(OPERATING) == "Reservation"


def is_over(thing):
    """Whether a Reservation has ended."""
    return (thing.get("status") or {}).get("phase") in OVER


def _is_of_pods(key):
    return key in NODE_ALLOCATIONS or ("reservation" in key and key.startswith(names.DOMAIN)) or key == OPERATING
