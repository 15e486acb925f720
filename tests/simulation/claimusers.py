"""Users who claim devices: classes, templates, claims of their own, and pods; other clients that allocate, too."""

from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.claimcontroller import FlakyClaimController
from tests.simulation.claimobjects import (
    API_VERSION,
    CLAIMS,
    CLASSES,
    RESOURCE,
    allocation_of,
    claims_named,
    device_class,
    reserved_for,
    results_of,
)
from tests.simulation.drivers import Drivers
from tests.simulation.invariants import is_gone

NAMESPACES = ("default", "other")
SHARED = ("s0", "s1", "s2", "s3")
"""Names of claims that several pods use."""
USES = (
    *[["one"]] * 3, ["two"], ["fast"], ["pair"], ["either"], ["whole"], ["half"], ["half"], ["quarter"], ["quarter"],
    ["slice"], ["slice"], ["slices"], ["slow"], ["slow"], ["slow"], ["nic"], ["both"], ["tolerant"], ["one", "nic"],
    ["half", "slice"], ["watch"], ["one", "one"], *[["patient"]] * 4, ["quick"], ["all-gpus"], ["all-tpus"],
    ["watch-all"], ["any"],
)  # fmt: skip
"""Templates that the claims of one pod are made of."""
SHARED_KINDS = ("one", "one", "two", "either", "half", "slice", "nic", "nic", "any")
OF_MEMBERS = (
    ["one"], ["one"], ["two"], ["half"], ["quarter"], ["slice"], ["slow"], ["one", "nic"], ["both"], ["either"],
    ["pair"], ["tolerant"], ["any"],
)  # fmt: skip
"""Templates that the claims of the members of a gang are made of."""


