"""Elastic quotas as elasticquota spec 3.2 to 3.11 speaks of them: JSON objects in, verdicts out, all from scratch."""

import json

from tests.plugins.elasticquota.reference import DEFAULT, ROOT, SYSTEM, Counted, Declared, Reference
from tests.reference.podrequests import spec_requests
from tests.reference.quantity import parse
from tests.reference.volumes import annotations_of
from tests.reference.world import labels_of, namespace_of

PREFIX = "quota.scheduling.koordinator.sh/"
UNBOUNDED = {"cpu": "1844674407370955161", "memory": "1844674407370955161"}


class Quotas:
    """All quotas of a cluster, given as `objects` (ElasticQuota), with `nodes` and `pods`.

    `assigned`: uids of the pods that have a node or are about to get it. `by_runtime`, `checks_parents` and
    `default_max` are the plugin's arguments. Amounts are billionths of a CPU, a byte, a device.
    """

    def __init__(self, objects, nodes, pods, assigned, *, by_runtime=True, checks_parents=False, default_max=None):
        self.by_runtime = by_runtime
        self.checks_parents = checks_parents
        self.objects = {}
        # Of several objects of one name the oldest counts.
        for thing in sorted(objects, key=_age, reverse=True):
            self.objects[thing["metadata"]["name"]] = thing
        self.pods = list(pods)
        self.assigned = assigned
        counted = [Counted(self.of(p), requested(p), p["metadata"]["uid"] in assigned, is_fixed(p)) for p in self.pods]
        declared = [_declared(thing) for name, thing in self.objects.items() if name != ROOT]
        if default_max and DEFAULT not in self.objects:
            declared.append(Declared(DEFAULT, _amounts(default_max)))
        self.numbers = Reference(
            [_amounts(node.get("status", {}).get("allocatable")) for node in nodes],
            declared,
            counted,
            built_in_max=_amounts(UNBOUNDED),
        )

    # --- who belongs where (3.2) ---------------------------------------------------------------------

    def of(self, pod):
        """The name of the pod's quota."""
        named = labels_of(pod).get(PREFIX + "name")
        if named:
            known = named in self.objects or named in (DEFAULT, SYSTEM)
            return named if known and named != ROOT else DEFAULT
        namespace = namespace_of(pod)
        home = self.objects.get(namespace)
        if home is not None and namespace_of(home) == namespace and namespace != ROOT:
            return namespace
        return min((name for name, thing in self.objects.items() if namespace in _namespaces(thing)), default=DEFAULT)

    # --- who may use what (3.9) ------------------------------------------------------------------------

    def limit(self, name):
        """What a quota may use: {} for no limit."""
        most = self.numbers.declared[name].max
        if not self.by_runtime:
            return most
        if name in (DEFAULT, SYSTEM):
            return {}
        return self.runtime(name)

    def runtime(self, name):
        """The runtime of a quota that has one, also in resources that only those beside it name."""
        return {key: amount * _step(key) for key, amount in self.numbers.runtime[name].items()}

    def used(self, name):
        return self.numbers.numbers[name]["used"]

    def counted(self, pod):
        """What the pod requests of the resources that its quota names."""
        most = self.numbers.declared[self.of(pod)].max
        return {key: amount for key, amount in requested(pod).items() if key in most}

    def refusal(self, pod):
        """Why the pod, which has no node, may not have one; None if it may."""
        name, asked = self.of(pod), self.counted(pod)
        over = _exceeded(self.used(name), asked, self.limit(name))
        if over:
            return f"quota {name} has no room: {over}"
        if is_fixed(pod):
            least = self.numbers.declared[name].min
            over = _exceeded(self.numbers.numbers[name]["non_preemptible_used"], asked, least)
            if over:
                return f"quota {name} guarantees too little: {over}"
        above = self.numbers.parent.get(name) if self.checks_parents else ""
        while above:
            # Of what is above, only the resources that the pod asks for matter.
            used = {key: self.used(above).get(key, 0) for key in asked}
            over = _exceeded(used, asked, self.limit(above))
            if over:
                return f"quota {above}, above {name}, has no room: {over}"
            above = self.numbers.parent.get(above)
        return None

    def revocable(self, name):
        """The pods directly in a quota that may be evicted when it uses too much (3.15)."""
        there = [pod for pod in self.pods if pod["metadata"]["uid"] in self.assigned and self.of(pod) == name]
        return [pod for pod in there if not is_fixed(pod)]


def is_fixed(pod):
    """Whether nobody may take the pod's place."""
    return labels_of(pod).get(PREFIX + "preemptible") == "false"


def requested(pod):
    """What the pod requests by its spec, in whole steps as the reference of requests has it."""
    return {name: amount * _step(name) for name, amount in spec_requests(pod).items()}


def _step(resource):
    """The smallest amount that can be given."""
    return 10**6 if resource == "cpu" else 10**9


def _age(thing):
    return thing["metadata"].get("creationTimestamp") or "", namespace_of(thing)


def _amounts(quantities):
    return {name: int(parse(amount) * 10**9) for name, amount in (quantities or {}).items()}


def _declared(thing):
    labels, weight = labels_of(thing), annotations_of(thing).get(PREFIX + "shared-weight")
    return Declared(
        thing["metadata"]["name"],
        _amounts(thing["spec"].get("max")),
        _amounts(thing["spec"].get("min")),
        _amounts(json.loads(weight)) if weight else None,
        labels.get(PREFIX + "parent", ""),
        lent=labels.get(PREFIX + "allow-lent-resource") != "false",
    )


def _namespaces(thing):
    return json.loads(annotations_of(thing).get(PREFIX + "namespaces") or "[]")


def _exceeded(used, asked, limit):
    """{resource: (used, asked, limit)} where both together are more than the limit, which is for what it names."""
    return {
        key: (used.get(key, 0), asked.get(key, 0), limit[key])
        for key in {**used, **asked}
        if key in limit and used.get(key, 0) + asked.get(key, 0) > limit[key]
    }
