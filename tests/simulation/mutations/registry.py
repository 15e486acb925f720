"""Where defects are registered, and put in force."""

from contextlib import contextmanager
from unittest.mock import patch

MUTATIONS = {}
"""Name -> (object, attribute, made from the original)."""


def mutation(where, attribute):
    """Registers a function that makes the defective attribute from the sound one."""

    def register(make):
        MUTATIONS[make.__name__.replace("_", "-")] = (where, attribute, make)
        return make

    return register


@contextmanager
def mutated(name):
    """Inside, the named defect is in force."""
    where, attribute, make = MUTATIONS[name]
    with patch.object(where, attribute, make(getattr(where, attribute))):
        yield
