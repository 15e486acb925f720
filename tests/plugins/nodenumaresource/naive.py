"""NodeNUMAResource for one pod and one node, computed from scratch: nodenumaresource spec 3.1 to 3.8.

No reservations and no second provider of hints. Every answer walks over everything again; nothing is kept.
"""

import itertools
import json
from dataclasses import dataclass, field

from tests.plugins.nodenumaresource.naivemachine import (
    BEST_EFFORT,
    RESTRICTED,
    SCHEDULING,
    SINGLE,
    Allocation,
    Malformed,
    amplify,
    annotated,
    format_cpus,
    ratios_of,
    recorded,
    texts,
)
from tests.plugins.nodenumaresource.naivepick import NOT_ENOUGH, NotEnough, keeps_policy, take_preferring, usable
from tests.reference.podrequests import requests

SUCCESS, SKIP, ERROR = "Success", "Skip", "Error"
U, UAU = "Unschedulable", "UnschedulableAndUnresolvable"

SPEC_FIELDS = ("requiredCPUBindPolicy", "preferredCPUBindPolicy", "preferredCPUExclusivePolicy")
BOUND_POLICIES = ("FullPCPUs", "SpreadByPCPUs")
PRIORITIES = {"koord-prod": (9000, 9999), "koord-mid": (7000, 7999), "koord-batch": (5000, 5999),
              "koord-free": (3000, 3999)}  # fmt: skip
HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
DEFAULT_SCORING = {
    "type": "LeastAllocated",
    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
}

NOT_INTEGER = "the requested CPUs must be integer"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


@dataclass(frozen=True)
class Verdict:
    """Status code and reasons."""

    code: str = SUCCESS
    reasons: tuple = ()

    @property
    def passed(self):
        return self.code in (SUCCESS, SKIP)


class Refused(Exception):
    """Ends a check with a verdict."""

    def __init__(self, code, *reasons):
        super().__init__(code, reasons)
        self.verdict = Verdict(code, reasons)


@dataclass
class Asked:
    """What PreFilter finds out about a pod."""

    pod: dict
    requests: dict
    skip: bool = False
    policy: str = ""
    exclusive: str = ""
    bind: bool = False
    required: str = ""
    preferred: str = ""
    level: str = ""
    designated: Allocation | None = None

    @property
    def cpu(self):
        return self.requests.get("cpu", 0)


@dataclass(frozen=True)
class Hint:
    """NUMA nodes (None: any), whether they are preferred, and a score. `unsatisfied`: nothing fits at all."""

    mask: frozenset | None = None
    preferred: bool = False
    score: int = 0
    unsatisfied: bool = False


def priority_class(pod):
    """The class by label, else by number; prod stands for none, as it does for every QoS that may be bound."""
    label = pod["metadata"].get("labels", {}).get("koordinator.sh/priority-class")
    if label is not None:
        return label if label in PRIORITIES else "koord-prod"
    number = pod["spec"].get("priority")
    for name, (low, high) in PRIORITIES.items():
        if number is not None and low <= number <= high:
            return name
    return "koord-prod"


def may_use_cpuset(pod):
    """Spec 2.2: by its own label LSE or LSR, and of production."""
    qos = pod["metadata"].get("labels", {}).get("koordinator.sh/qosClass")
    return qos in ("LSE", "LSR") and priority_class(pod) == "koord-prod"


