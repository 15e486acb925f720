"""Running pods that are resized in place: users who ask for it, and what kubelets make of it."""

from random import Random

from tests.plugins.objects import requests
from tests.reference.podrequests import exact_requests
from tests.simulation.apiserver import call_later
from tests.simulation.invariants import is_gone

CPU = ("50m", "100m", "500m", "1", "2", "3")
MEMORY = ("50Mi", "100Mi", "1Gi", "3Gi")
PENDING, UNDER_WAY = "PodResizePending", "PodResizeInProgress"


class Resizes:
    """Resizes running pods of one container. Kubelets actuate a resize some seconds later, in one step or two, defer
    it, or find it infeasible. Sometimes the status alone changes, without a resize."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} resizes")

    def settle_in(self):
        """Nothing: there are no pods yet."""

    def actions(self):
        """(weight, action) of what happens."""
        return [(6, self._ask), (2, self._change_status_alone)]

    def tidy_up(self):
        """Nothing: kubelets go on until every answer is given."""

    # --- users -------------------------------------------------------------------------------------

    def _some_pod(self):
        found = [thing for thing in self.server.objects("Pod") if _can_be_resized(thing)]
        return self.rng.choice(found)["metadata"] if found else None

    def _amounts(self):
        amounts = {"cpu": self.rng.choice(CPU)} if self.rng.random() < 0.8 else {}
        if not amounts or self.rng.random() < 0.4:
            amounts["memory"] = self.rng.choice(MEMORY)
        return amounts

    def _ask(self):
        meta = self._some_pod()
        if meta is None:
            return
        amounts = self._amounts()
        self.trace(f"pod {meta['name']} is to be resized: {amounts}")
        self._change(meta, _say_what_is_in_force)
        self._change(meta, lambda thing: _asked(thing).update(requests(**amounts)["requests"]))
        self._later(0.2, 6, self._answer, meta)

    # --- kubelets ----------------------------------------------------------------------------------

    def _change_status_alone(self):
        """What is in force, or set aside for it, differs from what is asked for a while."""
        meta = self._some_pod()
        if meta is None:
            return
        amounts, what = requests(**self._amounts())["requests"], self.rng.choice(["resources", "allocatedResources"])
        self.trace(f"pod {meta['name']} is resized in its status alone, {what}: {amounts}")

        def make(thing):
            _say_what_is_in_force(thing)
            status = thing["status"]["containerStatuses"][0]
            (status["resources"]["requests"] if what == "resources" else status[what]).update(amounts)

        self._change(meta, make)
        self._later(1, 10, self._put_in_force, meta)

    def _answer(self, meta):
        answer = self.rng.choices(("infeasible", "deferred", "begun", "done"), (2, 3, 5, 5))[0]
        if answer == "done":
            self._put_in_force(meta)
            return
        self.trace(f"resize of pod {meta['name']}: {answer}")
        if answer == "begun":
            self._change(meta, _set_aside)
            self._later(0.2, 6, self._put_in_force, meta)
        else:
            self._change(meta, lambda thing: _say(thing, PENDING, answer.capitalize()))
            if answer == "deferred":
                self._later(1, 6, self._answer, meta)

    def _put_in_force(self, meta):
        self.trace(f"resize of pod {meta['name']}: done")
        self._change(meta, _put_in_force)

    def _later(self, least, most, action, meta):
        call_later(self.rng.uniform(least, most), action, meta)

    def _change(self, meta, make):
        def of_this_one(thing):
            if thing["metadata"]["uid"] == meta["uid"] and not is_gone(thing):
                make(thing)

        self.server.change("Pod", meta["name"], of_this_one, meta["namespace"])


def least_requested(pod, states):
    """The pod as if it requested of each resource the least that it did in any of these states."""
    asked = [exact_requests(state) for state in (pod, *states)]
    if asked.count(asked[0]) == len(asked):
        return pod
    least = {name: min(each.get(name, 0) for each in asked) for name in asked[0]}
    spec, status = pod["spec"], {key: value for key, value in pod["status"].items() if key != "containerStatuses"}
    container = {**spec["containers"][0], "resources": {"requests": {name: _text(least[name]) for name in least}}}
    return {**pod, "spec": {**spec, "containers": [container]}, "status": status}


def amounts_of(pod):
    """What decides how much a pod requests, apart from what never changes."""
    status = pod.get("status") or {}
    return (
        [container.get("resources") for container in pod["spec"]["containers"]],
        [(one.get("resources"), one.get("allocatedResources")) for one in status.get("containerStatuses") or ()],
        [one.get("reason") for one in status.get("conditions") or () if one["type"] == PENDING],
    )


def _text(amount):
    return f"{-int(-amount * 10**9 // 1)}n"


def _can_be_resized(thing):
    spec = thing["spec"]
    return (
        spec.get("nodeName")
        and (thing.get("status") or {}).get("phase") == "Running"
        and not is_gone(thing)
        and len(spec["containers"]) == 1
        and not spec.get("initContainers")
        and not spec.get("resources")
    )


def _asked(thing):
    return thing["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {})


def _say_what_is_in_force(thing):
    """As a kubelet does from the start of a container on."""
    container = thing["spec"]["containers"][0]
    statuses = thing["status"].setdefault("containerStatuses", [{"name": container["name"]}])
    if "resources" not in statuses[0]:
        statuses[0] |= {"resources": {"requests": dict(_asked(thing))}, "allocatedResources": dict(_asked(thing))}


def _set_aside(thing):
    _say(thing, UNDER_WAY)
    _say_what_is_in_force(thing)
    thing["status"]["containerStatuses"][0]["allocatedResources"] = dict(_asked(thing))


def _put_in_force(thing):
    _set_aside(thing)
    thing["status"]["containerStatuses"][0]["resources"] = {"requests": dict(_asked(thing))}
    _say(thing, None)


def _say(thing, condition, reason=None):
    """Replaces what the status says of a resize."""
    others = [one for one in thing["status"].get("conditions") or () if one["type"] not in (PENDING, UNDER_WAY)]
    said = {"type": condition, "status": "True", **({"reason": reason} if reason else {})}
    thing["status"]["conditions"] = [*others, said] if condition else others
