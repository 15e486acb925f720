"""Where defects are registered, and put in force."""

from contextlib import contextmanager
from unittest.mock import patch

MUTATIONS = {}
"""Name -> (object, attribute, made from the original)."""

WORLDS = {}
"""Name -> what the worlds need for the defect to matter, where that is more than pods and nodes and rare."""


def mutation(where, attribute, world=""):
    """Registers a function that makes the defective attribute from the sound one."""

    def register(make):
        name = make.__name__.replace("_", "-")
        MUTATIONS[name] = (where, attribute, make)
        if world:
            WORLDS[name] = world
        return make

    return register


@contextmanager
def mutated(name):
    """Inside, the named defect is in force."""
    where, attribute, make = MUTATIONS[name]
    with patch.object(where, attribute, make(getattr(where, attribute))):
        yield
