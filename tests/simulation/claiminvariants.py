"""Claims: what must hold whenever one is allocated and whenever a pod is bound, by the server's own objects."""

from typing import NamedTuple

from koordsched.api.quantity import parse
from tests.reference.selectors import node_selector_matches
from tests.simulation.claimobjects import (
    API_VERSION,
    FINALIZER,
    PATHS,
    RESOURCE,
    allocation_of,
    claims_named,
    reserved_for,
    results_of,
    wants_extended,
)
from tests.simulation.history import History
from tests.simulation.invariants import Decision

SLICES, CLASSES, CLAIMS = PATHS["ResourceSlice"], PATHS["DeviceClass"], PATHS["ResourceClaim"]


class Holding(NamedTuple):
    """Since when a claim has its devices."""

    version: int
    decision: Decision | None
    """Why a replica allocated it; None if another client did."""

    def must_be_known(self, decision):
        """Whether a scheduler had to take it into account."""
        if self.decision is not None:
            return self.decision.order < decision.order
        return self.version <= decision.versions[CLAIMS]


class ClaimInvariants:
    """A device that is not shared has one holder; of what is shared no more is given than there is; devices are those
    that the claim asks for; a pod is bound where all its claims can be used, and they are its own by then."""

    def __init__(self, invariants, server):
        self._invariants = invariants
        self._server = server
        self._held = {}
        """uid of a claim -> Holding."""
        self._judged = set()
        follow = {kind: server.resource(kind, API_VERSION) for kind in PATHS}
        self._slices = History().follow(server, follow["ResourceSlice"])
        self._classes = History().follow(server, follow["DeviceClass"])
        server.registry.subscribe_changes(follow["ResourceClaim"], self._claim_changed)
        server.registry.subscribe_changes(follow["ResourceSlice"], self._told)

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is written."""

    def _told(self, change):
        self._invariants.tell(change)

    # --- claims ------------------------------------------------------------------------------------

    def _claim_changed(self, change):
        new, old, uid, writer = change.new, change.old or {}, change.record.uid, self._server.writer
        devices = ",".join(f"{each['pool']}/{each['device']}" for each in results_of(new))
        self._invariants.tell(change, f" devices={devices} for={','.join(each[:8] for each in reserved_for(new))}")
        self._invariants.one_acts(f"a write to claim {change.record.name}")
        if change.type == "DELETED" or allocation_of(new) is None:
            self._held.pop(uid, None)
            return
        added = set(reserved_for(new)).difference(reserved_for(old))
        if allocation_of(old) is None:
            decision = None
            if writer:
                decision = next((d for pod in added if (d := self._invariants.decisions.get((writer, pod)))), None)
                if decision is None:
                    self._fail(f"{writer} allocates claim {change.record.name} for no pod that it placed")
                    return
            self._held[uid] = Holding(change.record.rv, decision)
            if writer:
                self._newly_allocated(new, decision)
        if writer and added and "deletionTimestamp" in new["metadata"]:
            self._fail(f"{writer} reserves claim {change.record.name}, which is being deleted")

    def _newly_allocated(self, claim, decision):
        name = claim["metadata"]["name"]
        if FINALIZER not in claim["metadata"].get("finalizers", ()):
            self._fail(f"{decision.writer} allocates claim {name} without protecting it")
        for result in results_of(claim):
            self._check_reach(claim, result, decision)
            if not result.get("adminAccess"):
                self._check_alone(claim, result, decision)
        for pool in sorted({(each["driver"], each["pool"]) for each in results_of(claim)}):
            self._check_amounts(claim, pool, decision)

    def _others(self, claim, decision):
        """The other allocated claims that the decision had to reckon with, and all that were decided later."""
        for other in self._server.objects("ResourceClaim", API_VERSION):
            held = self._held.get(other["metadata"]["uid"])
            if other["metadata"]["uid"] == claim["metadata"]["uid"] or held is None:
                continue
            if held.must_be_known(decision) or held.decision is not None:
                yield other

    def _check_alone(self, claim, result, decision):
        for other in self._others(claim, decision):
            for each in results_of(other):
                if _device(each) != _device(result) or each.get("adminAccess"):
                    continue
                if not (each.get("shareID") and result.get("shareID")) or each["shareID"] == result["shareID"]:
                    names = claim["metadata"]["name"], other["metadata"]["name"]
                    text = f"gives device {'/'.join(_device(result))} to claim {names[0]}, which {names[1]} has"
                    self._fail(f"{decision.writer} {text}")

    # --- what is there -------------------------------------------------------------------------------

    def _known(self, pool, decision):
        """Name -> states, of the slices of a pool as they may have been known."""
        every = self._slices.all_states(decision.versions[SLICES])
        found = {key: [state for state in states if _pool(state) == pool] for key, states in every.items()}
        return {key: states for key, states in found.items() if states}

    def _check_reach(self, claim, result, decision):
        """The device was published, in the newest generation, for the node, as the claim and its class want it."""
        states = [
            state for each in self._known((result["driver"], result["pool"]), decision).values() for state in each
        ]
        oldest = max(
            (
                state["spec"]["pool"]["generation"]
                for state in self._slices.at(decision.versions[SLICES])
                if _pool(state) == (result["driver"], result["pool"])
            ),
            default=0,
        )
        nodes = self._invariants.node_states(decision)
        asked = _asked(claim, result["request"])
        problems = {"it was never published"}
        for state in states:
            for device in state["spec"].get("devices") or ():
                if device["name"] != result["device"]:
                    continue
                problem = self._misfit(state, device, asked, nodes, decision)
                if problem is None and state["spec"]["pool"]["generation"] < oldest:
                    problem = "its generation is over"
                if problem is None:
                    return
                problems.add(problem)
        text = f"device {'/'.join(_device(result))} to claim {claim['metadata']['name']} on {decision.node}"
        self._fail(f"{decision.writer} gives {text}: {'; '.join(sorted(problems))}")

    def _misfit(self, part, device, asked, nodes, decision):
        """Why the device is not for the request on any known state of the node; None if it may be."""
        where = device if part["spec"].get("perDeviceNodeSelection") else part["spec"]
        if not any(_reaches(where, node, decision.node) for node in nodes):
            return "it is out of reach"
        for taint in device.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(taint, asked):
                return f"it has the taint {taint['key']}"
        driver = part["spec"]["driver"]
        if not all(_selects(each, driver, device) for each in asked.get("selectors") or ()):
            return "the claim selects others"
        classes = self._classes.states_since(("", asked["deviceClassName"]), decision.versions[CLASSES])
        for state in classes:
            if state is not None and all(_selects(each, driver, device) for each in state["spec"]["selectors"]):
                return None
        return "the class selects others"

    def _check_amounts(self, claim, pool, decision):
        """That the pool is complete, counters and shared capacity, if it has been the same since the decision."""
        known = self._known(pool, decision)
        if not known or any(len(self._slices.states_since(key, decision.versions[SLICES])) > 1 for key in known):
            return
        parts = [states[0] for states in known.values()]
        newest = max(part["spec"]["pool"]["generation"] for part in parts)
        parts = [part for part in parts if part["spec"]["pool"]["generation"] == newest]
        if len(parts) != parts[0]["spec"]["pool"]["resourceSliceCount"]:
            self._fail(f"{decision.writer} allocates of pool {'/'.join(pool)}, of which slices are missing")
        devices = {device["name"]: device for part in parts for device in part["spec"].get("devices") or ()}
        holders = [claim, *self._others(claim, decision)]
        held = [each for holder in holders for each in results_of(holder) if (each["driver"], each["pool"]) == pool]
        held = [each for each in held if not each.get("adminAccess")]
        own = {each["device"] for each in results_of(claim) if (each["driver"], each["pool"]) == pool}
        self._check_counters(parts, devices, {each["device"] for each in held}, own, decision)
        for name in sorted(own & devices.keys()):
            for key, capacity in (devices[name].get("capacity") or {}).items():
                amounts = [
                    parse((each.get("consumedCapacity") or {}).get(key, "0")) for each in held if each["device"] == name
                ]
                if sum(amounts) > parse(capacity["value"]):
                    text = f"{key} of {pool[1]}/{name} is used up: {sum(amounts)} of {capacity['value']}"
                    self._fail(f"{decision.writer} allocates claim {claim['metadata']['name']}: {text}")

    def _check_counters(self, parts, devices, held, own, decision):
        left = {
            (each["name"], key): parse(counter["value"])
            for part in parts
            for each in part["spec"].get("sharedCounters") or ()
            for key, counter in each["counters"].items()
        }
        concerned = {
            use["counterSet"] for name in own & devices.keys() for use in devices[name].get("consumesCounters") or ()
        }
        for name in sorted(held & devices.keys()):
            for use in devices[name].get("consumesCounters") or ():
                for key, counter in use["counters"].items():
                    if (use["counterSet"], key) in left:
                        left[use["counterSet"], key] -= parse(counter["value"])
        over = [f"{name}/{key}" for (name, key), amount in sorted(left.items()) if amount < 0 and name in concerned]
        if over:
            self._fail(f"{decision.writer} takes more than there is of counters {', '.join(over)}: {sorted(held)}")

    def _was_elsewhere(self, result, nodes, name):
        """Whether the device was published for other nodes alone."""
        places = [
            device if part["spec"].get("perDeviceNodeSelection") else part["spec"]
            for states in self._slices.all_states(0).values()
            for part in states
            if _pool(part) == (result["driver"], result["pool"])
            for device in part["spec"].get("devices") or ()
            if device["name"] == result["device"]
        ]
        return bool(places) and not any(_reaches(where, node, name) for where in places for node in nodes)

    # --- bindings ------------------------------------------------------------------------------------

    def bound(self, pod, decision):
        """A pod was bound, or one was that was decided earlier: its claims are allocated, reserved for it, and can be
        used on its node."""
        meta = pod["metadata"]
        if meta["uid"] in self._judged:
            return
        self._judged.add(meta["uid"])
        nodes = self._invariants.node_states(decision)
        who = f"{decision.writer} binds pod {meta['name']} to {decision.node}"
        for name in claims_named(pod):
            claim = self._server.get("ResourceClaim", name, meta["namespace"], API_VERSION) if name else None
            if claim is None:
                if name is None:
                    self._fail(f"{who} before one of its claims is made")
                continue  # deleted after the decision: nothing protects one that is not allocated
            if allocation_of(claim) is None:
                self._fail(f"{who} before its claim {name} is allocated")
                continue
            if meta["uid"] not in reserved_for(claim):
                self._fail(f"{who} before its claim {name} is reserved for it")
            selector = allocation_of(claim).get("nodeSelector")
            if selector is not None and not any(node_selector_matches(selector, node) for node in nodes):
                self._fail(f"{who}, where its claim {name} cannot be used")
            for result in results_of(claim):
                if self._was_elsewhere(result, nodes, decision.node):
                    self._fail(f"{who}, from where {'/'.join(_device(result))} of its claim {name} is out of reach")
                if not _is_ready(claim, result):
                    self._fail(f"{who} before {'/'.join(_device(result))} of its claim {name} is ready")
        if wants_extended(pod) and all(served_by_claims(node) for node in nodes):
            named = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
            if not named:
                self._fail(f"{who}, without a claim for its extended resource")

    def _fail(self, text):
        self._invariants.fail(text)


def served_by_claims(node):
    """Whether the node has none of the extended resource: a device plugin would say so."""
    return node["status"]["allocatable"].get(RESOURCE, "0") == "0"


def without_served(pod, node):
    """The pod without its request for the extended resource where that is served by a claim."""
    if not wants_extended(pod) or not served_by_claims(node):
        return pod
    containers = []
    for each in pod["spec"]["containers"]:
        kept = {
            key: {name: value for name, value in amounts.items() if name != RESOURCE}
            for key, amounts in each.get("resources", {}).items()
        }
        containers.append({**each, "resources": kept})
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def selects(text, driver, device):
    """Whether an expression of `claimobjects` selects a device (JSON): it is Python, too."""
    values = {key: next(iter(value.values())) for key, value in device.get("attributes", {}).items()}
    return bool(eval(text, {"device": _Seen(driver, values)}))


def _selects(selector, driver, device):
    try:
        return selects(selector["cel"]["expression"], driver, device)
    except AttributeError:
        return False


class _Named:
    def __init__(self, values):
        self.__dict__.update(values)


class _Seen:
    def __init__(self, driver, values):
        self.driver = driver
        self.attributes = {driver: _Named(values)}


def _device(result):
    return result["driver"], result["pool"], result["device"]


def _pool(part):
    return (part["spec"]["driver"], part["spec"]["pool"]["name"]) if part is not None else None


def _is_ready(claim, result):
    """Whether the driver says so of the device, where a binding has to wait for that."""
    said = {
        condition["type"]
        for device in (claim.get("status") or {}).get("devices") or ()
        if _device(device) == _device(result)
        for condition in device.get("conditions") or ()
        if condition["status"] == "True"
    }
    return said.issuperset(result.get("bindingConditions") or ())


def _asked(claim, request):
    """What the request, or the alternative that was chosen, asks for."""
    name, _, sub = request.partition("/")
    found = next(each for each in claim["spec"]["devices"]["requests"] if each["name"] == name)
    return found["exactly"] if not sub else next(each for each in found["firstAvailable"] if each["name"] == sub)


def _reaches(where, node, name):
    if where.get("nodeName"):
        return where["nodeName"] == name
    if where.get("nodeSelector"):
        return node_selector_matches(where["nodeSelector"], node)
    return bool(where.get("allNodes"))


def _tolerated(taint, asked):
    return any(
        each.get("effect", "") in ("", taint["effect"])
        and each.get("key", "") in ("", taint["key"])
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in asked.get("tolerations") or ()
    )
