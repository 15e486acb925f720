"""Quotas: what must hold whenever a pod is placed or bound, computed from the server's objects alone."""

from collections import Counter

from tests.plugins.elasticquota.objects import API_VERSION, PREFIX
from tests.reference.quotas import Quotas
from tests.simulation.history import History
from tests.simulation.invariants import NODES, PODS, is_finished
from tests.simulation.quotausers import KIND, is_readable
from tests.simulation.resizes import amounts_of

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"


class QuotaInvariants:
    """To be made while the server knows the kind; its changes are heard of also when it has gone and come back."""

    def __init__(self, invariants, server, plan, broken):
        """`broken`: uids of pods that cannot be understood."""
        self._invariants = invariants
        self._server = server
        self._plan = plan
        self._broken = broken
        self._redefined = 0
        """The last version at which a quota was declared anew, or a pod went to another one."""
        self._quotas = History(is_readable)
        registry, resource = server.registry, server.resource(KIND, API_VERSION)
        registry.subscribe_changes(resource, self._quota_changed)
        registry.subscribe_changes(server.resource("Pod"), self._pod_changed)

    def now(self, placed=()):
        """The quotas as they are, by the server's objects. `placed`: uids of pods that count as if they had one."""
        pods = self._counting(self._invariants.pods.newest())
        assigned = {*placed, *(thing["metadata"]["uid"] for thing in pods if thing["spec"].get("nodeName"))}
        return self._computed(self._quotas.newest(), self._invariants.nodes.newest(), pods, assigned)

    def placed(self, uid, decision, assumed):
        """A pod was placed: by all that the replica knew, its quota had room. `assumed`: uids that it is binding."""
        if not decision.acts or decision.listing & {NODES, PODS, QUOTAS}:
            return  # nobody acts on it; or half of a list has been handled: a state that never was
        bound = self._invariants.bound
        pods = self._counting(self._invariants.pods.at(decision.versions[PODS]))
        assigned = {
            other
            for other, node in ((thing["metadata"]["uid"], thing["spec"].get("nodeName")) for thing in pods)
            if node or other in assumed or (other in bound and _writer(bound[other]) == decision.writer)
        }
        versions, read = decision.versions, decision.read
        nodes = self._invariants.nodes.at(versions[NODES], read[NODES])
        quotas = self._computed(self._quotas.at(versions[QUOTAS], read[QUOTAS]), nodes, pods, assigned - {uid})
        for thing in pods:
            if thing["metadata"]["uid"] == uid and (refusal := quotas.refusal(thing)) is not None:
                self._invariants.fail(f"{decision.writer} places pod {thing['metadata']['name']}, but {refusal}")

    def bound(self, pod, decision):
        """A pod was bound: its quota uses no more than its max, by the server's own pods."""
        if self._redefined > min(decision.versions[QUOTAS], decision.versions[PODS]):
            return  # what is over now was not when it was decided
        bound = self._invariants.bound
        pods = self._counting(self._invariants.pods.newest())
        assigned = {
            thing["metadata"]["uid"]
            for thing in pods
            if (known := bound.get(thing["metadata"]["uid"])) is not None
            and (_writer(known) or known.version <= decision.versions[PODS])
        }
        quotas = self._computed(self._quotas.newest(), (), pods, assigned)
        name = quotas.of(pod)
        # By runtime there is no limit where there is none: in built-in quotas, and in what the parent does not name.
        limited, most = quotas.limit(name), quotas.numbers.declared[name].max
        asked = quotas.counted(pod)
        # Where parents are not asked, pods of its children may take a quota over its max.
        used = quotas.used(name) if self._plan.checks_parents else self._used_by_its_own(quotas, name, pods, assigned)
        over = {key: (used[key], most[key]) for key in asked if key in limited and used[key] > most[key]}
        if over:
            self._invariants.fail(f"quota {name} uses more than its max with pod {pod['metadata']['name']}: {over}")

    @staticmethod
    def _used_by_its_own(quotas, name, pods, assigned):
        own = (thing for thing in pods if thing["metadata"]["uid"] in assigned and quotas.of(thing) == name)
        used = Counter()
        for thing in own:
            used.update(quotas.counted(thing))
        return used

    def _computed(self, objects, nodes, pods, assigned):
        plan = self._plan
        return Quotas(
            objects,
            nodes,
            pods,
            assigned,
            by_runtime=plan.by_runtime,
            checks_parents=plan.checks_parents,
            default_max=dict(plan.default_max),
        )

    def _counting(self, pods):
        return [thing for thing in pods if not is_finished(thing) and thing["metadata"]["uid"] not in self._broken]

    # --- changes -------------------------------------------------------------------------------------------

    def _quota_changed(self, change):
        self._quotas.note(change)
        self._invariants.tell(change, f" {change.new['spec']} {_inputs(change.new)}")
        self._invariants.one_acts(f"a write to quota {change.record.name}")
        if change.type != "MODIFIED" or _inputs(change.new) != _inputs(change.old):
            self._redefined = change.record.rv

    def _pod_changed(self, change):
        if change.type == "MODIFIED" and (_marks(change.new), amounts_of(change.new)) != (
            _marks(change.old),
            amounts_of(change.old),
        ):
            self._redefined = change.record.rv


def _inputs(thing):
    """What of an object the numbers depend on."""
    meta = thing["metadata"]
    annotations = meta.get("annotations") or {}
    return (
        thing["spec"],
        {key: value for key, value in (meta.get("labels") or {}).items() if key.startswith(PREFIX)},
        [annotations.get(PREFIX + key) for key in ("shared-weight", "namespaces")],
    )


def _writer(bound):
    return bound.decision.writer if bound.decision is not None else ""


def _marks(pod):
    return {key: value for key, value in (pod["metadata"].get("labels") or {}).items() if key.startswith(PREFIX)}
