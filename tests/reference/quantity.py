"""Quantities as exact fractions."""

import math
from fractions import Fraction

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3), "k": 10**3, "M": 10**6, "G": 10**9,
    "T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def parse(text):
    """`500m`, `1.5Gi`, `2e3`, 3 -> Fraction."""
    text = str(text)
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return Fraction(text[: -len(suffix)]) * SUFFIXES[suffix]
    return Fraction(text)


def whole(amount):
    """Rounded up to a whole unit."""
    return math.ceil(amount)


def milli(amount):
    """Rounded up to a whole thousandth, in thousandths."""
    return math.ceil(amount * 1000)


def in_units_of(resource, amount):
    """Milli-CPU for cpu, whole units for everything else."""
    return milli(amount) if resource == "cpu" else whole(amount)