class Naive:
    """The plugin with its arguments."""

    def __init__(self, args=None):
        args = args or {}
        self.default_bind = args.get("defaultCPUBindPolicy", "FullPCPUs")
        self.scoring = args.get("scoringStrategy") or DEFAULT_SCORING
        self.numa_scoring = args.get("numaScoringStrategy") or DEFAULT_SCORING
        self.weights = {entry["name"]: entry.get("weight", 1) for entry in self.scoring["resources"]}

    def pre_filter(self, pod):
        """(Verdict, Asked); Asked is None where the pod is refused. Texts of malformed annotations are left out."""
        try:
            required, preferred, level = texts(pod, f"{SCHEDULING}resource-spec", *SPEC_FIELDS)
            policy, exclusive = texts(
                pod, f"{SCHEDULING}numa-topology-spec", "numaTopologyPolicy", "singleNUMANodeExclusive"
            )
        except Malformed:
            return Verdict(ERROR), None
        asked = Asked(pod, requests(pod))
        if not asked.requests:
            asked.skip = True
            return Verdict(SKIP), asked
        asked.policy, asked.exclusive = policy, exclusive
        try:
            hint = annotated(pod, HINT) or {}
            if "NodeNUMAResource" in (hint.get("extensions") or {}):
                asked.designated = recorded(pod)
        except Malformed:
            return Verdict(UAU), None
        if may_use_cpuset(pod):
            preferred = self.default_bind if preferred in ("", "Default") else preferred
            required = self.default_bind if required == "Default" else required
            preferred = required or preferred
            if preferred in BOUND_POLICIES:
                if asked.cpu % 1000:
                    return Verdict(UAU, (NOT_INTEGER,)), None
                if asked.cpu:
                    asked.bind, asked.required, asked.preferred = True, required, preferred
                    asked.level = level
        return Verdict(), asked

    def filter(self, asked, machine, returned=()):
        """The Verdict on the machine; `returned`: pods on it that preemption would take away."""
        return self._verdict(lambda: Attempt(self, asked, machine, returned).filter())

    def reserve(self, asked, machine):
        """(Verdict, Allocation): what the pod gets on a machine that passed the filter; None: nothing is recorded."""
        attempt = Attempt(self, asked, machine)
        verdict = self._verdict(lambda: (attempt.filter(), attempt.reserve()))
        return verdict, attempt.allocation if verdict.passed else None

    def score(self, asked, machine):
        """The score of a machine that passed the filter."""
        attempt = Attempt(self, asked, machine)
        attempt.filter()
        return attempt.score()

    @staticmethod
    def _verdict(check):
        try:
            check()
        except Refused as refused:
            return refused.verdict
        return Verdict()

    def rated(self, kind, used, capacity, asked):
        """Mean of the resources' scores, weighted and rounded down; `used` without the pod."""
        total = weights = 0
        for name, weight in self.weights.items():
            wanted = asked.get(name, 0)
            size = capacity.get(name, 0)
            if not size or (not wanted and is_extended(name)):
                continue
            filled = used.get(name, 0) + wanted
            if kind == "MostAllocated":
                points = min(filled, size) * 100 // size
            else:
                points = 0 if filled > size else (size - filled) * 100 // size
            total += points * weight
            weights += weight
        return total // weights if weights else 0

    def written(self, asked, machine, allocation):
        """The annotations that PreBind writes: {key: JSON text}."""
        if allocation is None:
            return {}
        attempt = Attempt(self, asked, machine)
        written = {}
        if attempt.bind:
            spec = completed(*texts(asked.pod, f"{SCHEDULING}resource-spec", *SPEC_FIELDS), attempt)
            if spec is not None:
                written[f"{SCHEDULING}resource-spec"] = spec
        status = {}
        if allocation.cpus:
            status["cpuset"] = format_cpus(allocation.cpus)
        if allocation.numa:
            zones = sorted(allocation.numa.items())
            status["numaNodeResources"] = [
                {"node": numa, "resources": {name: text_of(asked.pod, name, zone[name]) for name in sorted(zone)}}
                for numa, zone in zones
            ]
        written[f"{SCHEDULING}resource-status"] = compact(status)
        return written

    def debug(self, machine, reserved=()):
        """What the debug endpoint says of the machine, as far as the records have it; quantities as numbers.

        `reserved`: Allocations that hold nothing, of pods this process placed. Reserve books them, no pod event does.
        """
        if not machine.valid:
            return {"message": "invalid topology, please check the NodeResourceTopology object"}
        free, _ = machine.free_cpus()
        pods = []
        for held in [*(held for _, held in machine.held), *reserved]:
            entry = {"namespace": held.namespace, "name": held.name, "cpuset": format_cpus(held.cpus)}
            if held.exclusive:
                entry["cpuExclusivePolicy"] = held.exclusive
            if held.numa:
                entry["numaNodeResources"] = zone_list(held.numa)
            pods.append(entry)
        return {
            "name": machine.name,
            "reservedCPUs": format_cpus(machine.reserved),
            "maxRefCount": machine.max_references,
            "policy": machine.kubelet,
            "numaTopologyPolicy": machine.numa_policy,
            "remainingNUMANodeResources": zone_list(machine.available({})) or None,
            "allocatedNUMANodeResources": zone_list(machine.allocated({})) or None,
            "availableCPUs": format_cpus(free),
            "allocatedPods": sorted(pods, key=lambda entry: (entry["namespace"], entry["name"])) or None,
            **({"amplificationRatios": machine.ratios} if machine.ratios else {}),
        }


