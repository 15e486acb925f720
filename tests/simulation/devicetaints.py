"""Administrators who taint devices by DeviceTaintRules, and the controller that evicts pods from tainted devices."""

from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.claimobjects import (
    API_VERSION,
    GPU,
    NIC,
    PATIENCE,
    TAINT,
    TPU,
    reserved_for,
    results_of,
    tolerated,
)
from tests.simulation.configuration import heeds_rules

RULE, RULE_VERSION = "DeviceTaintRule", "resource.k8s.io/v1beta2"
RULES = f"/apis/{RULE_VERSION}/devicetaintrules"
NAMES = ("t0", "t1", "t2")
"""Of the rules that come and go."""
EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "NoExecute", "None")


def is_matched(rule, part, device):
    """Whether a rule is about a device of a slice."""
    selector = rule["spec"].get("deviceSelector") or {}
    there = {"driver": part["spec"]["driver"], "pool": part["spec"]["pool"]["name"], "device": device["name"]}
    return all(there[key] == value for key, value in selector.items())


def with_rules(part, rules):
    """The slice with the taints of rules on its devices."""
    if not part["spec"].get("devices"):
        return part
    devices = []
    for device in part["spec"]["devices"]:
        more = [rule["spec"]["taint"] for rule in rules if is_matched(rule, part, device)]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *more]} if more else device)
    return {**part, "spec": {**part["spec"], "devices": devices}}


class TaintRules:
    """Acts on rules; schedulers heed them in worlds that have the gate for it."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} taint rules")
        self._heeded = heeds_rules(simulation.plan)
        self._rest = False

    def actions(self):
        """(weight, action) of what happens."""
        return [(2, self._put), (1.5, self._remove)]

    def tidy_up(self):
        """Most rules go, some only later, which wakes others; a few stay."""
        self._rest = True
        for name in NAMES:
            chance = self.rng.random()
            if chance < 0.5:
                self._delete(name)
            elif chance < 0.9:
                call_later(self.rng.uniform(15, 35), self._delete, name)
        if self.rng.random() < 0.4:
            self._put()

    def slices(self):
        """The slices as schedulers have to see them."""
        rules = self.server.objects(RULE, RULE_VERSION) if self._heeded else []
        return [with_rules(part, rules) for part in self.server.objects("ResourceSlice", API_VERSION)]

    # --- rules -------------------------------------------------------------------------------------

    def _put(self):
        """A rule comes, or changes."""
        rng, name = self.rng, self.rng.choice(NAMES)
        taint = {"key": rng.choice([TAINT, TAINT, "repair"]), "value": rng.choice(["", "soon"])}
        spec = {"taint": {**taint, "effect": rng.choice(EFFECTS)}, "deviceSelector": self._selector()}
        if self.server.get(RULE, name, api_version=RULE_VERSION) is None:
            self.server.insert({"apiVersion": RULE_VERSION, "kind": RULE, "metadata": {"name": name}, "spec": spec})
        else:
            self.server.change(RULE, name, lambda thing: thing.update(spec=spec), api_version=RULE_VERSION)
        self.trace(f"rule {name} taints devices {spec['taint']['effect']} {spec['deviceSelector']}")
        if spec["taint"]["effect"] == "NoExecute":
            call_later(self.rng.uniform(0, 3), self.evict)

    def _selector(self):
        rng = self.rng
        if rng.random() < 0.25:
            return {"driver": rng.choice([GPU, GPU, NIC, TPU])}
        used = [each for claim in self.server.objects("ResourceClaim", API_VERSION) for each in results_of(claim)]
        patient = [each for each in used if PATIENCE in (each.get("tolerations") or ())]
        if used and rng.random() < 0.6:
            result = rng.choice(patient if patient and rng.random() < 0.5 else used)
            return {key: result[key] for key in ("driver", "pool", "device")}
        parts = [each for each in self.server.objects("ResourceSlice", API_VERSION) if each["spec"].get("devices")]
        if not parts:
            return {"driver": GPU}
        part = rng.choice(parts)
        about = {"driver": part["spec"]["driver"], "pool": part["spec"]["pool"]["name"]}
        return about if rng.random() < 0.5 else {**about, "device": rng.choice(part["spec"]["devices"])["name"]}

    def _remove(self):
        self._delete(self.rng.choice(NAMES))

    def _delete(self, name):
        if self.server.get(RULE, name, api_version=RULE_VERSION) is not None:
            self.trace(f"rule {name} taints no more")
            self.server.remove(RULE, name, api_version=RULE_VERSION)

    # --- evictions ---------------------------------------------------------------------------------

    def evict(self):
        """Pods leave devices with taints that they do not tolerate, at once or after the seconds that they do."""
        if self._rest:
            return
        for claim, seconds in self._evicted():
            for uid in reserved_for(claim):
                call_later(seconds + 0.001, self._evict, claim["metadata"]["uid"], uid, seconds)

    def _evicted(self):
        """(claim, seconds until its pods have to leave) of allocated claims on devices that are tainted by now."""
        taints = {}
        for part in self.slices():
            for device in part["spec"].get("devices") or ():
                found = [each for each in device.get("taints") or () if each["effect"] == "NoExecute"]
                if found:
                    taints[part["spec"]["driver"], part["spec"]["pool"]["name"], device["name"]] = found
        for claim in self.server.objects("ResourceClaim", API_VERSION) if taints else ():
            seconds = [
                0 if not all(tolerated(taint, result) for taint in found) else _patience(found, result)
                for result in results_of(claim)
                for found in [taints.get((result["driver"], result["pool"], result["device"]), ())]
                if found
            ]
            seconds = [each for each in seconds if each is not None]
            if seconds:
                yield claim, min(seconds)

    def _evict(self, claim_uid, uid, seconds):
        """If the device is still tainted then."""
        if not any(claim["metadata"]["uid"] == claim_uid for claim, _ in self._evicted()):
            return
        for pod in self.server.objects("Pod"):
            if pod["metadata"]["uid"] == uid:
                after = f", after {seconds} s" if seconds else ""
                self.trace(f"pod {pod['metadata']['name']} is evicted from a tainted device{after}")
                self.server.remove("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])


def _patience(taints, result):
    """For how many seconds the request tolerates them; None for ever."""
    found = [
        each["tolerationSeconds"]
        for taint in taints
        for each in result.get("tolerations") or ()
        if "tolerationSeconds" in each and tolerated(taint, {"tolerations": [each]})
    ]
    return min(found, default=None)
