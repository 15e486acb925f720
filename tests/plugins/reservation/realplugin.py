"""The plugin itself listens to a story, on the offline scheduler, and is compared with the model at each decision."""

import asyncio
import itertools
import json
import math
from functools import lru_cache
from random import Random

from koordsched import config
from koordsched.config.feature_gates import FeatureGates
from koordsched.engine.transaction import Transaction
from koordsched.framework.status import PASS
from koordsched.plugins import CATALOG, IN_TREE, KINDS
from koordsched.plugins.reservation.controller.places import Places
from koordsched.plugins.reservation.controller.reconciler import Reconciler
from koordsched.plugins.reservation.kinds import RESERVATIONS
from koordsched.scheduling.offline import OfflineScheduler
from tests.plugins.reservation.naive import names
from tests.plugins.reservation.playing import by_value
from tests.plugins.reservation.randomstates import API_VERSION, PROFILE
from tests.reference.status import ERROR

CONFLICT = ("pod affinity terms conflict",)
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/card")


@lru_cache(maxsize=64)
def resolved(text):
    """The configuration as the scheduler reads it."""
    gates = FeatureGates.parse(())
    return config.resolve(config.load(text, catalog=CATALOG, gates=gates), catalog=CATALOG, gates=gates)


def scheduler(profile, clock):
    """An offline scheduler with one profile (JSON) and no objects."""
    document = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    return OfflineScheduler(resolved(json.dumps(document)), IN_TREE, (), clock=clock, rng=Random(1))


