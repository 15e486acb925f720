"""Quotas computed from scratch, the plain way: every sum over everything, shares as fractions.

Written from elasticquota spec 3.2 to 3.8 and independent of the plugin's modules. Amounts are exact, in billionths of a
CPU, a byte, a device; runtimes and scaled mins come out in whole steps (milli-CPU, one of anything else).
"""

from dataclasses import dataclass, field
from fractions import Fraction

ROOT, DEFAULT, SYSTEM = "koordinator-root-quota", "koordinator-default-quota", "koordinator-system-quota"


@dataclass
class Declared:
    """A quota object as it counts."""

    name: str
    max: dict
    min: dict = field(default_factory=dict)
    weight: dict | None = None
    parent: str = ""
    tree: str = ""
    lent: bool = True
    is_root: bool = False
    total: dict | None = None
    ignore_default_tree: bool = False


@dataclass
class Counted:
    """A pod as it counts."""

    quota: str
    request: dict
    assigned: bool
    non_preemptible: bool = False


def add(*lists):
    """Sums resource lists."""
    total = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def largest(a, b):
    """Per resource the larger amount."""
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}


def share(total, claims):
    """Spec 3.7 for one resource: `claims` name -> (weight, request, floor, lent); returns name -> runtime."""
    runtime, hungry = {}, set()
    for name, (_, request, floor, lent) in claims.items():
        if request > floor:
            runtime[name] = floor
            hungry.add(name)
        else:
            runtime[name] = request if lent else floor
    left = total - sum(runtime.values())
    while left > 0 and hungry:
        weights = {name: claims[name][0] for name in hungry if claims[name][0] > 0}
        if not weights:
            break
        exact = {name: Fraction(weight * left, sum(weights.values())) for name, weight in weights.items()}
        given = {name: int(part) for name, part in exact.items()}
        by_remainder = sorted(weights, key=lambda name: (given[name] - exact[name], name))
        for name in by_remainder[: left - sum(given.values())]:
            given[name] += 1
        left = 0
        for name, part in given.items():
            runtime[name] += part
            request = claims[name][1]
            if runtime[name] >= request:
                left += runtime[name] - request
                runtime[name] = request
                hungry.discard(name)
    return runtime


