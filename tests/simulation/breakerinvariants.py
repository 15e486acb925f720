"""Circuit breakers and quarantines: what must hold whenever a pod is placed, a breaker opens, or all is at rest."""

import asyncio
import json

from koordsched.plugins.workloadquarantine.record import PREFIX
from tests.simulation.configuration import BREAKER, PROFILE, QUARANTINE, breaker_args, quarantine_args, seconds
from tests.simulation.history import History
from tests.simulation.invariants import NODES
from tests.simulation.nodefaults import ZONE, written_on

NAMESPACES = "/api/v1/namespaces"
EVERYWHERE = ("DaemonSet", "Node")
SKEW = 50.0
"""Seconds by which a replica's clock may be off, and it must still see what a workload does."""


class BreakerInvariants:
    """Judged from what the server's objects say, with an arithmetic of its own."""

    def __init__(self, simulation):
        self._simulation = simulation
        self._server = server = simulation.server
        self._invariants = invariants = simulation.invariants
        self._args, self._quarantine_args = breaker_args(simulation.plan), quarantine_args(simulation.plan)
        self._namespaces = History()
        self._changed_at = 0.0
        """When an annotation changed last."""
        self._opened_by_hand = {}
        """Node -> (version, when) of an opening by a person; until something else is written."""
        self._quarantined_by_hand = {}
        """(namespace, annotation) -> (version, when)."""
        self._closed = {}
        """(replica, node) -> when it closed the breaker."""
        self._went_down = {}
        """Node -> whether it ever went down or was started anew."""
        self._had = {}
        """Node -> workloads of the pods that ever were there."""
        registry = server.registry
        for kind, check in (("Node", self._node), ("Namespace", self._namespace), ("Pod", self._pod)):
            registry.subscribe_changes(server.resource(kind), check)
        self._fail = invariants.fail

    # --- changes -------------------------------------------------------------------------------------------

    def _node(self, change):
        name, writer, version = change.record.name, self._server.writer, change.record.rv
        if writer:
            self._invariants.one_acts(f"a write to node {name}")
        before = written_on(change.old) if change.old is not None else ""
        after = written_on(change.new) if change.type != "DELETED" else ""
        if before != after or change.type != "MODIFIED":
            self._touched(f"breaker of {name}: {after or 'none'}")
            self._opened_by_hand.pop(name, None)
            readable = isinstance(change.new["spec"].get("taints") or [], list)
            if not writer and readable and record_in(after) is not None:
                self._opened_by_hand[name] = version, self._now()
        if change.type == "MODIFIED" and (is_down(change.new) or _boot(change.old) != _boot(change.new)):
            self._went_down[name] = True

    def _namespace(self, change):
        name, writer = change.record.name, self._server.writer
        self._namespaces.note(change)
        if writer:
            self._invariants.one_acts(f"a write to namespace {name}")
        before, after = _quarantines(change.old), _quarantines(change.new)
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) == after.get(key):
                continue
            self._touched(f"{name} {key}: {after.get(key)}")
            self._quarantined_by_hand.pop((name, key), None)
            if writer and key in after and key not in before:
                self._check_cause(name, json.loads(after[key]), writer)
            elif not writer and quarantine_in(key, after.get(key, "")) is not None:
                self._quarantined_by_hand[name, key] = change.record.rv, self._now()

    def _touched(self, text):
        self._changed_at = self._now()
        self._simulation.trace(text)

    def _pod(self, change):
        node = change.new["spec"].get("nodeName")
        if node:
            self._had.setdefault(node, set()).add(workload_of(change.new))

    def _check_cause(self, namespace, record, writer):
        """A replica quarantines no workload but one that was on so many nodes that went down."""
        workload = namespace, record["kind"], record["name"]
        what = f"{writer} quarantines {'/'.join(workload)}"
        nodes = record.get("nodes", [])
        if not nodes:
            return  # a person's, which is written once more where another person has spoilt it
        if record["kind"] in EVERYWHERE:
            self._fail(f"{what}, whose pods are on every node")
        if len(nodes) < 2:
            self._fail(f"{what} for {len(nodes)} nodes")
        for node in nodes:
            if node not in self._went_down:
                self._fail(f"{what} for {node}, which never went down")
            if workload not in self._had.get(node, ()):
                self._fail(f"{what} for {node}, which never had a pod of it")

    # --- decisions -----------------------------------------------------------------------------------------

    def watch(self, process):
        """Listens to the plugins of a replica."""
        breakers = plugins_of(process)[0].breakers
        opening, closing = breakers._open, breakers._close

        def opens(row, why, openings, now, wall):
            opening(row, why, openings, now, wall)
            if openings == 1:
                self._check_share(process, breakers, row)

        def closes(row, why, **more):
            self._closed[process.name, breakers.cluster.table.names[row]] = self._now()
            closing(row, why, **more)

        breakers._open, breakers._close = opens, closes

    def _check_share(self, process, breakers, row):
        """Never more than the allowed share of a zone is restricted at once, by the objects that a replica knows."""
        table = breakers.cluster.table
        zones = {r: (table.nodes[r].metadata.labels or {}).get(ZONE) for r in table.row_of.values()}
        zone = zones[row]
        size = sum(other == zone for other in zones.values())
        most = max(size * self._args["maxOpenPercentage"] // 100, 1 if size > 1 else 0)
        restricted = sorted(
            table.names[r]
            for r in breakers.records
            if zones[r] == zone and (r == row or not table.nodes[r].spec.unschedulable)
        )
        if len(restricted) > most:
            text = f"{process.name} opens the breaker of {table.names[row]}: {restricted} are restricted, of {size}"
            self._fail(f"{text} in zone {zone}")

    def taken(self, process, pod, node, decision):
        """A pod was placed, and Reserve has agreed."""
        if not decision.acts:
            return
        breakers, quarantines = (plugin for plugin in plugins_of(process))
        self._check_breaker(process, breakers.breakers, pod, node, decision)
        self._check_quarantine(process, quarantines.quarantines, pod, decision)

    def _check_breaker(self, process, breakers, pod, node, decision):
        if pod.owner is not None and pod.owner.kind == "DaemonSet":
            return
        row = breakers.cluster.table.row_of[node]
        record = breakers.records.get(row)
        what = f"{process.name} places pod {pod.key} on {node}"
        if record is not None and record.is_open:
            self._fail(f"{what}, whose breaker is open: {record.text()}")
        elif record is not None and record.probe != ("" if pod.virtual else pod.uid):
            # A pod that stands for a Reservation never starts, so it tries nothing.
            self._fail(f"{what}, which is half-open, and not as the probe: {record.text()}")
        by_hand = self._opened_by_hand.get(node)
        if by_hand is None or NODES in decision.listing:
            return
        version, since = by_hand
        closed = self._closed.get((process.name, node), -1.0)
        if version <= decision.versions[NODES] and since > closed:
            age = self._now() - since
            if age < seconds(self._args["coolDown"]):
                self._fail(f"{what}, which a person opened {age:.3f} s ago")

    def _check_quarantine(self, process, quarantines, pod, decision):
        owner = (pod.owner.kind, pod.owner.name) if pod.owner is not None else ("Pod", pod.name)
        workload = (pod.namespace, *_topmost(*owner))
        what = f"{process.name} places pod {pod.key} of {'/'.join(workload)}"
        held = {(each.namespace, each.kind, each.name) for each in quarantines.held}
        if workload in held:
            self._fail(f"{what}, which it holds back")
        if NAMESPACES in decision.listing:
            return
        lasts = seconds(self._quarantine_args["coolDown"])
        for thing in self._namespaces.at(decision.versions[NAMESPACES]):
            name = thing["metadata"]["name"]
            for key, text in _quarantines(thing).items():
                if name != workload[0] or quarantine_in(key, text) != workload[1:]:
                    continue
                by_hand = self._quarantined_by_hand.get((name, key))
                age = self._now() - by_hand[1] if by_hand is not None else 0.0
                # The clocks of others, which say until when they quarantine, are off by less than a long cool-down.
                if lasts > 3600 or (by_hand is not None and age < lasts):
                    self._fail(f"{what}, which is quarantined: {text}")

    # --- at rest -------------------------------------------------------------------------------------------

    def is_quiet(self, leader):
        """Whether the leader has written everything, and the annotations rest since a moment."""
        breakers, quarantines = plugins_of(leader)
        pending = breakers.breakers.unwritten or quarantines.quarantines.unwritten
        return not pending and self._now() - self._changed_at > 1.6

    def is_refused(self, node):
        """The breaker of a node on which pods of several workloads fail is open, half-open, or held."""
        leader = self._simulation.leader()
        if leader is None or self._server.get("Node", node) is None:
            return
        breakers = plugins_of(leader)[0].breakers
        known = record_in(written_on(self._server.get("Node", node))) is not None or node in breakers.held
        row = breakers.cluster.table.row_of.get(node)
        if not known and row not in breakers.records:
            self._fail(f"pods of several workloads fail on {node}, and {leader.name} does not refuse it")

    def must_be_quarantined(self, workload, targets, leader):
        """A workload whose pods have just felled nodes is quarantined, if that lasts and all of it speaks for that."""
        offset = abs(leader.clock.wall() - self._server.clock.wall())
        nodes, lasts = len(self._server.objects("Node")), seconds(self._quarantine_args["coolDown"])
        others = len(self._went_down.keys() - set(targets))
        rate = (others + 1) / (max(nodes - len(targets), others) + 2)
        if len(targets) < 2 or offset > SKEW or lasts < 3600 or rate**2 >= self._quarantine_args["significance"]:
            return
        if tuple(workload) not in self.quarantined():
            self._fail(f"{workload} felled {targets}, of {nodes} nodes, and is not quarantined")

    def quarantined(self):
        """The workloads that are, by what is written."""
        return {
            (thing["metadata"]["name"], *found)
            for thing in self._server.objects("Namespace")
            for key, text in _quarantines(thing).items()
            if (found := quarantine_in(key, text)) is not None
        }

    def wrong_states(self, process, lasting):
        """Where the breakers and quarantines of a replica are not what is written; nodes that stay refused. Texts."""
        breakers, quarantines = (plugin for plugin in plugins_of(process))
        breakers, quarantines = breakers.breakers, quarantines.quarantines
        table = breakers.cluster.table
        for thing in self._server.objects("Node"):
            name, text = thing["metadata"]["name"], written_on(thing)
            row = table.row_of.get(name)
            ours = breakers.records.get(row)
            theirs = record_in(text)
            mine = _told(json.loads(ours.text())) if ours is not None else None
            if mine != (theirs and _told(theirs)):
                yield f"{process.name}: breaker of {name} is {mine}, written is {text or 'nothing'}"
            if theirs and name != lasting and (theirs["state"] == "open" or theirs.get("probe")):
                yield f"{name} is well and is refused: {text}"
        probes = {record.probe for record in breakers.records.values() if record.probe}
        if probes != set(breakers._probes):
            yield f"{process.name}: probes {sorted(breakers._probes)}, by the breakers {sorted(probes)}"
        held = {(each.namespace, each.kind, each.name) for each in quarantines.held}
        if held != self.quarantined():
            yield f"{process.name}: holds back {sorted(held)}, written is {sorted(self.quarantined())}"

    @staticmethod
    def _now():
        return asyncio.get_running_loop().time()


def plugins_of(process):
    """(breakers, quarantines): the plugins of a replica."""
    plugins = process.scheduler.profiles[PROFILE].plugins
    return plugins[BREAKER], plugins[QUARANTINE]


def record_in(text):
    """What an annotation of a node says, None if it says nothing or nonsense."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("state") in ("open", "half-open") else None


def quarantine_in(key, text):
    """(kind, name) that an annotation of a namespace is about, None if it is nonsense."""
    try:
        found = json.loads(text)
        kind, name = found["kind"], found["name"]
    except (ValueError, KeyError):
        return None
    return (kind, name) if key == f"{PREFIX}{kind.lower()}.{name}" else None


def workload_of(thing):
    """(namespace, kind, name) of the workload of a pod; none of ours is a Deployment."""
    meta = thing["metadata"]
    [owner] = meta.get("ownerReferences") or [{"kind": "Pod", "name": meta["name"]}]
    return (meta["namespace"], *_topmost(owner["kind"], owner["name"]))


def _topmost(kind, name):
    return ("CronJob", name.rpartition("-")[0]) if kind == "Job" else (kind, name)


def _told(record):
    return record["state"], record.get("openings", 1), record.get("probe", "")


def _quarantines(thing):
    annotations = (thing or {}).get("metadata", {}).get("annotations") or {}
    return {key: text for key, text in annotations.items() if key.startswith(PREFIX)}


def is_down(thing):
    """Whether a node says that it is not ready."""
    conditions = thing["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] != "True" for each in conditions)


def _boot(thing):
    return (thing["status"].get("nodeInfo") or {}).get("bootID", "")