class Comparison:
    """Listens to a story. `differences`: what the plugin says otherwise than the model.

    The scheduler hears of its own bindings some steps later; what it decides before is as if it had been at once.
    """

    def __init__(self, teller):
        self.teller, self.cluster = teller, teller.cluster
        self.offline = scheduler(teller.configuration, self)
        self.controller = Controller(self)
        self.versions = itertools.count(1)
        self.at, self.differences = 0, []
        self.given = {}
        self.unheard = {}
        """By uid, pods that were bound, and at which step that is heard."""
        self.rng = Random(f"hearing of {teller.story.args}")
        self.compared = dict.fromkeys(
            ("verdicts", "messages", "scores", "nodes", "uses", "rows", "status", "devices"), 0
        )

    def wall(self):
        return self.cluster.now

    def monotonic(self):
        return self.cluster.now

    # What happens

    def put(self, thing):
        uid = thing["metadata"]["uid"]
        if thing["kind"] == "Pod" and self.offline.cluster.is_assumed(uid):
            later = (
                0 if self.teller.story.draw.taking else self.rng.choice([0, 0, 1, 3])
            )  # only pods that run are taken
            self.unheard[uid] = (self.at + later, thing)
        else:
            self.hear(thing)

    def hear(self, thing):
        """An object appeared or changed."""
        self.offline.add(self.next_version(thing))

    def next_version(self, thing):
        return {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(next(self.versions))}}

    def remove(self, thing):
        """An object is gone."""
        metadata, cluster = thing["metadata"], self.offline.cluster
        if thing["kind"] == "Pod":
            if metadata["uid"] in self.unheard:
                self.hear(self.unheard.pop(metadata["uid"])[1])
            self.offline.pending.pop(f"{metadata['namespace']}/{metadata['name']}", None)
            cluster.remove_pod(metadata["uid"])
            cluster.pod_gone(metadata["uid"])
        else:
            kind = KINDS[thing["apiVersion"], thing["kind"]]
            cluster.objects.of(kind).delete("", metadata["name"])

    def decided(self, thing, decided):
        where = f"step {self.at}, {thing['metadata']['name']}"
        attempt = self.offline.attempt(self.key(thing))
        attempt.filter(all_nodes=True)
        outcome = decided.outcome
        if not self.same_verdicts(where, attempt, decided):
            return self.any_of(outcome)
        if not outcome.feasible:
            if not decided.error and not conflicts(outcome):
                message = attempt.message(attempt.post_filter())
                self.same("messages", where, message, decided.message)
            return None
        self.compare_scores(where, attempt, outcome)
        node = self.any_of(outcome)
        self.place(where, thing, decided, attempt, node)
        return node

    def controlled(self, before, after):
        """What the controller writes about a Reservation; it has heard of all pods."""
        self.hear_all(math.inf)
        ours = self.controller.look_at(before)
        self.same("status", f"step {self.at}, {before['metadata']['name']}", ours, by_value(after.get("status") or {}))

    def hear_all(self, until):
        for uid, (at, thing) in list(self.unheard.items()):
            if at <= until:
                del self.unheard[uid]
                self.hear(thing)

    def ended(self):
        """A step is over: what is in use on every node."""
        self.hear_all(self.at)
        self.compare_rows(f"step {self.at}", self.offline.cluster.table)
        self.at += 1

    def restart(self):
        """A scheduler that finds all as it is now, pods before the Reservations that they use."""
        things = [*self.cluster.others, *self.cluster.pods.values(), *self.cluster.reservations.values()]
        fresh = scheduler(self.teller.configuration, self)
        for thing in things:
            fresh.add(self.next_version(thing))
        self.compare_rows("after a restart", fresh.cluster.table)

    def compare_rows(self, where, table):
        view = self.cluster.view()
        for name, node in self.cluster.nodes.items():
            ours, theirs = in_use(table, table.row_of[name]), {each: view.requested(node, each) for each in RESOURCES}
            theirs["pods"] = len(view.pods_on(node))
            theirs |= {f"{each}, counted": view.requested_nonzero(node, each) for each in ("cpu", "memory")}
            self.same("rows", f"{where}, node {name}", ours, theirs)

    # How it is compared

    def any_of(self, outcome):
        return self.teller.story.rng.choice(outcome.any_of) if outcome.feasible else None

    @staticmethod
    def key(thing):
        if thing["kind"] == "Pod":
            return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
        template = thing["spec"]["template"]["metadata"]
        return f"{template.get('namespace', 'default')}/{thing['metadata']['uid']}"

    def same(self, what, where, ours, theirs):
        self.compared[what] += 1
        if ours != theirs:
            self.differences.append(f"{what}, {where}:\n  plugin {ours}\n  model  {theirs}")
        return ours == theirs

    def same_verdicts(self, where, attempt, decided):
        """The same nodes, plugins and reasons; upstream has no order of Reservations, nor of the reasons about them."""
        outcome = decided.outcome
        early = attempt.verdicts.pre_filtered.status
        if outcome.rejected is not None or early.code.rejects or early.code.text == ERROR:
            plugin, status = outcome.rejected or ("", None)
            ours, theirs = (early.plugin, early.code.text, early.reasons), (plugin, *status) if status else ()
            if status and status.code == ERROR:  # the decoders' words differ
                ours, theirs = ours[:2], theirs[:2]
            elif status and conflicts(outcome):
                ours, theirs = ours[1:], theirs[1:]
            return self.same("verdicts", where, ours, theirs)
        reasons, ours = self.offline.profiles[attempt.profile.name].handle.reasons, {}
        for name, row in self.offline.cluster.table.row_of.items():
            code = int(attempt.verdicts.codes[row])
            if code != PASS:
                reason = reasons[code]
                ours[name] = (reason.plugin, reason.code.text, sorted(reason.texts))
        theirs = {name: (plugin, code, sorted(texts)) for name, (plugin, (code, texts)) in outcome.filtered.items()}
        return self.same("verdicts", where, ours, theirs)

    def compare_scores(self, where, attempt, outcome):
        names_of = self.offline.cluster.table.names
        best = sorted(names_of[row] for row in attempt.best_rows().tolist())
        self.same("nodes", where, best, sorted(outcome.any_of))
        if outcome.scores is None:
            return
        table, ours = self.offline.cluster.table, {}
        rows = [table.names[row] for row in attempt.verdicts.rows.tolist()]
        for found in attempt.score().by_plugin(attempt.profile.chains):
            weighted = (found.normalized * found.weight).tolist()
            ours[found.plugin] = dict(zip(rows, weighted, strict=True))
        theirs = {plugin: {node: n for node, (_, _, n) in each.items()} for plugin, each in outcome.scores.items()}
        for plugin in ours.keys() | theirs.keys():
            nothing = dict.fromkeys(rows, 0)
            self.same("scores", f"{where} by {plugin}", ours.get(plugin, nothing), theirs.get(plugin, nothing))

    def place(self, where, thing, decided, attempt, node):
        """Reserve; what the pod uses, or which pods a Reservation takes over."""
        model, row = self.teller.model, self.offline.cluster.table.row_of[node]
        self.place_in_vain(where, attempt, row)
        status, _ = self.offline.take(attempt, row)
        used = model.nominated(decided, node)
        if not status.ok:
            self.same("uses", where, (status.plugin, status.code.text, status.reasons), used)
        elif thing["kind"] == "Pod":
            self.same("uses", where, self.used(attempt.pod), used)
        elif decided.decision.pre_allocates:
            taken = self.owners(thing["metadata"]["name"])
            expected = {pod["metadata"]["uid"] for pod in used}
            self.same("uses", where, taken, expected)

    def place_in_vain(self, where, attempt, row):
        """What Reserve does can be taken back."""
        table = self.offline.cluster.table
        before = in_use(table, row)
        with Transaction(self.offline.cluster, self.offline.nominator) as transaction:
            transaction.place(attempt.cycle, attempt.profile, row)
        self.same("rows", f"{where}, taken back", in_use(table, row), before)

    def used(self, pod):
        """The name of the Reservation that an assumed pod uses."""
        found = self.fact.of(pod)
        return found.name if found else None

    @property
    def fact(self):
        return self.offline.profiles[PROFILE].plugins[names.PLUGIN].cache.allocated

    def owners(self, name):
        """The uids of the pods that use a Reservation."""
        uid = self.cluster.reservations[name]["metadata"]["uid"]
        pods = self.offline.cluster.assigned.values()
        return {pod.uid for pod in pods if (found := self.fact.of(pod)) and found.uid == uid}


