"""A Permit plugin that makes pods wait: at nodes whose gate is closed until it opens, elsewhere for a moment.

Who was not let go must not be bound; who was refused is tried again when a gate opens, also one that opened while the
attempt was under way.
"""

import asyncio
from collections import Counter

from koordsched.cluster.events import NODE, ActionType, ClusterEvent
from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from koordsched.queue.hints import HintRegistration, QueueingHint

GATE = "gate"
"""Label of a node."""

LONGEST = 10.0
"""Seconds that a pod may wait."""

AGAIN, INTERVAL = 50, 0.2
"""How often a pod is looked for that does not wait yet, and after how many seconds: a large gang takes some to be
placed. The interval is less than pods may wait."""


class Gatekeeper(Permit):
    """`waiting` is the scheduler's, to be set before the first pod is placed."""

    name = "Gatekeeper"

    def __init__(self, args, handle):
        self.waiting = None
        self.let_go = set()
        """uids of the pods that may be bound."""
        self._asked = Counter()
        """By uid, how often it was asked about a pod."""
        self._rng = handle.rng
        self._table = handle.cluster.table
        self._names = {}
        self._closed = set()
        self._held = {}
        handle.cluster.table.on_node(self._node_changed)
        handle.cluster.table.on_removal(self._node_removed)

    def events_to_register(self):
        """Gates that open; nodes that are gone, so that another one's gate counts."""
        action = ActionType.ADD | ActionType.DELETE | ActionType.UPDATE_NODE_LABEL
        return [HintRegistration(self.name, ClusterEvent(NODE, action), _hint)]

    def permit(self, cycle, pod, row):
        rng, node = self._rng, self._table.names[row]
        self.let_go.discard(pod.uid)
        self._asked[pod.uid] += 1
        timeout = rng.uniform(0.5, LONGEST)
        if node in self._closed:
            if rng.random() < 0.3:
                return Status(Code.UNSCHEDULABLE, (f"the gate of {node} is closed",)), 0.0
            self._held.setdefault(node, {})[pod.uid] = None
            return Status(Code.WAIT), timeout
        if rng.random() < 0.7:
            self.let_go.add(pod.uid)
            return SUCCESS, 0.0
        self._later(rng.choice([0, 0.8 * timeout]) * rng.random(), pod.uid)
        return Status(Code.WAIT), timeout

    def refuse(self, uid):
        """Refuses a pod that waits at a closed gate; False if there is none of that uid."""
        waiting = self.waiting.get(uid) if any(uid in held for held in self._held.values()) else None
        return waiting is not None and waiting.reject(self.name, "refused at the gate")

    def _later(self, delay, uid):
        asyncio.get_running_loop().call_later(delay, self._allow, uid, self._asked[uid])

    def _allow(self, uid, asked, again=AGAIN):
        if self.waiting is None or self._asked[uid] != asked:
            return  # a replay, where the journal says which pods are let go; or the pod was placed anew
        waiting = self.waiting.get(uid)
        if waiting is not None:
            self.let_go.add(uid)
            waiting.allow(self.name)
        elif again:
            # The others of its gang are still being placed, or it has no place any more.
            asyncio.get_running_loop().call_later(INTERVAL, self._allow, uid, asked, again - 1)

    def _node_changed(self, row, node):
        name = self._names[row] = node.metadata.name
        if is_closed(node):
            self._closed.add(name)
        else:
            self._open(name)

    def _node_removed(self, row):
        self._open(self._names.pop(row))

    def _open(self, name):
        """Half of those that wait are let go. The others are not thought of: they depend on being tried again."""
        self._closed.discard(name)
        for uid in self._held.pop(name, ()):
            if self._rng.random() < 0.5:
                self._later(self._rng.uniform(0, 3), uid)


def is_closed(node):
    return node.metadata.labels.get(GATE) == "closed"


def _hint(pod, old, new):
    opens = new is None or (not is_closed(new) and (old is None or is_closed(old)))
    return QueueingHint.QUEUE if opens else QueueingHint.SKIP


class PermitInvariants:
    """Nobody is bound who was not let go."""

    def __init__(self, invariants):
        self._invariants = invariants
        self._gatekeepers = {}

    def watch(self, name, gatekeeper):
        """The plugin of one replica."""
        self._gatekeepers[name] = gatekeeper

    def placed(self, uid, decision, assumed):
        """Nothing: what counts is what is bound."""

    def bound(self, pod, decision):
        meta = pod["metadata"]
        if meta["uid"] not in self._gatekeepers[decision.writer].let_go:
            self._invariants.fail(f"{decision.writer} binds pod {meta['name']} that was not permitted")
