"""Which Reservations a pod may use, and why not the others (reservation spec 3.4)."""

import json
from collections import Counter
from dataclasses import dataclass, field

from tests.plugins.reservation.naive import names
from tests.reference.podrequests import exact_requests
from tests.reference.selectors import node_term_matches, requirement_matches
from tests.reference.status import ERROR, Status, unresolvable
from tests.reference.taints import tolerates

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


class Rejected(Exception):
    """The pod as a whole is rejected; `status` says how."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


@dataclass
class Diagnosis:
    """What was found about the Reservations of one node."""

    owner_matched: int = 0
    name_matched: int = 0
    unmatched: Counter = field(default_factory=Counter)
    """Those that were made for the pod and that it must not use: by `name`, `unschedulable`, `affinity`, `exact`."""
    taints: Counter = field(default_factory=Counter)
    ignored: int = 0

    @property
    def remaining(self):
        return self.owner_matched - self.unmatched.total() - self.taints.total()


class Affinity:
    """The reservation affinity of a pod. Raises Rejected."""

    def __init__(self, text):
        try:
            said = json.loads(text) if text else {}
            said = {} if said is None else said
            self.name = said.get("name") or ""
            self.selector = said.get("reservationSelector") or {}
            self.tolerations = said.get("tolerations") or []
            required = said.get("requiredDuringSchedulingIgnoredDuringExecution")
            self.terms = None if required is None else required.get("reservationSelectorTerms") or []
        except (ValueError, AttributeError) as error:
            raise Rejected(Status(ERROR, (str(error),))) from error
        if any(malformed(term) for term in self.terms or ()):
            raise Rejected(Status(ERROR, ("a term that cannot be parsed",)))
        self.tolerates_unschedulable = any(tolerates(each, UNSCHEDULABLE) for each in self.tolerations)

    def untolerated(self, taints):
        """The first taint that is not tolerated, None if all are."""
        for taint in taints:
            hard = taint.get("effect") in ("NoSchedule", "NoExecute")
            if hard and not any(tolerates(each, taint) for each in self.tolerations):
                return taint
        return None

    def selects(self, info, node, omit_node_labels):
        """Whether selector and terms match the Reservation, with the labels of its node beneath its own."""
        labels = {} if omit_node_labels else node["metadata"].get("labels") or {}
        both = {**labels, **info.labels}
        if any(both.get(key) != value for key, value in self.selector.items()):
            return False
        thing = {"metadata": {"name": info.name, "labels": both}}
        return self.terms is None or any(node_term_matches(term, thing) for term in self.terms)


def malformed(term):
    fields = term.get("matchFields") or []
    wrong = [
        each for each in fields if each.get("operator") not in ("In", "NotIn") or len(each.get("values") or []) != 1
    ]
    return bool(wrong) or any(requirement_matches(each, {}) is None for each in term.get("matchExpressions") or [])


class Wish:
    """What a pod says of Reservations, as far as matching goes. Raises Rejected."""

    def __init__(self, pod):
        self.pod = pod
        annotations = pod["metadata"].get("annotations") or {}
        self.affinity = Affinity(annotations[names.AFFINITY]) if names.AFFINITY in annotations else None
        self.exact = exact_names(annotations.get(names.EXACT))
        self.ignores = (pod["metadata"].get("labels") or {}).get(names.IGNORED) == "true"
        self.requests = exact_requests(pod)

    @property
    def name(self):
        return self.affinity.name if self.affinity else ""

    def may_use(self, info, node, found, omit_node_labels=False, candidate=False):
        """Whether the pod may use the Reservation; the reason against it goes into `found`.

        `candidate`: the pod runs, and the Reservation takes over what it has: then unschedulable does not count.
        """
        if self.name:
            if self.name != info.name:
                found.unmatched["name"] += 1
            elif not self.exactly(info):
                found.unmatched["exact"] += 1
            else:
                found.name_matched += not candidate
                return True
            return False
        if not candidate and info.unschedulable and not (self.affinity and self.affinity.tolerates_unschedulable):
            found.unmatched["unschedulable"] += 1
            return False
        taint = self.affinity.untolerated(info.taints) if self.affinity else None
        if taint is not None:
            found.taints[f"{{{taint.get('key', '')}: {taint.get('value', '')}}}"] += 1
        elif self.affinity and not self.affinity.selects(info, node, omit_node_labels):
            found.unmatched["affinity"] += 1
        elif not self.exactly(info):
            found.unmatched["exact"] += 1
        else:
            return True
        return False

    def exactly(self, info):
        """Whether the Reservation has exactly what the pod requests of the resources that it names."""
        for name in self.exact:
            asked, has = self.requests.get(name), info.allocatable.get(name)
            if asked is None and has is None:
                return True
            if asked != has:
                return False
        return True


def exact_names(text):
    try:
        return (json.loads(text).get("resourceNames") or []) if text else []
    except (ValueError, AttributeError) as error:
        raise Rejected(Status(ERROR, (str(error),))) from error


def check_names(pod):
    """Raises Rejected if the first term of the pod's required node affinity that names nodes leaves none."""
    node_affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    for term in terms:
        named = [
            set(each["values"])
            for each in term.get("matchFields") or []
            if each["key"] == "metadata.name" and each["operator"] == "In"
        ]
        if not named:
            return
        if not set.intersection(*named):
            raise Rejected(unresolvable("pod affinity terms conflict"))
