"""Sums, differences and comparisons of resource lists."""

from tests.reference.quantity import in_units_of, parse

DEPRECATED = {f"kubernetes.io/{name}": f"koordinator.sh/{name}"
              for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")}  # fmt: skip


def read(quantities):
    """{name: quantity text} in whole numbers, under the names of today."""
    return {name: in_units_of(name, parse(text)) for name, text in renamed(quantities or {}).items()}


def renamed(quantities):
    """The same with deprecated names replaced, unless the new name is there already."""
    found = {}
    for name, text in quantities.items():
        new = DEPRECATED.get(name, name)
        found[name if new != name and new in quantities else new] = text
    return found


def added(left, right):
    """Sums, with the names of either."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def less(left, right):
    """Differences that are never negative, with the names of either."""
    return {name: max(0, left.get(name, 0) - right.get(name, 0)) if name in left else 0 for name in {**left, **right}}


def without(used, returned):
    """What is still in use. Upstream keeps names at zero until nothing of a device is in use; that is not the model's:
    a name that only pods list that are gone would make a device too small for pods that request it."""
    return {name: amount for name, amount in less(used, returned).items() if amount}


def is_zero(amounts):
    """Whether there is nothing of anything."""
    return not any(amounts.values())


def fits(wanted, free):
    """Whether there is enough, of names that both lists have."""
    return all(amount <= free[name] for name, amount in wanted.items() if name in free)
