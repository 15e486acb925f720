"""Lists of CPUs as sets of ids."""

from tests.plugins.nodenumaresource.naivemachine import parse_cpus
from tests.plugins.nodenumaresource.world import cpuset_of


def ids(text):
    """The ids of a list of CPUs."""
    return set(parse_cpus(text)) if text else set()


def ids_of(thing):
    """The ids of the CPUs that a pod was given by its annotation."""
    return ids(cpuset_of(thing))
