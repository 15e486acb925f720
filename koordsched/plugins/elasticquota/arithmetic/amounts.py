"""Lists of resources as exact integers, and the comparisons of quota checks (elasticquota spec 3.1).

All numbers are nano-units (a billionth of a CPU, of a byte, of a device): nothing is rounded unless the spec
rounds, which is when runtimes are computed: then cpu counts in milli, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordsched.api.quantity import NANO, QuantityError, format_amount, nano_value

Amounts = dict[str, int]
"""Resource name -> nano-units."""

EMPTY: Amounts = {}
"""No amounts; not to be written to."""

_MILLI = NANO // 1000
_RENAMED = {
    "koordinator.sh/batch-cpu": "kubernetes.io/batch-cpu",
    "koordinator.sh/batch-memory": "kubernetes.io/batch-memory",
}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def unit(name: str) -> int:
    """Nano-units in one step of runtime arithmetic: a milli-CPU, or one of anything else."""
    return _MILLI if name == "cpu" else NANO


def to_units(name: str, amount: int) -> int:
    """Nano-units in the steps of runtime arithmetic, rounded up."""
    return -(-amount // (_MILLI if name == "cpu" else NANO))


def parse(quantities: Mapping[str, object]) -> tuple[Amounts, list[str]]:
    """The amounts, and a text for each that cannot be read or is negative; such a one counts as zero."""
    amounts: Amounts = {}
    problems: list[str] = []
    for name, quantity in quantities.items():
        try:
            if not isinstance(quantity, (str, int, float)):
                raise QuantityError(f"quantity {quantity!r} is not a number")
            amount = nano_value(quantity)
        except QuantityError as error:
            problems.append(f"{name}: {error}")
            amount = 0
        if amount < 0:
            problems.append(f"{name}: {quantity} is negative")
            amount = 0
        amounts[name] = amount
    return amounts, problems


def renamed(amounts: Amounts) -> Amounts:
    """The same with the old names of batch resources replaced, unless the new name is there as well (spec 2.3)."""
    if not any(name in amounts for name in _RENAMED):
        return amounts
    result: Amounts = {}
    for name, amount in amounts.items():
        target = _RENAMED.get(name, name)
        result[name if target in amounts else target] = amount
    return result


def add_to(total: Amounts, more: Mapping[str, int]) -> None:
    """Adds in place; entries that become zero disappear."""
    for name, amount in more.items():
        value = total.get(name, 0) + amount
        if value:
            total[name] = value
        else:
            total.pop(name, None)


def take_from(total: Amounts, less: Mapping[str, int]) -> None:
    """Subtracts in place; entries that become zero disappear."""
    for name, amount in less.items():
        value = total.get(name, 0) - amount
        if value:
            total[name] = value
        else:
            total.pop(name, None)


def difference(new: Mapping[str, int], old: Mapping[str, int]) -> Amounts:
    """new - old, without zero entries."""
    result = dict(new)
    take_from(result, old)
    return result


def larger(a: Mapping[str, int], b: Mapping[str, int]) -> Amounts:
    """Per resource the larger of the two."""
    result = dict(a)
    for name, amount in b.items():
        if name not in result or amount > result[name]:
            result[name] = amount
    return result


def masked(amounts: Mapping[str, int], names: Iterable[str]) -> Amounts:
    """Only the entries of these names."""
    return {name: amounts[name] for name in names if name in amounts}


def fits(used: Mapping[str, int], more: Mapping[str, int], limit: Mapping[str, int]) -> bool:
    """LE(used + more, limit): only resources in both count; what the limit lacks is unlimited."""
    for name, bound in limit.items():
        amount = used.get(name)
        if amount is None:
            if name in more and more[name] > bound:
                return False
        elif amount + more.get(name, 0) > bound:
            return False
    return True


def exceeded(used: Mapping[str, int], more: Mapping[str, int], limit: Mapping[str, int]) -> list[str]:
    """The resources in which used + more is above the limit, sorted."""
    return sorted(
        name
        for name, bound in limit.items()
        if (name in used or name in more) and used.get(name, 0) + more.get(name, 0) > bound
    )


def text(name: str, amount: int, *, binary: bool | None = None) -> str:
    """An amount as Kubernetes prints it; memory in powers of 1024, others in powers of 1000, unless told."""
    return format_amount(amount, binary=name == "memory" if binary is None else binary)


def texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """All amounts as texts, sorted by name."""
    return {name: text(name, amounts[name]) for name in sorted(amounts)}


def is_binary(quantity: object) -> bool:
    """Whether a quantity is written with a suffix of powers of 1024."""
    return isinstance(quantity, str) and quantity.endswith(_BINARY)
