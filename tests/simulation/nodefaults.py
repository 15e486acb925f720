"""Machines on which pods do not start, pods that bring down theirs, and people who open, close and lift by hand."""

import asyncio
import json
from random import Random

from koordsched.fakecluster.clock import rfc3339
from koordsched.fakecluster.defaults import default_pod_spec
from koordsched.plugins.nodecircuitbreaker.record import ANNOTATION
from koordsched.plugins.shared.workloads import Workload
from koordsched.plugins.workloadquarantine.falls import is_up
from koordsched.plugins.workloadquarantine.record import PREFIX, key_of
from tests.plugins.objects import pod
from tests.simulation.apiserver import call_later
from tests.simulation.configuration import breaker_args
from tests.simulation.invariants import is_finished

START, SANDBOX, CRASH = "CreateContainerError", "no sandbox", "crash"
FELLS = "koordsched.io/fells-node"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OWNERS = (("ReplicaSet", "rs"), ("StatefulSet", "db"), ("Job", "cron-28000000"), ("ReplicaSet", "web"), None)
"""Controllers of pods; None for pods without any."""
DAEMONS = ("DaemonSet", "agent")
CANARY = "canary"
BOMB = Workload("default", "StatefulSet", "bomb")


class NodeFaults:
    """Acts on the objects. `broken`: node name -> how pods fail there."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.server = simulation.server
        self.trace = simulation.trace
        self.args = breaker_args(simulation.plan)
        self.rng = rng = Random(f"{simulation.plan.seed} node faults")
        self.broken = {}
        self.lasting = None
        """A node that is not repaired, None if all are."""
        self._zoned = rng.random() < 0.5
        self._owners = [DAEMONS if rng.random() < 0.1 else rng.choice(OWNERS) for _ in range(6)]
        self._bombs = [rng.random() < 0.3 for _ in range(6)]
        self._fells = True
        self._pinned = 0

    def settle_in(self):
        """What is broken before any scheduler starts."""
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            self._break_node()

    def actions(self):
        """(weight, action) of what happens."""
        return [
            (3, self._break_node), (2, self._repair_node), (8, self._try_a_node), (5, self._give_up_a_pod),
            (0.6, self._close_by_hand), (0.6, self._open_by_hand),
            (0.4, self._write_nonsense), (0.6, self._lift_quarantine), (0.4, self._quarantine_by_hand),
        ]  # fmt: skip

    def tidy_up(self):
        """All nodes but one are repaired, and no pod brings down its node any more."""
        self._fells = False
        names = self._nodes()
        if names and self.rng.random() < 0.5:
            self.lasting = self.rng.choice(names)
            self.broken[self.lasting] = START
            self.trace(f"{self.lasting} stays broken")
        for name in sorted(self.broken.keys() - {self.lasting}):
            self._repair(name)

    # --- what is made ----------------------------------------------------------------------------------

    def equip(self, made, template):
        """Gives a pod the controller of its template."""
        owner = self._owners[template]
        if owner is not None:
            own(made, *owner)
        if self._bombs[template]:
            made["metadata"].setdefault("annotations", {})[FELLS] = "soon"

    def place(self, made):
        """Some worlds have zones that breakers know."""
        if self._zoned:
            made["metadata"]["labels"][ZONE] = made["metadata"]["labels"]["zone"]

    # --- what kubelets say -------------------------------------------------------------------------------

    def start(self, thing):
        """A pod starts, or fails to: changes its status."""
        status, now = thing["status"], rfc3339(self.server.clock.wall())
        fault = self.broken.get(thing["spec"]["nodeName"])
        status.setdefault("startTime", now)
        others = [each for each in status.get("conditions") or () if each["type"] != "PodReadyToStartContainers"]
        ready = {"type": "PodReadyToStartContainers", "status": "False" if fault == SANDBOX else "True"}
        status["conditions"] = [*others, ready]
        last = (status.get("containerStatuses") or [{}])[0].get("state", {})
        one = {"name": "c", "image": "i", "restartCount": 0, "state": {"running": {"startedAt": now}}}
        if fault == START:
            one["state"] = {"waiting": {"reason": START}}
        elif fault == SANDBOX:
            one["state"] = {"waiting": {"reason": "ContainerCreating"}}
        elif fault == CRASH:
            ended = {"exitCode": 1, "reason": "Error", "startedAt": now, "finishedAt": now}
            one["state"] = {"terminated": ended}
        elif "terminated" in last:
            one |= {"lastState": last, "restartCount": 1}
        status |= {"phase": "Pending" if fault in (START, SANDBOX) else "Running", "containerStatuses": [one]}

    def started(self, thing):
        """A pod has started: some bring their node down soon."""
        node = thing["spec"]["nodeName"]
        if self._fells and node not in self.broken and FELLS in (thing["metadata"].get("annotations") or {}):
            call_later(self.rng.uniform(0.5, 3), self._fell_if_there, thing["metadata"]["uid"], node)

    def _fell_if_there(self, uid, node):
        for thing in self.server.objects("Pod"):
            if thing["metadata"]["uid"] == uid and not is_finished(thing) and self._fells:
                self.trace(f"{node} felled by {thing['metadata']['name']}")
                self._fell(node, boots=self.rng.random() < 0.4, back=self.rng.uniform(2, 10))

    def _fell(self, node, boots, back):
        if boots:
            self.server.change("Node", node, lambda thing: _boot(thing, f"{self.rng.getrandbits(32):x}"))
        else:
            self.server.change("Node", node, lambda thing: _say_ready(thing, "False", self._now()))
            call_later(back, self._rise, node)

    def _rise(self, node):
        self.server.change("Node", node, lambda thing: _say_ready(thing, "True", self._now()))

    # --- what happens to nodes ---------------------------------------------------------------------------

    def _break_node(self):
        names = self._nodes()
        if names:
            name = self.rng.choice(names)
            self.broken[name] = self.rng.choice([START, START, SANDBOX, CRASH])
            self.trace(f"{name} is broken: {self.broken[name]}")

    def _repair_node(self):
        if self.broken:
            self._repair(self.rng.choice(sorted(self.broken)))

    def _repair(self, name):
        del self.broken[name]
        self.trace(f"{name} is repaired")
        for thing in self.server.objects("Pod"):
            if thing["spec"].get("nodeName") == name and _fails(thing):
                self.simulation.kubelets.start_later(thing)

    def _try_a_node(self):
        """Pods of several workloads that can be on this node alone."""
        names = self._nodes()
        if names and self.simulation.users.room() > 2:
            self._pin(self.rng.choice(names), self.rng.choice([1, 2, 3]))

    def _pin(self, node, count):
        for _ in range(count):
            self._pinned += 1
            made = _small_pod(f"pinned{self._pinned}", **_only_on(node))
            own(made, "StatefulSet", f"set{self.rng.randrange(12)}")
            if self.simulation.reservations is not None:
                default_pod_spec(made["spec"])
                made["spec"]["enableServiceLinks"] = True
            self.server.insert(made)

    def _give_up_a_pod(self):
        """A pod that fails is deleted, and its controller makes another one."""
        found = [thing for thing in self.server.objects("Pod") if thing["spec"].get("nodeName") and _fails(thing)]
        if found:
            meta = self.rng.choice(found)["metadata"]
            self.server.remove("Pod", meta["name"], meta["namespace"])
            self.simulation.users.create()

    # --- what people write ---------------------------------------------------------------------------------

    def _close_by_hand(self):
        found = [thing for thing in self.server.objects("Node") if written_on(thing)]
        if found:
            self._annotate("Node", self.rng.choice(found)["metadata"]["name"], ANNOTATION, None)

    def _open_by_hand(self):
        names = self._nodes()
        if names:
            self._annotate("Node", self.rng.choice(names), ANNOTATION, '{"state":"open"}')

    def _write_nonsense(self):
        if self.rng.random() < 0.5:
            names = self._nodes()
            if names:
                self._annotate("Node", self.rng.choice(names), ANNOTATION, "nonsense")
        else:
            keys = [PREFIX + "statefulset.db", *(key for _, key in self._quarantines())]
            self._annotate("Namespace", "default", self.rng.choice(keys), self.rng.choice(["{", '{"kind":"a"}']))

    def _quarantine_by_hand(self):
        owner = self.rng.choice([each for each in self._owners if each is not None] or [DAEMONS])
        kind, name = ("CronJob", "cron") if owner[0] == "Job" else owner
        workload = Workload("default", kind, name)
        self._annotate("Namespace", "default", key_of(workload), json.dumps({"kind": kind, "name": name}))

    def _lift_quarantine(self):
        found = self._quarantines()
        if found:
            self._annotate("Namespace", *self.rng.choice(found), None)

    def _quarantines(self):
        """(namespace, annotation) of what is written."""
        return [
            (thing["metadata"]["name"], key)
            for thing in self.server.objects("Namespace")
            for key in sorted(thing["metadata"].get("annotations") or {})
            if key.startswith(PREFIX)
        ]

    def _annotate(self, kind, name, key, text):
        self.trace(f"by hand: {kind} {name} {key}={text}")

        def make(thing):
            annotations = thing["metadata"].setdefault("annotations", {})
            annotations.pop(key, None)
            if text is not None:
                annotations[key] = text

        self.server.change(kind, name, make)

    # --- what is staged when faults have ended ---------------------------------------------------------------

    async def stage(self, checks):
        """Pods of several workloads come to the node that stays broken; pods of one workload fell two nodes; there are
        pods for every node that is well.

        Takes less than the time until the reckoning.
        """
        await asyncio.sleep(5)
        if self.lasting is not None:
            for number in range(self.args["failures"]):
                self._static(Workload("default", "StatefulSet", f"{CANARY}{number}"), f"{CANARY}{number}", self.lasting)
        await asyncio.sleep(15)
        targets = [thing["metadata"]["name"] for thing in self.server.objects("Node") if self._may_fall(thing)][:2]
        for node in targets:
            self._static(BOMB, f"bomb-{node}", node)
        for name in self._nodes():
            if name != self.lasting:
                self._pin(name, 2)
        leader = self.simulation.leader()
        await asyncio.sleep(4)
        # A young node that is down when it is first seen may never have been up.
        seen = [node for node in targets if leader is not None and _is_up_for(leader, node)]
        for node in targets:
            self._fell(node, boots=False, back=10)
        struck = self._with_bombs(seen)
        await asyncio.sleep(3)
        # Pods that were evicted meanwhile, by their quota or for more important ones, speak against nothing.
        struck = [node for node in struck if node in self._with_bombs(targets)]
        if leader is not None and any(_is_up_for(leader, node) for node in struck):
            struck = []  # it hears of that late: the next one may run by then, which speaks for the workload
        known = _known_bombs(leader) if leader is not None else set()
        self.server.insert(own(_small_pod("bomb-next"), *BOMB[1:]))
        await asyncio.sleep(18)
        if self.lasting is not None:
            checks.is_refused(self.lasting)
        # A leader that hears of pods late never sees those that are gone by then.
        known.update(self._with_bombs(struck))
        if leader is not None and self.simulation.leader() is leader:
            checks.must_be_quarantined(BOMB, [node for node in struck if node in known], leader)

    def _with_bombs(self, nodes):
        """Those with a pod of the workload that fells nodes, which has started."""
        there = {
            thing["spec"]["nodeName"]
            for thing in self.server.objects("Pod")
            if thing["metadata"]["name"].startswith("bomb-")
            and not is_finished(thing)
            and thing["status"].get("startTime")
            and thing["spec"].get("nodeName")
        }
        return [node for node in nodes if node in there]

    def _may_fall(self, thing):
        ready = [each["status"] for each in thing["status"].get("conditions") or () if each["type"] == "Ready"]
        name = thing["metadata"]["name"]
        return name != self.lasting and not thing["spec"].get("unschedulable") and ready in ([], ["True"])

    def _static(self, workload, name, node):
        made = own(_small_pod(name, nodeName=node), *workload[1:])
        self.simulation.kubelets.start_later(self.server.insert(made).obj())

    async def quiet(self):
        """Until the breaker of the broken node has just changed and all of it is written; a minute at most."""
        for _ in range(120):
            await asyncio.sleep(0.5)
            leader = self.simulation.leader()
            if leader is not None and self.simulation.breaker_checks.is_quiet(leader):
                return

    def _nodes(self):
        return sorted(thing["metadata"]["name"] for thing in self.server.objects("Node"))

    def _now(self):
        return rfc3339(self.server.clock.wall())


def _is_up_for(process, name):
    """Whether a replica knows the node, as one that is up."""
    table = process.scheduler.cluster.table
    row = table.row_of.get(name)
    return row is not None and is_up(table.nodes[row])


def _known_bombs(process):
    """The nodes on which a replica knows a pod of the workload that fells them."""
    return {pod.node for pod in process.scheduler.cluster.assigned.values() if pod.name.startswith("bomb-")}


def own(made, kind, name):
    """Gives a pod a controller; returns it."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def written_on(thing):
    """What is written on a node about its breaker; "" for nothing."""
    return (thing["metadata"].get("annotations") or {}).get(ANNOTATION, "")


def _small_pod(name, **spec):
    made = pod(name, labels={"app": "staged"}, **spec)
    del made["metadata"]["uid"]
    return made


def _only_on(node):
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _fails(thing):
    state = ((thing["status"].get("containerStatuses") or [{}])[0]).get("state") or {}
    return not is_finished(thing) and ("waiting" in state or "terminated" in state)


def _say_ready(thing, status, now):
    thing["status"]["conditions"] = [{"type": "Ready", "status": status, "lastTransitionTime": now}]


def _boot(thing, boot):
    thing["status"].setdefault("nodeInfo", {})["bootID"] = boot
