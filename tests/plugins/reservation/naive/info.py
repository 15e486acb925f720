"""What a Reservation says, and what its owners use of it (reservation spec 3.1 and 3.2)."""

import json

from tests.plugins.reservation.naive import names
from tests.reference.podrequests import DEFAULTS, exact_requests, nonzero_requests
from tests.reference.quantity import in_units_of, parse
from tests.reference.selectors import label_selector_matches

HIGHEST = 2**31 - 1


def quantities(amounts):
    """{resource: Fraction} of quantities as text."""
    return {name: parse(quantity) for name, quantity in (amounts or {}).items()}


def in_units(amounts):
    """In units of the node: milli for cpu, whole ones for others."""
    return {name: in_units_of(name, amount) for name, amount in amounts.items()}


def text_of(amount):
    """A quantity that reads as this exact amount."""
    return str(amount.numerator) if amount.denominator == 1 else f"{int(amount * 1000)}m"


class Info:
    """A Reservation (JSON) and its owners (pods on its node). Amounts are exact. `spent`: whether it was consumed."""

    def __init__(self, thing, owners=(), spent=False):
        self.thing, self.owners = thing, list(owners)
        self.spec, self.status = thing["spec"], thing.get("status") or {}
        metadata = thing["metadata"]
        self.name, self.uid = metadata["name"], metadata["uid"]
        self.labels, self.annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        self.phase = self.status.get("phase") or "Pending"
        self.node = self.status.get("nodeName") or ""
        self.available = self.phase == "Available" and bool(self.node)
        self.policy = self.spec.get("allocatePolicy") or ""
        self.once = self.spec.get("allocateOnce") is not False
        self.spent = spent or bool(self.once and self.owners)
        self.terminating = bool(metadata.get("deletionTimestamp"))
        self.unschedulable = bool(self.spec.get("unschedulable")) or self.terminating
        self.taints = self.spec.get("taints") or []
        self.created = metadata.get("creationTimestamp") or ""
        self.acts = bool(thing.get("acts"))
        """Whether it is a pod that acts as a Reservation."""
        self.broken = False
        self.allocatable = quantities(self.status.get("allocatable")) if self.available else self.template_requests()
        self.names = self.restricted_names()
        self.inner = self.inner_reserved()
        self.selectors = [owner.get("labelSelector") for owner in self.spec.get("owners") or []]
        self.broken |= not all(each is None or well_formed(each) for each in self.selectors)
        self.allocated = {}
        for owner in self.owners:
            for name, amount in exact_requests(owner).items():
                if name in self.names:
                    self.allocated[name] = self.allocated.get(name, 0) + amount

    def template_requests(self):
        return exact_requests({"spec": (self.spec.get("template") or {}).get("spec") or {}})

    def restricted_names(self):
        """The resources whose use by owners is counted, in alphabetical order."""
        if self.policy != names.RESTRICTED:
            return sorted(self.allocatable)
        listed = ()
        if self.annotations.get(names.OPTIONS):
            try:
                listed = json.loads(self.annotations[names.OPTIONS]).get("resources") or ()
            except (ValueError, AttributeError):
                self.broken = True
        return sorted(set(listed) & set(self.allocatable)) or sorted(self.allocatable)

    def inner_reserved(self):
        """What is never handed to owners."""
        if not self.annotations.get(names.INNER):
            return {}
        try:
            said = json.loads(self.annotations[names.INNER])
        except ValueError:
            return {}
        inner = quantities(said.get("resources"))
        if said.get("reservedCPUs"):
            inner["cpu"] = parse(number_of_cpus(said["reservedCPUs"]))
        return inner

    @property
    def valid(self):
        """Whether it has what it must have; what has not is left alone."""
        return bool(self.spec.get("template") and self.spec.get("owners")) and any(
            self.spec.get(key) is not None for key in ("ttl", "expires")
        )

    @property
    def matchable(self):
        return self.available and not self.broken and not self.spent

    @property
    def order(self):
        """The order label, None for no order."""
        try:
            return int(self.labels.get(names.ORDER) or "0") or None
        except ValueError:
            return None

    def left(self):
        """What owners may still get: {resource: units of the node}."""
        return in_units(
            {
                name: max(0, amount - self.allocated.get(name, 0) - self.inner.get(name, 0))
                for name, amount in self.allocatable.items()
            }
        )

    def counted(self, name):
        """What the reserve pod counts of cpu or memory where requests have defaults for scores."""
        full = nonzero_requests(self.reserve_pod(self.requested_otherwise())).get(name, 0)
        if not self.owners:
            return full
        used = self.allocated.get(name)
        return full - min(full, in_units_of(name, DEFAULTS[name] if used is None else used))

    def requested_otherwise(self):
        """What it has if that is not what the template requests, None if it is."""
        template = self.template_requests()
        return None if {**template, **self.allocatable} == template else {**template, **self.allocatable}

    def held(self):
        """What the reserve pod still counts on the node: no owner's share counts twice, and none counts below zero."""
        return {
            name: amount - min(amount, self.allocated.get(name, 0))
            for name, amount in self.allocatable.items()
            if name != "pods"
        }

    def owns(self, pod):
        """Whether the pod is one of those that the Reservation was made for."""
        if self.broken:
            return False
        return any(owner_matches(owner, pod) for owner in self.spec.get("owners") or [])

    def reserve_pod(self, requests=None):
        """The pod that stands for it. `requests`: what it counts, instead of what the template requests."""
        template = self.spec.get("template") or {}
        metadata, spec = dict(template.get("metadata") or {}), json.loads(json.dumps(template.get("spec") or {}))
        annotations = {**(metadata.get("annotations") or {}), **self.annotations}
        annotations |= {names.RESERVE_POD: "true", names.RESERVATION_NAME: self.name}
        if self.spec.get("preAllocation"):
            annotations[names.PRE_ALLOCATION] = "true"
        if spec.get("nodeName"):
            annotations[names.RESERVATION_NODE] = spec.pop("nodeName")
        if self.node:
            spec["nodeName"] = self.node
        if spec.get("priority") is None:
            spec["priority"] = self.priority()
        spec.setdefault("schedulerName", "default-scheduler")
        if requests is not None:
            spec.pop("overhead", None)
            spec.pop("resources", None)
            for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
                container.pop("resources", None)
            listed = {name: text_of(amount) for name, amount in requests.items()}
            filled = {"name": "__internal_fake_container__", "resources": {"requests": listed, "limits": listed}}
            spec["containers"] = [*spec.get("containers", []), filled]
        return {
            "kind": "Pod",
            "metadata": {
                "name": self.uid,
                "uid": self.uid,
                "namespace": metadata.get("namespace") or "default",
                "labels": {**(metadata.get("labels") or {}), **self.labels},
                "annotations": annotations,
            },
            "spec": spec,
        }

    def priority(self):
        try:
            return int(self.labels.get(names.PRIORITY, ""))
        except ValueError:
            return HIGHEST


