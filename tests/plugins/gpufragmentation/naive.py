"""The policy, one node, one class and one GPU at a time; the cutting stock problem by trying everything."""

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

SMALLEST = 1e-9


@dataclass(frozen=True)
class Node:
    """`cpu` in thousandths of a core, `gpus` in per cent."""

    cpu: int
    gpus: tuple
    kind: int

    @property
    def whole(self):
        return self.gpus.count(100)


@dataclass(frozen=True)
class Class:
    cpu: int
    number: int
    share: int
    allowed: tuple
    tasks: int

    def runs_on(self, node):
        fitting = sum(free >= self.share for free in node.gpus)
        return self.allowed[node.kind] and node.cpu >= self.cpu and fitting >= self.number


def fragments(node, of_class):
    """GPUs that the class cannot use."""
    if of_class.number > 1 and of_class.share < 100:
        fits = of_class.allowed[node.kind] and node.cpu >= of_class.cpu
    else:
        fits = of_class.runs_on(node)
    return sum(free for free in node.gpus if not fits or free < of_class.share) / 100


def slots(node, of_class):
    """How many tasks of the class fit on the node alone."""
    if not of_class.allowed[node.kind]:
        return 0
    each = sum(free // of_class.share for free in node.gpus) // of_class.number
    return min(each, max(node.cpu, 0) // of_class.cpu) if of_class.cpu else each


def of_class_gpus(of_class):
    return of_class.number * of_class.share / 100


def scarcity(nodes, classes):
    """The weight of each class."""
    free = sum(sum(node.gpus) for node in nodes) / 100
    total = sum(each.tasks for each in classes)
    found = []
    for each in classes:
        usable = max(sum(slots(node, each) for node in nodes) * of_class_gpus(each), 0.01)
        found.append(each.tasks / total * min(20.0, (free / usable) ** 2))
    return found


def shortage(nodes, classes):
    """By class: how much of the room for it is reserved, 0 to 1."""
    free = sum(sum(node.gpus) for node in nodes) / 100
    total = sum(each.tasks for each in classes)
    arrivals = free / sum(each.tasks / total * of_class_gpus(each) for each in classes)
    found = []
    for each in classes:
        if each.number == 1 or each.share < 100:
            found.append(0.0)
            continue
        rivals = [
            other
            for other in classes
            if other.number >= each.number
            and all(mine or not theirs for mine, theirs in zip(each.allowed, other.allowed, strict=True))
        ]
        expected = sum(other.tasks for other in rivals) / total * arrivals
        needed = expected + 6 * expected**0.5
        room = sum(slots(node, each) for node in nodes)
        found.append(min(1.0, max(0.0, 1.5 - room / max(needed, SMALLEST))))
    return found


class Values:
    """`worth`: of 0 to 100 % of a GPU; `balance`: cores per GPU."""

    def __init__(self, nodes, classes, worth, balance):
        self.classes, self.worth, self.balance = classes, worth, balance
        self.scarcity = scarcity(nodes, classes) if classes else []
        self.shortage = shortage(nodes, classes) if classes else []

    def of(self, node):
        value = sum(self.worth[free] for free in node.gpus)
        for weight, each in zip(self.scarcity, self.classes, strict=True):
            value -= 0.05 * weight * fragments(node, each)
        for short, each in zip(self.shortage, self.classes, strict=True):
            if each.number > 1 and each.share == 100 and each.allowed[node.kind] and node.cpu >= each.cpu:
                alike = sum(o.tasks for o in self.classes if (o.number, o.share) == (each.number, 100))
                room, rest = divmod(node.whole, each.number)
                value += 0.25 * short * each.tasks / alike * each.number * (room + (rest / each.number) ** 2)
        surplus = node.cpu / 1000 - self.balance * sum(node.gpus) / 100
        return value - (0.96e-3 * surplus if surplus > 0 else -2e-3 * surplus)

    def gain(self, node, cpu, minors, share):
        """What the node's worth changes by if a task takes these GPUs."""
        return self.of(_after(node, cpu, minors, share)) - self.of(node)

    def best(self, node, cpu, number, share):
        """What would be gained by taking each of the GPUs that a task should take, as if it were the only one, the best
        first; None if the task does not fit.
        """
        if node.cpu < cpu or sum(free >= share for free in node.gpus) < number:
            return None
        fitting = [minor for minor, free in enumerate(node.gpus) if free >= share]
        return sorted((self.gain(node, cpu, (minor,), share) for minor in fitting), reverse=True)[:number]


def _after(node, cpu, minors, share):
    gpus = tuple(free - share if minor in minors else free for minor, free in enumerate(node.gpus))
    return Node(node.cpu - cpu, gpus, node.kind)


def fewest_gpus(tasks):
    """The least number of GPUs, not rounded, that hold {size: number of tasks}: the best basis of all fillings."""
    sizes = sorted(tasks)
    ranges = [range(100 // size + 1) for size in sizes]
    fillings = [
        counts
        for counts in product(*ranges)
        if any(counts) and sum(count * size for count, size in zip(counts, sizes, strict=True)) <= 100
    ]
    wanted = np.array([tasks[size] for size in sizes], dtype=float)
    best = float("inf")
    for basis in combinations(fillings, len(sizes)):
        matrix = np.array(basis, dtype=float).T
        if abs(np.linalg.det(matrix)) < SMALLEST:
            continue
        used = np.linalg.solve(matrix, wanted)
        if (used >= -SMALLEST).all():
            best = min(best, float(used.sum()))
    return best
