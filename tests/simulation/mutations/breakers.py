"""Circuit breakers of nodes, and quarantines of workloads."""

from koordsched.framework.status import SKIP, SUCCESS
from koordsched.plugins.nodecircuitbreaker.breakers import Breakers
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker
from koordsched.plugins.nodecircuitbreaker.probes import Probes
from koordsched.plugins.nodecircuitbreaker.zones import Zones
from koordsched.plugins.workloadquarantine import falls
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from koordsched.plugins.workloadquarantine.quarantines import Quarantines
from tests.simulation.mutations.registry import mutation

# --- breakers ---------------------------------------------------------------------------------------


@mutation(NodeCircuitBreaker, "reserve")
def probes_not_counted(original):
    return lambda self, cycle, pod, row: SUCCESS


@mutation(Breakers, "_adopt")
def breakers_of_others_ignored(original):
    return lambda self, row, node, text: None


@mutation(Zones, "most_in")
def any_share_of_nodes_may_be_refused(original):
    return lambda self, zone: 1000


@mutation(Breakers, "_suffices")
def failures_of_pods_ignored(original):
    return lambda self, case: False


@mutation(Breakers, "_announce")
def nodes_that_let_pods_pass_again_not_told(original):
    return lambda self, row: None


@mutation(Probes, "runs")
def probes_that_run_prove_nothing(original):
    return lambda self, uid, probe, pod, now: None


# --- quarantines ------------------------------------------------------------------------------------


@mutation(WorkloadQuarantine, "pre_filter")
def quarantines_not_asked(original):
    return lambda self, cycle, pod: SKIP


@mutation(Quarantines, "_adopt")
def quarantines_of_others_ignored(original):
    return lambda self, namespace, key, text: None


@mutation(Quarantines, "_chance")
def every_fall_taken_for_chance(original):
    return lambda self, workload, placed: None


@mutation(falls, "_EVERYWHERE")
def daemons_suspected(original):
    return ()


@mutation(Quarantines, "_release")
def end_of_a_quarantine_not_told(original):
    def release(self, workload):
        announce, self.cluster.announce = self.cluster.announce, lambda *event: None
        try:
            original(self, workload)
        finally:
            self.cluster.announce = announce

    return release


@mutation(Quarantines, "shown")
def quarantines_believed_to_be_written(original):
    return lambda self, workload: self.annotation(workload)
