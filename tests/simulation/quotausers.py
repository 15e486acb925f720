"""Administrators of elastic quotas: create, change, move and delete them; users label their pods for them."""

import json
from random import Random

from tests.plugins.elasticquota.objects import API_VERSION, PREFIX, quota
from tests.simulation.definitions import definitions

NAMES = ("q0", "q1", "q2", "q3", "q4", "q5")
HOMES = ("quotas", "quotas", "quotas", "default")
"""Namespaces of quotas: pods in one named like their quota belong to it, so "other" is also the name of one."""
LABELS = (*NAMES, *NAMES, "nowhere", "koordinator-system-quota")
LARGE = {"cpu": "64", "memory": "200Gi"}
CRDS = ("elasticquotas", "elasticquotaprofiles")
KIND = "ElasticQuota"


class QuotaUsers:
    """Acts on the objects; what the numbers in them should be is for `tests.reference.quotas` to say."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} quota users")
        self._definitions = [thing for name in CRDS for thing in definitions(name)]
        self._define()

    @property
    def are_known(self):
        """Whether the server knows the kind."""
        return self.server.find(API_VERSION, KIND) is not None

    def settle_in(self):
        """What exists before any scheduler starts."""
        for namespace in ("quotas", "koordinator-system"):
            if namespace == "quotas" or self.rng.random() < 0.7:
                self.server.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        if self.plan.quotas_come_late:
            self._undefine()
            return
        for _ in range(self.rng.randint(1, 5)):
            self._put()

    def actions(self):
        """(weight, action) of what happens."""
        late = self.plan.quotas_come_late
        return [
            (2, self._put),
            (1, self._resize),
            (1, self._remove),
            (1.5, self._move),
            (0.5, self._scribble),
            (0.2, self._put_nonsense),
        ] + ([(0.6, self._define_or_not)] if late else [])

    def tidy_up(self):
        """Nothing has to be mended: any set of quotas comes to rest. But the kind may come at the very end."""
        if not self.are_known and self.rng.random() < 0.7:
            self._define()
            self._put()

    def grow(self):
        """When all is at rest, in half of the worlds: pods that wait for a quota have only this to wake them."""
        if Random(f"{self.plan.seed} quotas grow").random() < 0.5:
            self.trace("all quotas grow")
            for thing in filter(is_readable, self._objects()):
                self._change(thing, lambda changed: changed["spec"].update(max=LARGE, min={}))

    def labels(self):
        """What a pod is labelled with, to belong to a quota or not."""
        labels = {}
        if self.rng.random() < 0.8:
            labels[PREFIX + "name"] = self.rng.choice(LABELS)
        if self.rng.random() < 0.15:
            labels[PREFIX + "preemptible"] = "false"
        return labels

    # --- quotas ------------------------------------------------------------------------------------------

    def _objects(self):
        if not self.are_known:
            return []
        found = self.server.objects(KIND, API_VERSION)
        return [thing for thing in found if thing["metadata"]["name"] in (*NAMES, "other")]

    def _some(self):
        found = self._objects()
        return self.rng.choice(found) if found else None

    def _amounts(self):
        rng = self.rng
        most = {"cpu": rng.choice([1, 2, 4, 8]), "memory": rng.choice(["1Gi", "3Gi", "6Gi", "20Gi"])}
        if rng.random() < 0.3:
            most["ex.com/gpu"] = rng.choice([0, 1, 3])
        if rng.random() < 0.2:
            del most["memory"]
        least = {"cpu": rng.choice([0, 1, most["cpu"]])} if rng.random() < 0.6 else {}
        if "memory" in most and rng.random() < 0.4:
            least["memory"] = rng.choice(["1Gi", most["memory"]])
        return most, least

    def _made(self, name, namespace):
        rng, more = self.rng, {}
        if rng.random() < 0.25:
            more["allow_lent_resource"] = "false"
        if rng.random() < 0.15:
            more["namespaces"] = rng.choice([["other"], ["default"], []])
        if rng.random() < 0.2:
            more["weight"] = {"cpu": rng.choice([0, 1, 5]), "memory": "1Gi"}
        return quota(name, *self._amounts(), parent=self._parent(), namespace=namespace, **more)

    def _parent(self):
        """Mostly at the top; else below another one, be it that it does not exist, or below itself."""
        return self.rng.choice(["", "", "", "missing", *NAMES[:4]])

    def _put(self):
        """A quota appears, or is replaced by another of its name."""
        if not self.are_known:
            return
        name, home = (self.rng.choice(NAMES), self.rng.choice(HOMES)) if self.rng.random() < 0.9 else ("other", "other")
        if self.server.get(KIND, name, home, API_VERSION) is None:
            self.server.insert(self._made(name, home))
        else:
            self.server.change(KIND, name, lambda thing: _replace(thing, self._made(name, home)), home, API_VERSION)

    def _change(self, thing, make):
        meta = thing["metadata"]
        self.server.change(KIND, meta["name"], make, meta["namespace"], API_VERSION)

    def _resize(self):
        thing = self._some()
        if thing is not None:
            fresh = self._made("x", "x")["spec"]
            self._change(thing, lambda changed: changed.update(spec=fresh))

    def _move(self):
        """A quota with its pods goes below another one."""
        thing = self._some()
        if thing is not None:
            parent = self._parent()
            self._change(thing, lambda changed: changed["metadata"]["labels"].update({PREFIX + "parent": parent}))

    def _scribble(self):
        """Somebody writes what is the scheduler's to write."""
        thing = self._some()
        if thing is not None:
            wrong = {PREFIX + "request": self.rng.choice(["{}", '{"cpu":"77"}', "not JSON"])}
            self._change(thing, lambda changed: _scribble(changed, wrong))

    def _put_nonsense(self):
        """An object that nobody can read, as of before the kind had a schema."""
        if self.are_known and self.server.get(KIND, "nonsense", "quotas", API_VERSION) is None:
            thing = quota("nonsense", {}, namespace="quotas")
            self.server.insert({**thing, "spec": {"max": "all of it"}})

    def _remove(self):
        thing = self._some()
        if thing is not None:
            meta = thing["metadata"]
            self.server.remove(KIND, meta["name"], meta["namespace"], api_version=API_VERSION)

    # --- the kind ----------------------------------------------------------------------------------------

    def _define_or_not(self):
        if self.are_known:
            self._undefine()
        else:
            self._define()
            for _ in range(self.rng.randint(1, 4)):
                self._put()

    def _define(self):
        self.trace("the quota kinds are defined")
        for thing in self._definitions:
            self.server.insert(json.loads(json.dumps(thing)))

    def _undefine(self):
        """The kinds are gone, with all objects."""
        self.trace("the quota kinds are gone")
        for thing in self._definitions:
            name = thing["metadata"]["name"]
            self.server.remove(thing["kind"], name, api_version=thing["apiVersion"])


def is_readable(thing):
    """Whether anybody can make sense of a quota object."""
    return isinstance(thing["spec"].get("max", {}), dict)


def _replace(thing, made):
    thing["spec"] = made["spec"]
    thing["metadata"] |= {"labels": made["metadata"]["labels"], "annotations": made["metadata"]["annotations"]}


def _scribble(thing, annotations):
    thing["metadata"].setdefault("annotations", {}).update(annotations)
    thing["status"] = {"used": {"cpu": "99"}}
