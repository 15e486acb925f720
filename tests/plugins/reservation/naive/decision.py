"""One pod's attempt: which Reservations it may use on which nodes, and how nodes read for it (reservation spec 3.4)."""

from dataclasses import dataclass, field

from tests.plugins.reservation.naive import names
from tests.plugins.reservation.naive.info import Info, in_units
from tests.plugins.reservation.naive.matching import Diagnosis, Rejected, Wish, check_names
from tests.plugins.reservation.naive.preallocation import candidates_of
from tests.reference.evaluation import verdict
from tests.reference.podrequests import exact_requests
from tests.reference.selectors import required_node_affinity_matches
from tests.reference.status import SKIP, Status, unresolvable

BESIDE = ("NodePorts", "VolumeRestrictions", "NodeVolumeLimits", "PodTopologySpread", "InterPodAffinity")
"""The filters to which it matters which pods are on nodes, but for what they request."""


@dataclass
class OnNode:
    """What concerns the pod on one node; `candidates`: running pods whose room a Reservation may take over."""

    matched: list = field(default_factory=list)
    unmatched: list = field(default_factory=list)
    candidates: list = field(default_factory=list)
    chosen: list = field(default_factory=list)
    """Candidates that Filter settled on, or among which one is nominated."""


class Decision:
    """A pod to place, or a reserve pod. Raises Rejected."""

    def __init__(self, cluster, pod, settings, profile=None):
        self.cluster, self.pod, self.settings = cluster, pod, settings
        annotations = pod["metadata"].get("annotations") or {}
        self.is_reserve = annotations.get(names.RESERVE_POD) == "true"
        self.requests = exact_requests(pod)
        self.states, self.diagnoses = {}, {}
        self.info = self.wish = None
        self.profile, self.refused_by = profile, {}
        """`refused_by`: node -> (plugin, Status), where candidates that stay are in the way."""
        if self.is_reserve:
            self.info = Info(cluster.reservations[annotations[names.RESERVATION_NAME]])
            self.required = (pod["metadata"].get("labels") or {}).get(names.REQUIRED) == "true"
            self.look_around()
        else:
            self.wish = Wish(pod)
            self.match()
        matched = [info.name for state in self.states.values() for info in state.matched]
        candidates = [each for state in self.states.values() for each in state.candidates]
        self.base = cluster.view()
        self.view = cluster.view(matched, candidates)
        self.view.decision = self

    @property
    def has_affinity(self):
        return self.wish is not None and self.wish.affinity is not None

    @property
    def wanted(self):
        """What the pod requests, in units of the node; zeros stay."""
        return in_units(self.requests)

    def nodes(self):
        """Those that the pod's own affinity leaves. Upstream also counts Reservations where only the name matches."""
        check_names(self.pod)
        for name, node in self.cluster.nodes.items():
            if required_node_affinity_matches(self.pod, node):
                yield name, node

    def match(self):
        named = [info.node for info in self.cluster.infos() if info.name == self.wish.name]
        for name, node in self.nodes():
            if named and name not in named:  # upstream counts nothing there; nor where one ended, which this model does
                continue
            state, found = OnNode(), Diagnosis()
            for info in self.cluster.infos(name):
                if info.matchable and self.matches(info, node, found):
                    state.matched.append(info)
                elif info.owners:
                    state.unmatched.append(info)
            if found.ignored or found.owner_matched:
                self.diagnoses[name] = found
            if state.matched or (state.unmatched and not self.has_affinity):
                self.states[name] = state

    def matches(self, info, node, found):
        if self.wish.ignores:
            found.ignored += 1
            return True
        if not info.owns(self.pod):
            return False
        found.owner_matched += 1
        return self.wish.may_use(info, node, found, self.settings.omit_node_labels)

    def look_around(self):
        """For a reserve pod: Reservations with owners, and pods whose room it may take over."""
        by_node = {}
        if self.pre_allocates:
            if self.info.policy != names.RESTRICTED:
                text = "node(s) reservation pre allocation is unsupported with current attributes"
                raise Rejected(unresolvable(text))
            if self.info.broken:
                raise Rejected(unresolvable("<owners that cannot be parsed>"))
            if self.mode == "Cluster" and not self.settings.cluster_mode:
                raise Rejected(unresolvable("reservation requires cluster mode pre-allocation which is disabled"))
            by_node = candidates_of(self.cluster, self.info, self.mode, self.settings)
        for name, node in self.nodes():
            state, found = OnNode(), Diagnosis()
            state.unmatched = [info for info in self.cluster.infos(name) if info.owners]
            for pod in by_node.get(name, ()):
                found.owner_matched += 1
                try:
                    if Wish(pod).may_use(self.info, node, found, self.settings.omit_node_labels, candidate=True):
                        state.candidates.append(pod)
                except Rejected:
                    continue
            if found.owner_matched:
                self.diagnoses[name] = found
            if state.candidates or (state.unmatched and not self.required):
                self.states[name] = state

    @property
    def pre_allocates(self):
        return bool(self.info and self.info.spec.get("preAllocation"))

    @property
    def mode(self):
        return (self.info.spec.get("preAllocationPolicy") or {}).get("mode") or "Default"

    @property
    def multiple(self):
        return bool((self.info.spec.get("preAllocationPolicy") or {}).get("enableMultiple"))

    def state(self, node):
        return self.states.get(node) or OnNode()

    @property
    def may_take(self):
        """Whether there is any pod, wherever, whose room it may take over."""
        return any(state.candidates for state in self.states.values())

    def beside(self, node, taken):
        """None, or the Status of the first filter that refuses the node beside the candidates that are not taken.

        Without a profile that is not asked.
        """
        if self.profile is None:
            return None
        view = self.cluster.view((), taken)
        view.decision = self
        filters = []
        for name in self.profile.points["preFilter"]:
            answer = self.profile.plugins[name].pre_filter(self.pod, view) if name in BESIDE else SKIP
            if isinstance(answer, Status):
                return self.refused(node, name, answer)
            if answer is not SKIP:
                filters.append((name, self.profile.plugins[name]))
        filters.sort(key=lambda each: self.profile.points["filter"].index(each[0]))
        found = verdict(self.pod, node, view, filters, ())
        return self.refused(node, *found) if found is not None else None

    def refused(self, node, name, status):
        """The status, as that of the filter; of host ports it is this plugin that speaks."""
        self.refused_by[node["metadata"]["name"]] = (names.PLUGIN if name == "NodePorts" else name, status)
        return status

    def in_use(self, node, resource):
        """What is in use on a node: each Reservation counts what it holds, or what its owners use if that is more."""
        return self.base.requested(self.cluster.nodes[node], resource)