def steps(resource, amount):
    """An amount in steps, rounded up."""
    return -(-amount // (10**6 if resource == "cpu" else 10**9))


def in_steps(amounts):
    """All amounts in steps."""
    return {resource: steps(resource, amount) for resource, amount in amounts.items()}


def scaled(least, available, total):
    """Spec 3.5."""
    return 0 if available <= 0 else int(float(available) * float(least) / float(total))


class Reference:
    """All numbers of all quotas.

    `nodes`: allocatable of each node; `declared`: by name; `pods`: with the names of their quotas resolved.
    """

    def __init__(self, nodes, declared, pods, *, built_in_max, scales_mins=True, guarantees=False):
        self.declared = {quota.name: quota for quota in declared}
        for name in (DEFAULT, SYSTEM):
            self.declared.setdefault(name, Declared(name, built_in_max))
        self.pods = pods
        self.scales_mins = scales_mins
        self.guarantees = guarantees
        self.parent = {name: self._parent(name) for name in self.declared}
        self.numbers = {name: self._counts(name) for name in self.declared}
        self.runtime = {}
        self.scaled_min = {}
        self.available = {"": in_steps(self._default_total(nodes))}
        for tree in sorted({quota.tree for quota in self.declared.values()}):
            if tree:
                root = self._root_of(tree)
                self.available[tree] = in_steps(root.total or {}) if root else {}
            names = {k for q in self._user_quotas(tree) for k in q.max}
            self._distribute(self._children("", tree), self.available[tree], names)

    # places

    def _parent(self, name):
        quota = self.declared[name]
        above = self._declared_parent(quota)
        seen = []
        while above is not None and above not in seen:
            if above == name:
                return ""
            seen.append(above)
            above = self._declared_parent(self.declared[above])
        return self._declared_parent(quota) or ""

    def _declared_parent(self, quota):
        above = self.declared.get(quota.parent)
        if above is None or above.name in (ROOT, DEFAULT, SYSTEM) or above.tree != quota.tree:
            return None
        return above.name

    def _children(self, name, tree):
        return sorted(
            child
            for child, parent in self.parent.items()
            if parent == name and self.declared[child].tree == tree and child not in (DEFAULT, SYSTEM)
        )

    def _user_quotas(self, tree):
        return [q for q in self.declared.values() if q.tree == tree and q.name not in (DEFAULT, SYSTEM)]

    def _root_of(self, tree):
        roots = sorted(q.name for q in self._user_quotas(tree) if q.is_root)
        return self.declared[roots[0]] if roots else None

    # what pods make

    def _lent(self, quota):
        return quota.lent and not self.guarantees

    def _counts(self, name):
        quota = self.declared[name]
        children = [] if name in (DEFAULT, SYSTEM) else self._children(name, quota.tree)
        below = [self._counts(child) for child in children]
        own = [pod for pod in self.pods if pod.quota == name]

        def masked(pods):
            return add({}, *({k: v for k, v in pod.request.items() if k in quota.max} for pod in pods))

        child_request = add(masked(own), *(numbers["limited"] for numbers in below))
        request = child_request
        if not self._lent(quota) and name not in (DEFAULT, SYSTEM):
            request = largest(child_request, quota.min)
        numbers = {
            "child_request": child_request,
            "request": request,
            "limited": {k: min(v, quota.max.get(k, v)) for k, v in request.items()},
            "used": add(masked([p for p in own if p.assigned]), *(n["used"] for n in below)),
            "non_preemptible_request": add(
                masked([p for p in own if p.non_preemptible]), *(n["non_preemptible_request"] for n in below)
            ),
            "non_preemptible_used": add(
                masked([p for p in own if p.non_preemptible and p.assigned]),
                *(n["non_preemptible_used"] for n in below),
            ),
            "self_request": masked(own),
            "self_used": masked([p for p in own if p.assigned]),
        }
        if self.guarantees and name not in (DEFAULT, SYSTEM):
            numbers["allocated"] = add(numbers["self_used"], *(n["guaranteed"] for n in below))
            numbers["guaranteed"] = largest(numbers["allocated"], quota.min)
        return numbers

    # what each may use

    def _default_total(self, nodes):
        total = add({}, *nodes)
        for tree in {quota.tree for quota in self.declared.values()} - {""}:
            root = self._root_of(tree)
            if root is not None and root.total is not None and not root.ignore_default_tree:
                total = add(total, {k: -v for k, v in root.total.items()})
        for name in (DEFAULT, SYSTEM):
            # A resource of which nothing is used is not one that the cluster knows.
            total = add(total, {k: -v for k, v in self.numbers[name]["used"].items() if v})
        return total

    def _distribute(self, siblings, available, names):
        runtime = {name: {} for name in siblings}
        for resource in sorted(names):
            mins = {name: steps(resource, self.declared[name].min.get(resource, 0)) for name in siblings}
            total_min = sum(mins.values())
            if self.scales_mins and resource in available and available[resource] < total_min:
                mins = {name: scaled(least, available[resource], total_min) for name, least in mins.items()}
            claims = {}
            for name in siblings:
                quota, numbers = self.declared[name], self.numbers[name]
                weight = quota.weight if quota.weight and any(quota.weight.values()) else quota.max
                floor = max(mins[name], steps(resource, numbers.get("guaranteed", {}).get(resource, 0)))
                request = steps(resource, numbers["limited"].get(resource, 0))
                claims[name] = (steps(resource, weight.get(resource, 0)), request, floor, self._lent(quota))
            for name, amount in share(available.get(resource, 0), claims).items():
                runtime[name][resource] = amount
        for name in siblings:
            quota = self.declared[name]
            self.scaled_min[name] = {k: self._scaled(siblings, name, k, available) for k in quota.min}
            self.runtime[name] = runtime[name]
            self._distribute(self._children(name, quota.tree), runtime[name], set(quota.max))

    def _scaled(self, siblings, name, resource, available):
        least = steps(resource, self.declared[name].min[resource])
        total = sum(steps(resource, self.declared[sibling].min.get(resource, 0)) for sibling in siblings)
        if not self.scales_mins or resource not in available or available[resource] >= total:
            return least
        return scaled(least, available[resource], total)