@dataclass
class Attempt:
    """One pod on one machine, in one cycle."""

    model: Naive
    asked: Asked
    machine: object
    returned: tuple = ()
    allocation: Allocation | None = None
    affinity: frozenset | None = None
    merged: str = field(init=False, default="")

    def __post_init__(self):
        self.bind = self.asked.bind or bool(self.asked.cpu and self.machine.bind_policy)
        if self.asked.required:
            self.policy, self.is_required = self.asked.required, True
        elif self.machine.bind_policy:
            self.policy, self.is_required = self.machine.bind_policy, True
        else:
            self.policy, self.is_required = self.asked.preferred, False
        self.merged = self.asked.policy or self.machine.numa_policy
        if self.merged not in (SINGLE, RESTRICTED, BEST_EFFORT):
            self.merged = ""
        gone = [held for pod, held in self.machine.held if any(pod is other for other in self.returned)]
        self.back_cpus = set().union(*(held.cpus for held in gone))
        self.back_numa = {}
        for held in gone:
            for numa, zone in held.numa.items():
                total = self.back_numa.setdefault(numa, {})
                for name, amount in zone.items():
                    total[name] = total.get(name, 0) + amount

    # Spec 3.2

    def filter(self):
        asked, machine = self.asked, self.machine
        if asked.skip:
            return
        if asked.policy and machine.numa_policy and asked.policy != machine.numa_policy:
            raise Refused(UAU, "node(s) NUMA Topology policy not match")
        if asked.designated is not None:
            self.check_integer()
            self.record()
            return
        self.check_integer()
        self.check_amplified()
        if self.bind:
            if not machine.valid:
                raise Refused(UAU, INVALID_TOPOLOGY)
            effective = machine.bind_policy or asked.required
            if asked.required and asked.required != effective:
                raise Refused(UAU, "node(s) cpu bind policy conflicts with pod's required cpu bind policy")
            if effective == "FullPCPUs" and (asked.cpu // 1000) % machine.cpus_per_core:
                raise Refused(UAU, "node(s) requested cpus not multiple cpus per core")
            if effective and not self.merged:
                self.allocate(None)
                return
        if self.merged in (RESTRICTED, SINGLE):
            self.admit()

    def check_integer(self):
        if self.bind and self.asked.cpu % 1000:
            raise Refused(UAU, NOT_INTEGER)

    def check_amplified(self):
        machine = self.machine
        if not self.asked.cpu:
            return
        try:
            ratio = machine.node_ratio
        except Malformed:
            raise Refused(UAU, "node(s) invalid CPU amplification ratio") from None
        if ratio <= 1:
            return
        if machine.topology is not None and not machine.valid:
            raise Refused(UAU, INVALID_TOPOLOGY)
        wanted = amplify(self.asked.cpu, ratio) if self.bind else self.asked.cpu
        bound = machine.bound_milli()
        used = machine.requested(self.returned).get("cpu", 0)
        if bound and used >= bound:
            used = used - bound + amplify(bound, ratio)
        if wanted > machine.allocatable.get("cpu", 0) - used:
            raise Refused(U, "Insufficient amplified cpu")

    def unknown_ratio(self):
        """Whether the ratios that count are those of the node, and cannot be read."""
        if self.machine.has_own_ratios:
            return False
        try:
            ratios_of(self.machine.node)
        except Malformed:
            return True
        return False

    # Spec 3.3

    def admit(self):
        if not self.machine.zones:
            raise Refused(UAU, "node(s) missing NUMA resources")
        exclusive = self.asked.exclusive or ("Required" if self.asked.policy else "")
        hints = self.hints()
        every = frozenset(self.machine.zones)
        unsatisfied = [name for name, found in hints.items() if not found]
        if self.merged != BEST_EFFORT and unsatisfied:
            raise Refused(U, *(f"Unsatisfied NUMA {name}" for name in sorted(unsatisfied)))
        choices = [found or [Hint(unsatisfied=True)] for _, found in sorted(hints.items())] or [[Hint(preferred=True)]]
        if self.merged == SINGLE:
            choices = [[hint for hint in found if hint.preferred and (hint.mask is None or len(hint.mask) == 1)]
                       for found in choices]  # fmt: skip
        best = self.best(choices, every, exclusive)
        if self.merged == BEST_EFFORT:
            best = Hint(every) if best.unsatisfied else best
        elif not best.preferred:
            summaries = sorted(summary(name, found) for name, found in hints.items())
            raise Refused(U, f"Unaligned NUMA Hint cause {(',' if self.merged == SINGLE else ' & ').join(summaries)}")
        self.affinity = None if self.merged == SINGLE and best.mask == every else best.mask
        self.allocate(self.affinity)

    def hints(self):
        """{requested resource that zones have: [Hint]}."""
        machine, wanted = self.machine, self.amplified()
        if self.is_required and not machine.valid:
            raise Refused(U, "node(s) Insufficient NUMA Node resources")
        left = self.available()
        names = {name for zone in machine.zones.values() for name in zone} & set(wanted)
        found = {name: [] for name in sorted(names)}
        for size in range(1, len(machine.zones) + 1):
            for mask in itertools.combinations(machine.zones, size):
                try:
                    self.allocate(frozenset(mask))
                except Refused:
                    continue
                score = self.hint_score(mask, left, wanted)
                for name in found:
                    if all(left[numa].get(name, 0) for numa in mask):
                        found[name].append(Hint(frozenset(mask), score=score))
        return {name: self.preferring(hints) for name, hints in found.items()}

    def hint_score(self, mask, left, wanted):
        names = {name for numa in mask for name in self.machine.zones[numa]}
        total = {name: sum(self.machine.zones[numa].get(name, 0) for numa in mask) for name in names}
        rest = {name: sum(left[numa].get(name, 0) for numa in mask) for name in names}
        used = {name: max(0, total[name] - rest[name]) for name in names}
        return self.model.rated(self.model.numa_scoring["type"], used, total, wanted)

    def preferring(self, hints):
        smallest = min((len(hint.mask) for hint in hints), default=0)
        every = self.merged == RESTRICTED
        return [Hint(hint.mask, every or len(hint.mask) == smallest, hint.score) for hint in hints]

    def best(self, choices, every, exclusive):
        best = Hint(every)
        for permutation in itertools.product(*choices):
            new = self.merge(permutation, every, exclusive)
            if not new.mask:
                continue
            scores_more = len(new.mask) == len(best.mask) and new.score > best.score
            if new.preferred != best.preferred:
                best = new if new.preferred else best
            elif scores_more or narrowness(new.mask) < narrowness(best.mask):
                best = new
        return best

    def merge(self, permutation, every, exclusive):
        masks = [hint.mask for hint in permutation if hint.mask is not None]
        mask = every.intersection(*masks)
        preferred = all(hint.preferred for hint in permutation) and len(set(masks)) <= 1
        widest = max(map(len, masks), default=len(mask))
        unsatisfied = len(mask) < widest or any(hint.unsatisfied for hint in permutation)
        if mask and exclusive == "Required":
            statuses = [self.machine.status(numa) for numa in mask]
            if statuses == ["shared"] or (len(mask) > 1 and "single" in statuses):
                preferred = False
        score = sum(hint.score for hint in permutation if hint.mask == mask)
        return Hint(mask, preferred, score, unsatisfied)

    # Spec 3.4 and 3.5

    def amplified(self):
        """The requests, with cpu amplified for a bound pod."""
        wanted = dict(self.asked.requests)
        if self.bind and "cpu" in wanted:
            wanted["cpu"] = amplify(wanted["cpu"], self.machine.ratio)
        return wanted

    def available(self, given=None, preferred=frozenset()):
        """Amounts left per NUMA node, cpu capped by what a required policy can use."""
        left = given or self.machine.available(self.back_numa)
        left = {numa: dict(zone) for numa, zone in left.items()}
        if self.is_required:
            free, _ = self.machine.free_cpus(preferred, self.back_cpus)
            for numa, zone in left.items():
                own = {cpu for cpu in free if self.machine.cpus[cpu].numa == numa}
                if zone.get("cpu"):
                    zone["cpu"] = min(zone["cpu"], 1000 * len(usable(self.machine, own, self.policy)))
        return left

    def allocate(self, affinity, designated=None):
        """The Allocation with that affinity (None: any). Raises Refused."""
        preferred = designated.cpus if designated else frozenset()
        meta = self.asked.pod["metadata"]
        result = Allocation(meta["name"], meta.get("namespace", "default"), exclusive=self.asked.level)
        if affinity is not None:
            if not self.machine.zones:
                raise Refused(UAU, "insufficient resources on NUMA Node")
            left = self.available(designated.numa if designated else None, preferred)
            result.numa = self.split(affinity, left)
        if self.bind:
            try:
                result.cpus = self.pick(result.numa, preferred)
            except NotEnough as short:
                raise Refused(U, str(short)) from None
        if designated and result.cpus != designated.cpus:
            raise Refused(U, NOT_ENOUGH)
        return result

    def split(self, affinity, left):
        listed = sorted(affinity)
        got, short = {}, []
        for name, wanted in sorted(self.asked.requests.items()):
            if not any(name in zone for zone in left.values()):
                continue
            for at, numa in enumerate(positions(listed, name, left)):
                part = min(left.get(numa, {}).get(name, 0), self.share(name, wanted, len(listed) - at))
                if part:
                    got.setdefault(numa, {})[name] = part
                    wanted -= part
            if wanted:
                short.append(f"Insufficient NUMA {name}")
        if short:
            raise Refused(U, *short)
        return got

    def share(self, name, amount, parts):
        if name != "cpu" or not self.bind:
            return amount // parts
        cpus = -(-amount // 1000)
        if self.is_required and self.policy == "FullPCPUs":
            return cpus // self.machine.cpus_per_core // parts * self.machine.cpus_per_core * 1000
        return cpus // parts * 1000

    def pick(self, numa_amounts, preferred):
        machine, needed = self.machine, self.asked.cpu // 1000
        free, used = machine.free_cpus(preferred, self.back_cpus)
        if self.is_required:
            free = usable(machine, free, self.policy)
        if len(free) < needed:
            raise NotEnough(NOT_ENOUGH)
        default = "MostAllocated" if self.model.numa_scoring["type"] == "MostAllocated" else "LeastAllocated"
        strategy = machine.labels.get("node.koordinator.sh/numa-allocate-strategy") or default

        def take(cpus, n):
            return set(take_preferring(machine, cpus, set(preferred), used, n, self.policy, self.asked.level, strategy))

        if not numa_amounts:
            result = take(free, needed)
        else:
            result = set()
            for numa, zone in sorted(numa_amounts.items()):
                own = {cpu for cpu in free if machine.cpus[cpu].numa == numa}
                result |= take(own, min(len(own), zone.get("cpu", 0) // 1000))
            if len(result) != needed:
                raise NotEnough(NOT_ENOUGH)
        if self.is_required and not keeps_policy(machine, result, self.policy):
            raise NotEnough(f"insufficient CPUs to satisfy required cpu bind policy {self.policy}")
        return result

    # Spec 3.6 and 3.7

    def reserve(self):
        if self.asked.skip or self.allocation is not None:
            return
        if self.merged == BEST_EFFORT:
            self.admit()
        self.record()

    def record(self):
        if not self.bind and not self.merged:
            return
        if self.bind and not self.machine.valid:
            raise Refused(ERROR, INVALID_TOPOLOGY)
        designated = self.asked.designated
        if designated is None:
            self.allocation = self.allocate(self.affinity)
        else:
            affinity = frozenset(designated.numa) if designated.numa else self.affinity
            self.allocation = self.allocate(affinity, designated)

    def score(self):
        machine, model = self.machine, self.model
        if self.asked.skip or (self.bind and not machine.valid) or self.unknown_ratio():
            return 0
        capacity, used = machine.allocatable, machine.requested()
        bound = machine.bound_milli()
        if not self.merged:
            if self.asked.cpu and machine.ratio > 1:
                if machine.topology is not None and not machine.valid:
                    return 0
                used["cpu"] = used.get("cpu", 0) - bound + amplify(bound, machine.ratio)
        else:
            try:
                trial = self.allocate(self.affinity)
            except Refused:
                return 0
            if trial.numa:
                taken = machine.allocated({})
                capacity, used = added(machine.zones, trial.numa), added(taken, trial.numa)
            if trial.cpus:
                used["cpu"] = amplify(bound, machine.ratio)
        return model.rated(model.scoring["type"], used, capacity, self.amplified())


def is_extended(name):
    """Whether a resource is left out of scores where the pod does not request it."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def narrowness(mask):
    """Fewer NUMA nodes are narrower; of as many, the smaller number of the mask."""
    return len(mask), number(mask)


def number(mask):
    return sum(1 << numa for numa in mask)


def summary(name, hints):
    preferred = " ".join(digits(hint.mask) for hint in hints if hint.preferred)
    possible = " ".join(digits(hint.mask) for hint in hints)
    return f"{name} prefer [{preferred}] among [{possible}]"


def digits(mask):
    """The mask in binary: `01`, `11`, `100`, `0101`."""
    widths = [width for width in range(64, 2, -2) if number(mask) > 1 << (width - 2)]
    return f"{number(mask):0{widths[0] if widths else 2}b}"


def positions(listed, name, left):
    """The order of the split, which compares what is left at places of the list, not of the NUMA nodes listed."""
    ordered = list(listed)
    for end in range(1, len(ordered)):
        at = end
        while at > 0 and left.get(at, {}).get(name, 0) < left.get(at - 1, {}).get(name, 0):
            ordered[at], ordered[at - 1] = ordered[at - 1], ordered[at]
            at -= 1
    return ordered


def added(zones, chosen):
    total = {}
    for numa in chosen:
        for name, amount in zones.get(numa, {}).items():
            total[name] = total.get(name, 0) + amount
    return total


def zone_list(zones):
    return [{"node": numa, "resources": zone} for numa, zone in sorted(zones.items())]


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def completed(required, preferred, level, attempt):
    """The resource-spec as PreBind writes it, None where it needs nothing."""
    before = required, preferred
    if attempt.is_required and required in ("", "Default"):
        required = attempt.policy
    if preferred == "Default":
        preferred = attempt.policy
    if not required and not preferred:
        preferred = attempt.policy
    if (required, preferred) == before:
        return None
    fields = zip(SPEC_FIELDS, (required, preferred, level), strict=True)
    return compact({key: value for key, value in fields if value})


def text_of(pod, name, amount):
    """The canonical quantity, binary where the pod asks in binary units."""
    if name == "cpu":
        return decimal(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    asked = [c.get("resources", {}).get("requests", {}).get(name) for c in pod["spec"]["containers"]]
    if next(str(text) for text in asked if text is not None).endswith("i"):
        for power, suffix in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if amount and amount % (1 << power) == 0:
                return f"{amount >> power}{suffix}"
        return str(amount)
    return decimal(amount)


def decimal(amount):
    for power, suffix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if amount and amount % 10**power == 0:
            return f"{amount // 10**power}{suffix}"
    return str(amount)
