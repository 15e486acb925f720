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
    tolerated,
    wants_extended,
)
from tests.simulation.devicetaints import RULE, RULE_VERSION, RULES, is_matched
from tests.simulation.history import History
from tests.simulation.invariants import Decision

SLICES, CLASSES, CLAIMS = PATHS["ResourceSlice"], PATHS["DeviceClass"], PATHS["ResourceClaim"]

UNDER_WAY = 5.0
"""Virtual seconds from the last look at the claims of a pod until its binding arrives; status writes go before it."""


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

    def __init__(self, invariants, server, heeds_rules):
        """`heeds_rules`: DeviceTaintRules count."""
        self._invariants = invariants
        self._server = server
        self._held = {}
        """uid of a claim -> Holding."""
        self._judged = set()
        self._ceased = {}
        """(uid, device) -> when a device ceased to be ready."""
        follow = {kind: server.resource(kind, API_VERSION) for kind in PATHS}
        self._slices = History().follow(server, follow["ResourceSlice"])
        self._classes = History().follow(server, follow["DeviceClass"])
        self._rules = History().follow(server, server.resource(RULE, RULE_VERSION)) if heeds_rules else None
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
        users = ",".join(each[:8] for each in reserved_for(new))
        self._invariants.tell(change, f" devices={devices} for={users}{_kinds(new, old)}")
        self._invariants.one_acts(f"a write to claim {change.record.name}")
        for result in results_of(old):
            if _is_ready(old, result) and not _is_ready(new, result):
                self._ceased[uid, _device(result)] = self._server.clock.monotonic()
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
        if any(_asked(claim, each["request"]) is None for each in results_of(claim)):
            self._fail(f"{decision.writer} allocates claim {name} for requests that it does not have")
            return
        if FINALIZER not in claim["metadata"].get("finalizers", ()):
            self._fail(f"{decision.writer} allocates claim {name} without protecting it")
        for result in results_of(claim):
            self._check_reach(claim, result, decision)
            if not result.get("adminAccess"):
                self._check_alone(claim, result, decision)
        for request in claim["spec"]["devices"]["requests"]:
            self._check_number(claim, request["name"], decision)
        for pool in sorted({(each["driver"], each["pool"]) for each in results_of(claim)}):
            self._check_amounts(claim, pool, decision)

    def _check_number(self, claim, name, decision):
        """The request, or one alternative of it, gets as many devices as it asks for."""
        given = [each for each in results_of(claim) if each["request"].partition("/")[0] == name]
        who = f"{decision.writer} gives request {name} of claim {claim['metadata']['name']}"
        chosen = {each["request"] for each in given}
        if len(chosen) != 1:
            self._fail(f"{who} devices of {len(chosen)} alternatives")
            return
        asked = _asked(claim, chosen.pop())
        if asked.get("allocationMode") != "All":
            if len(given) != asked.get("count", 1):
                self._fail(f"{who} {len(given)} devices of {asked.get('count', 1)}")
            return
        every = self._every_device(asked, decision)
        here = {_device(each) for each in given}
        if every is not None and here != every:
            self._fail(f"{who} not all devices on {decision.node}: {sorted(here ^ every)}")

    def _every_device(self, asked, decision):
        """Identities of all devices that a request of mode All is about; None if there may have been others."""
        nodes, found, newest = self._invariants.node_states(decision), [], {}
        classes = self._classes.states_since(("", asked["deviceClassName"]), decision.versions[CLASSES])
        if len(nodes) != 1 or len(classes) != 1 or classes[0] is None:
            return None
        for states in self._slices.all_states(decision.versions[SLICES]).values():
            there = [state for state in states if state is not None and _may_reach(state, nodes, decision.node)]
            if there and len(states) > 1:
                return None
            for part in there:
                newest[_pool(part)] = max(newest.get(_pool(part), 0), part["spec"]["pool"]["generation"])
                found.append(part)
        selectors = [*(asked.get("selectors") or ()), *classes[0]["spec"]["selectors"]]
        return {
            (*_pool(part), device["name"])
            for part in found
            for device in part["spec"].get("devices") or ()
            if part["spec"]["pool"]["generation"] == newest[_pool(part)]
            and _reaches(_where(part, device), nodes[0], decision.node)
            and all(_selects(each, part["spec"]["driver"], device) for each in selectors)
        }

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
        if not any(_reaches(_where(part, device), node, decision.node) for node in nodes):
            return "it is out of reach"
        for taint in device.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerated(taint, asked):
                return f"it has the taint {taint['key']}"
        for states in self._rules.all_states(decision.versions[RULES]).values() if self._rules is not None else ():
            if all(rule is not None and _keeps_out(rule, part, device, asked) for rule in states):
                return f"rule {states[0]['metadata']['name']} taints it"
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
        nodes = self._invariants.node_states(decision)
        seen = [part for part in parts if _may_reach(part, nodes, decision.node)]
        names = [device["name"] for part in seen for device in part["spec"].get("devices") or ()]
        if len(names) > len(set(names)):
            self._fail(f"{decision.writer} allocates of pool {'/'.join(pool)}, which has devices of the same name")
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
            _where(part, device)
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
        generated = {each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or ()}
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
            owners = [each["uid"] for each in claim["metadata"].get("ownerReferences") or ()]
            if name in generated and owners != [meta["uid"]]:
                self._fail(f"{who} with a claim {name} that was not made for it")
            selector = allocation_of(claim).get("nodeSelector")
            if selector is not None and not any(node_selector_matches(selector, node) for node in nodes):
                self._fail(f"{who}, where its claim {name} cannot be used")
            holding = self._held.get(claim["metadata"]["uid"])
            # Of one that was allocated before, its selector alone counts: the node may have been in another zone then.
            is_new = holding is not None and holding.decision is decision
            for result in results_of(claim):
                if is_new and self._was_elsewhere(result, nodes, decision.node):
                    self._fail(f"{who}, from where {'/'.join(_device(result))} of its claim {name} is out of reach")
                ceased = self._ceased.get((claim["metadata"]["uid"], _device(result)), -UNDER_WAY)
                if not _is_ready(claim, result) and self._server.clock.monotonic() - ceased >= UNDER_WAY:
                    self._fail(f"{who} before {'/'.join(_device(result))} of its claim {name} is ready")
        named = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        if wants_extended(pod) and not named and all(served_by_claims(node) for node in nodes):
            self._fail(f"{who}, without a claim for its extended resource")
        if named and nodes and not any(served_by_claims(node) for node in nodes):
            self._fail(f"{who}, whose device plugin serves it, and its status names {named}")

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


