"""What explanations say of a pod that is kept back, and of nodes that were not looked at."""

from random import Random

import msgspec

from koordsched.engine.explain import NOT_LOOKED_AT
from koordsched.framework.explaining import ExplainsRefusals
from koordsched.framework.interface import PreEnqueue
from koordsched.framework.status import Code, Status
from koordsched.scheduling.offline import OfflineScheduler
from tests.embedded import DEFAULT_CONFIG
from tests.extraplugins import registry_with, resolved_with
from tests.plugins.harness import StoppedClock
from tests.plugins.objects import container, node, node_affinity, pod, term


class Details(msgspec.Struct):
    opens: str


class Closed(PreEnqueue, ExplainsRefusals):
    """Keeps all pods back."""

    name = "Closed"

    def __init__(self, args, handle):
        pass

    def pre_enqueue(self, pod):
        return Status(Code.UNRESOLVABLE, ("closed",))

    def explain_refusal(self, pod):
        return Details("at nine")


def explained(wanted, *nodes, plugins=()):
    offline = OfflineScheduler(
        resolved_with(DEFAULT_CONFIG, plugins),
        registry_with(plugins),
        [*nodes, wanted],
        clock=StoppedClock(),
        rng=Random(7),
    )
    return offline.explain("default/p")


def reasons(explanation):
    return {each.name: (each.feasible, *each.reasons) for each in explanation.nodes}


def test_the_plugin_that_keeps_a_pod_out_of_the_queue_has_its_say():
    found = explained(pod("p"), node("n"), plugins=[Closed])
    assert (found.gated_by, found.message, found.refusal, found.nodes) == ("Closed", "closed", Details("at nine"), [])


def test_where_the_nominated_node_will_do_no_other_is_looked_at():
    wanted = pod("p", container(cpu="1"))
    wanted["status"]["nominatedNodeName"] = "alder"
    found = explained(wanted, node("alder"), node("beech"))
    assert reasons(found) == {"alder": (True,), "beech": (False, NOT_LOOKED_AT)}
    assert found.any_of == ["alder"]


def test_where_it_will_not_do_all_are_looked_at():
    wanted = pod("p", container(cpu="3"))
    wanted["status"]["nominatedNodeName"] = "alder"
    found = explained(wanted, node("alder", cpu="2"), node("beech"))
    assert reasons(found) == {"alder": (False, "Insufficient cpu"), "beech": (True,)}


def test_nodes_that_the_pod_does_not_name_say_so():
    named = node_affinity([term(fields=[("metadata.name", "In", "alder")])])
    found = explained(pod("p", container(cpu="9"), affinity=named), node("alder"), node("beech"))
    assert reasons(found) == {
        "alder": (False, "Insufficient cpu"),
        "beech": (False, "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    }
