"""How deep the tests search: `make test` takes a part of what `make verify` takes.

`tests/conftest.py` settles which of the two it is before tests are collected.
"""

import pytest

quick = False
"""Whether slow tests are left out."""


def examples(number):
    """How many examples hypothesis tries: a quick run is content with a fifth."""
    return number // 5 if quick else number


def quick_first(values, number):
    """Parameters of a test: the first `number` of the values are always tried, the others are slow.

    Where slow tests are left out they are not collected either: thousands of them take seconds in every worker.
    """
    values = list(values)
    slow = [] if quick and number else values[number:]
    return [*values[:number], *(pytest.param(value, marks=pytest.mark.slow) for value in slow)]