def owner_matches(owner, pod):
    """One entry of the owners: its parts are ANDed, those that are not there are true."""
    metadata = pod["metadata"]
    wanted = owner.get("object")
    if wanted is not None:
        mine = {
            "uid": metadata.get("uid"),
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace", "default"),
            "apiVersion": "v1",
        }
        if any(wanted.get(key) and wanted[key] != value for key, value in mine.items()):
            return False
    wanted = owner.get("controller")
    if wanted is not None:
        if wanted.get("namespace") and wanted["namespace"] != metadata.get("namespace", "default"):
            return False
        if not any(reference_matches(wanted, each) for each in metadata.get("ownerReferences") or []):
            return False
    selector = owner.get("labelSelector")
    return selector is None or bool(label_selector_matches(selector, metadata.get("labels") or {}))


def reference_matches(wanted, reference):
    if wanted.get("controller") is not None and reference.get("controller") is not wanted["controller"]:
        return False
    keys = ("uid", "name", "kind", "apiVersion")
    return all(not wanted.get(key) or wanted[key] == reference.get(key) for key in keys)


def well_formed(selector):
    """Whether a label selector can be parsed."""
    for each in selector.get("matchExpressions") or []:
        operator, values = each.get("operator"), each.get("values") or []
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist") or bool(values) != (operator in ("In", "NotIn")):
            return False
    return True


def number_of_cpus(text):
    """Of a CPU set such as `0-3,7`."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return len(found)