class Controller:
    """One look of the real controller at a time. It writes into `written`."""

    features = ()

    def __init__(self, comparison):
        plugin = comparison.offline.profiles[PROFILE].plugins[names.PLUGIN]
        self.cluster, self.clock, self.writes, self.reporter = comparison.offline.cluster, comparison, self, self
        self.places = Places(self.cluster.table, lambda uid: None)
        self.reconciler = Reconciler(plugin.cache, self.places, self, lambda uid, when: None)
        self.written = None

    def look_at(self, thing):
        """The status of a Reservation (JSON) afterwards, by value."""
        self.written = thing.get("status") or {}
        self.places.set(self.cluster.objects.of(RESERVATIONS).get("", thing["metadata"]["name"]))
        asyncio.run(self.reconciler.look(thing["metadata"]["uid"]))
        return by_value(self.written)

    async def merge(self, kind, metadata, changes, subresource=""):
        """A merge patch of the status."""
        self.written = {**self.written, **changes["status"]}
        amounts = self.written.get("allocated") or {}
        self.written["allocated"] = {name: amount for name, amount in amounts.items() if amount is not None}

    def event(self, *args, **options):
        """Events are not looked at."""


def in_use(table, row):
    """What is in use on a row, in units of the node table."""
    found = {}
    for resource in RESOURCES:
        index = table.resource_names.intern(resource)
        table.ensure_resource(index)
        found[resource] = int(table.requested[index].data[row])
    found["pods"] = int(table.pods_count.data[row])
    for at, each in enumerate(("cpu", "memory")):
        found[f"{each}, counted"] = int(table.requested_nonzero[at].data[row])
    return found


def conflicts(outcome):
    """Whether the pod is rejected by what NodeAffinity says as well, before any Reservation is looked at."""
    return outcome.rejected is not None and outcome.rejected[1].reasons == CONFLICT
