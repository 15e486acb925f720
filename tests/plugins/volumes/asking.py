"""Asks one volume plugin about one pod on a cluster given as JSON."""

from koordsched.framework.interface import CycleState
from koordsched.framework.status import Code
from tests.plugins.harness import Bench


def pre_filter(plugin, objects, wanted):
    """The text of the rejection, "SKIP", or None."""
    bench = Bench(*objects)
    waiting = bench.pod(wanted)
    answer = bench.plugin(plugin).pre_filter(CycleState(waiting), waiting)
    if answer.code is Code.SKIP:
        return "SKIP"
    assert answer.ok or answer.code is Code.UNRESOLVABLE
    return None if answer.ok else answer.message


def refused(plugin, objects, wanted):
    """Node -> the texts of its refusal."""
    bench = Bench(*objects)
    return {name: verdict[1:] for name, verdict in bench.filter(bench.plugin(plugin), wanted).items() if verdict}