def _kinds(new, old):
    """What was special about the requests that a claim has just got devices for."""
    if allocation_of(new) is None or allocation_of(old) is not None:
        return ""
    results = results_of(new)
    asked = [_asked(new, each["request"]) or {} for each in results]
    found = ["all"] if any(each.get("allocationMode") == "All" for each in asked) else []
    found += ["admin"] if any(each.get("adminAccess") for each in results) else []
    alternatives = [each["request"].partition("/")[2] for each in results]
    return "".join(f" {each}" for each in (*found, *(f"/{each}" for each in dict.fromkeys(alternatives) if each)))


def _where(part, device):
    """What says from where a device can be reached."""
    return device if part["spec"].get("perDeviceNodeSelection") else part["spec"]


def _may_reach(part, nodes, name):
    places = [part["spec"], *(part["spec"].get("devices") or () if part["spec"].get("perDeviceNodeSelection") else ())]
    return any(_reaches(where, node, name) for where in places for node in nodes)


def _keeps_out(rule, part, device, asked):
    """Whether a rule keeps a request from a device."""
    taint = rule["spec"]["taint"]
    return (
        taint["effect"] in ("NoSchedule", "NoExecute")
        and is_matched(rule, part, device)
        and not tolerated(taint, asked)
    )


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
    """What the request, or the alternative that was chosen, asks for; None if there is no such request."""
    name, _, sub = request.partition("/")
    found = next((each for each in claim["spec"]["devices"]["requests"] if each["name"] == name), {})
    if not sub:
        return found.get("exactly")
    return next((each for each in found.get("firstAvailable", ()) if each["name"] == sub), None)


def _reaches(where, node, name):
    if where.get("nodeName"):
        return where["nodeName"] == name
    if where.get("nodeSelector"):
        return node_selector_matches(where["nodeSelector"], node)
    return bool(where.get("allNodes"))