class ClaimUsers:
    """Acts on classes, templates, claims and pods."""

    def __init__(self, simulation):
        self._simulation = simulation
        self.server = simulation.server
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} claim users")
        self._at_once = Random(f"{simulation.plan.seed} claims replaced at once")
        self._unnoticed = Random(f"{simulation.plan.seed} namesakes that the controller does not notice")
        self._rest = False
        self.server.rng = Random(f"{simulation.plan.seed} uids")
        """Not those of the objects that the claim controller makes."""
        self.drivers = Drivers(simulation)
        self._controller = FlakyClaimController(
            self.server.registry, Random(f"{simulation.plan.seed} claim controller")
        )
        self.server.registry.subscribe_changes(self.server.resource("Pod"), self._pod_changed)

    def settle_in(self):
        """What exists before any scheduler starts."""
        for name in CLASSES:
            if self.rng.random() < 0.85:
                self._put_class(name)
        for namespace in NAMESPACES:
            self.server.change("Namespace", namespace, _allow_admin_access)
            for name in CLAIMS:
                if self.rng.random() < 0.85:
                    self._put_template(name, namespace)
            for name in SHARED:
                if self.rng.random() < 0.7:
                    self._add_shared(name, namespace)
        self.drivers.settle_in()

    def actions(self):
        """(weight, action) of what happens."""
        return [
            *self.drivers.actions(),
            (0.6, self._lose_class),
            (1, self._put_some_class),
            (0.6, self._narrow_class),
            (1, self._put_some_template),
            (2, self._add_some_shared),
            (1.5, self._remove_shared),
            (1, self._replace_shared),
            (1, self._remove_generated),
            (1, self._take_name),
            (1.5, self._allocate_elsewhere),
            (1, self._free_some),
            (2, self._end_holder),
        ]

    def tidy_up(self):
        """Classes, templates and claims without which pods could never run are there in the end, mostly; pods that hold
        devices leave, and unused claims are freed, which wakes others."""
        self._rest = True
        self._controller.calm()
        for name in CLASSES:
            if self.rng.random() < 0.8:
                self._put_class(name, again=True)
            else:
                call_later(self.rng.uniform(5, 20), self._put_class, name)
        for namespace in NAMESPACES:
            for name in CLAIMS:
                self._put_template(name, namespace)
            for name in SHARED:
                if self.rng.random() < 0.8:
                    self._add_shared(name, namespace)
        self.drivers.tidy_up()
        for _ in range(self.rng.choice([0, 6, 12])):
            self._ask_for_devices()
        for _ in range(self.rng.randint(0, 6)):
            call_later(self.rng.uniform(20, 40), self._end_holder)
        for _ in range(self.rng.randint(0, 4)):
            call_later(self.rng.uniform(15, 40), self._free_some)

    def objects(self):
        """All that decisions about claims depend on."""
        return [*self._all("ResourceClaim"), *self.drivers.rules.slices(), *self._all("DeviceClass")]

    def _all(self, kind):
        return self.server.objects(kind, API_VERSION)

    # --- classes and templates -----------------------------------------------------------------------

    def _put_class(self, name, again=False):
        found = self.server.get("DeviceClass", name, api_version=API_VERSION)
        if found is None:
            self.server.insert(device_class(name))
        elif again:
            sound = device_class(name)["spec"]
            self.server.change("DeviceClass", name, lambda thing: thing.update(spec=sound), api_version=API_VERSION)

    def _put_some_class(self):
        self._put_class(self.rng.choice(sorted(CLASSES)), again=True)

    def _lose_class(self):
        name = self.rng.choice(sorted(CLASSES))
        self.trace(f"class {name} goes")
        self.server.remove("DeviceClass", name, api_version=API_VERSION)

    def _narrow_class(self):
        """A class selects fewer devices from now on."""
        self.trace("class gpu selects fewer devices")
        spec = device_class("gpu", CLASSES["fast"])["spec"]
        self.server.change("DeviceClass", "gpu", lambda thing: thing.update(spec=spec), api_version=API_VERSION)

    def _put_template(self, name, namespace):
        kind = "ResourceClaimTemplate"
        if self.server.get(kind, name, namespace, API_VERSION) is None:
            spec = {"spec": {"devices": CLAIMS[name]}}
            meta = {"name": name, "namespace": namespace}
            self.server.insert({"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": spec})

    def _put_some_template(self):
        self._put_template(self.rng.choice(sorted(CLAIMS)), self.rng.choice(NAMESPACES))

    # --- claims ----------------------------------------------------------------------------------------

    def _add_shared(self, name, namespace):
        if self.server.get("ResourceClaim", name, namespace, API_VERSION) is None:
            devices = CLAIMS[self.rng.choice(SHARED_KINDS)]
            meta = {"name": name, "namespace": namespace}
            thing = {"apiVersion": API_VERSION, "kind": "ResourceClaim", "metadata": meta}
            self.server.insert({**thing, "spec": {"devices": devices}, "status": {}})

    def _add_some_shared(self):
        self._add_shared(self.rng.choice(SHARED), self.rng.choice(NAMESPACES))

    def _remove(self, claim):
        meta = claim["metadata"]
        self.server.remove("ResourceClaim", meta["name"], meta["namespace"], api_version=API_VERSION)

    def _remove_shared(self):
        if found := [claim for claim in self._all("ResourceClaim") if claim["metadata"]["name"] in SHARED]:
            self._remove(self.rng.choice(found))

    def _replace_shared(self):
        """A claim without reservations is made anew under its name, at once; its finalizers are taken away."""
        found = [claim for claim in self._all("ResourceClaim") if claim["metadata"]["name"] in SHARED]
        found = [claim for claim in found if not reserved_for(claim)]
        wanted = {
            (pod["metadata"]["namespace"], name)
            for pod in self.server.objects("Pod")
            if not pod["spec"].get("nodeName") and not is_gone(pod)
            for name in claims_named(pod)
        }
        waited = [each for each in found if (each["metadata"]["namespace"], each["metadata"]["name"]) in wanted]
        if waited and self.rng.random() < 0.7:
            found = waited
        if found:
            claim = self.rng.choice(found)
            meta = claim["metadata"]
            self.trace(f"claim {meta['name']} is made anew{', and pods wait' if claim in waited else ''}")
            self._unprotect_and_remove(meta)
            self._add_shared(meta["name"], meta["namespace"])

    def placed(self, namespace, name):
        """A replica has just placed a pod: now and then another claim has the name that it is to write."""
        if not self._rest and self._at_once.random() < 0.06:
            call_later(self._at_once.uniform(0, 0.02), self._replace_claim_of, namespace, name)

    def _replace_claim_of(self, namespace, name):
        pod = self.server.get("Pod", name, namespace)
        for each in claims_named(pod) if pod is not None else ():
            claim = self.server.get("ResourceClaim", each, namespace, API_VERSION) if each else None
            if claim is None or reserved_for(claim):
                continue
            self.trace(f"claim {each} is made anew while pod {name} is being bound")
            if claim["metadata"].get("ownerReferences"):
                self._put_namesake(claim)
            else:
                self._unprotect_and_remove(claim["metadata"])
                self._add_shared(each, namespace)
            return

    def _unprotect_and_remove(self, meta):
        self.server.change("ResourceClaim", meta["name"], _unprotect, meta["namespace"], API_VERSION)
        self._remove({"metadata": meta})

    def _take_name(self):
        """A user replaces a claim that was made for a pod by one of that name that is not the pod's."""
        found = [claim for claim in self._all("ResourceClaim") if claim["metadata"].get("ownerReferences")]
        found = [claim for claim in found if not reserved_for(claim) and "deletionTimestamp" not in claim["metadata"]]
        if found:
            claim = self.rng.choice(found)
            self.trace(f"claim {claim['metadata']['name']} is replaced by a namesake")
            self._put_namesake(claim)

    def _put_namesake(self, claim):
        """For seconds the controller may not notice: the claim that the pod's status names is another's meanwhile."""
        meta = claim["metadata"]
        if not self._rest and self._unnoticed.random() < 0.6:
            for owner in meta["ownerReferences"]:
                self._controller.leave_alone((meta["namespace"], owner["name"]), self._unnoticed.uniform(3, 12))
        self._unprotect_and_remove(meta)
        own = {"name": meta["name"], "namespace": meta["namespace"]}
        thing = {"apiVersion": API_VERSION, "kind": "ResourceClaim", "metadata": own, "spec": claim["spec"]}
        self.server.insert({**thing, "status": {}})

    def _remove_generated(self):
        """A user deletes a claim that was made for a pod: the controller makes another one."""
        if found := [claim for claim in self._all("ResourceClaim") if claim["metadata"].get("ownerReferences")]:
            claim = self.rng.choice(found)
            self.trace(f"claim {claim['metadata']['name']} of a pod is deleted")
            self._remove(claim)

    def _allocate_elsewhere(self):
        """Another client allocates a claim for one GPU."""
        plain = CLAIMS["one"]["requests"][0]["exactly"]
        found = [
            claim
            for claim in self._all("ResourceClaim")
            if allocation_of(claim) is None
            and "deletionTimestamp" not in claim["metadata"]
            and [each.get("exactly") for each in claim["spec"]["devices"]["requests"]] == [plain]
        ]
        if found:
            self.drivers.allocate(self.rng.choice(found))

    def _free_some(self):
        """Another client takes the devices from a claim without reservations."""
        found = [each for each in self._all("ResourceClaim") if allocation_of(each) and not reserved_for(each)]
        if found:
            meta = self.rng.choice(found)["metadata"]
            make = _without_devices
            self.trace(f"claim {meta['name']} is freed by another client")
            self.server.change("ResourceClaim", meta["name"], make, meta["namespace"], API_VERSION)

    # --- pods ------------------------------------------------------------------------------------------

    def equip_node(self, node):
        """Some nodes have a device plugin for the extended resource; often devices are scarcer than all else."""
        allocatable = node["status"]["allocatable"]
        if self.rng.random() < 0.25:
            allocatable[RESOURCE] = self.rng.choice(["0", "1", "2"])
        if self.rng.random() < 0.6:
            allocatable |= {"cpu": "16", "memory": "64Gi", "pods": "110"}

    def equip_pod(self, pod):
        """What a pod claims."""
        rng = self.rng
        if rng.random() < 0.2:
            return
        if rng.random() < 0.15:
            _request_extended(pod, rng.choice([1, 1, 2]))
            if rng.random() < 0.6:
                return
        if rng.random() < 0.25:
            names = rng.sample(SHARED, rng.choice([1, 1, 2]))
            entries = [{"name": name, "resourceClaimName": name} for name in names]
        else:
            uses = rng.choice(USES)
            entries = [{"name": f"c{i}", "resourceClaimTemplateName": use} for i, use in enumerate(uses)]
        pod["spec"]["resourceClaims"] = entries

    def of_members(self):
        """What each member of a gang claims, as `resourceClaims`; None if each goes its own way."""
        rng = self.rng
        if rng.random() < 0.25:
            return None
        if rng.random() < 0.1:
            name = rng.choice(SHARED)
            return [{"name": name, "resourceClaimName": name}]
        return [{"name": f"c{i}", "resourceClaimTemplateName": use} for i, use in enumerate(rng.choice(OF_MEMBERS))]

    def _ask_for_devices(self):
        """A pod to which little else matters."""
        pod = self._simulation.users.new_pod("web", {"cpu": "100m"})
        uses = self.rng.choice(USES)
        entries = [{"name": f"c{i}", "resourceClaimTemplateName": use} for i, use in enumerate(uses)]
        pod["spec"]["resourceClaims"] = entries
        self._simulation.users.insert(pod)

    def _end_holder(self):
        """A pod that uses devices ends, or is deleted."""
        using = {uid for claim in self._all("ResourceClaim") if results_of(claim) for uid in reserved_for(claim)}
        pods = [pod for pod in self.server.objects("Pod") if pod["metadata"]["uid"] in using and not is_gone(pod)]
        if not pods:
            return
        pod = self.rng.choice(pods)
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") and self.rng.random() < 0.5:
            make = _finish
            self.server.change("Pod", meta["name"], make, meta["namespace"])
        else:
            self.server.remove("Pod", meta["name"], meta["namespace"])

    def _pod_changed(self, change):
        """The garbage collector deletes what belonged to a pod that is gone."""
        if change.type == "DELETED":
            call_later(self.rng.uniform(0, 2), self._collect, change.record.uid)

    def _collect(self, uid):
        for claim in self._all("ResourceClaim"):
            owners = [owner["uid"] for owner in claim["metadata"].get("ownerReferences") or ()]
            if owners == [uid] and "deletionTimestamp" not in claim["metadata"]:
                self._remove(claim)


def _request_extended(pod, count):
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] = {**resources.get("requests", {}), RESOURCE: str(count)}
    resources["limits"] = {**resources.get("limits", {}), RESOURCE: str(count)}


def _without_devices(claim):
    status = claim.get("status") or {}
    if not status.get("reservedFor"):
        claim["status"] = {key: value for key, value in status.items() if key not in ("allocation", "devices")}


def _allow_admin_access(namespace):
    namespace["metadata"].setdefault("labels", {})["resource.kubernetes.io/admin-access"] = "true"


def _unprotect(claim):
    claim["metadata"].pop("finalizers", None)


def _finish(pod):
    pod["status"]["phase"] = "Succeeded"
