"""What the controllers write, and what comes of writes that fail."""

import asyncio
import json

import pytest

from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.observability.metrics import Metrics
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.controller import CircuitBreakerController
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker
from koordsched.plugins.workloadquarantine.controller import QuarantineController
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from tests.plugins.nodecircuitbreaker.machine import Machine
from tests.plugins.workloadquarantine import machine as quarantine_machine
from tests.plugins.workloadquarantine.test_cases import felled


class Writes:
    """Keeps what is written, unless it is told to refuse that."""

    def __init__(self):
        self.refuses = False
        self.written = []

    async def merge(self, kind, meta, changes):
        if self.refuses:
            raise WriteFailed("forbidden")
        self.written.append((kind.plural, meta.name, changes["metadata"]["annotations"]))


def handle(machine, writes, metrics=None):
    metrics = metrics or Metrics(process_metrics=False)
    return ControllerHandle(machine.cluster, writes, machine.reporter, machine.clock, metrics, (), {}, None)


def test_breakers_are_written_until_they_are():
    machine, writes = Machine(), Writes()
    plugin = NodeCircuitBreaker(machine.breakers.args, machine.handle)
    controller = CircuitBreakerController(plugin, machine.breakers.args, handle(machine, writes))
    machine.node("a")
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    writes.refuses = True
    asyncio.run(controller.look())
    asyncio.run(controller.look())
    assert (writes.written, list(machine.breakers.unwritten)) == ([], ["a"])
    writes.refuses = False
    asyncio.run(controller.look())
    asyncio.run(controller.look())
    [(plural, name, annotations)] = writes.written
    assert (plural, name) == ("nodes", "a")
    assert json.loads(annotations["koordsched.io/circuit-breaker"])["state"] == "open"
    # A node that is gone is not written to.
    machine.wait(60)
    machine.cluster.remove_node("a")
    asyncio.run(controller.look())
    assert len(writes.written) == 1
    assert not machine.breakers.unwritten


def test_what_a_leader_finds_unwritten_is_written():
    machine, writes = Machine(), Writes()
    plugin = NodeCircuitBreaker(machine.breakers.args, machine.handle)
    controller = CircuitBreakerController(plugin, machine.breakers.args, handle(machine, writes))
    machine.node("a", written='{"state":"open"}')

    async def lead():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(controller.run(), 0.01)

    asyncio.run(lead())
    assert writes.written == []
    machine.node("a", written="nonsense")
    asyncio.run(controller.look())
    [(_, _, annotations)] = writes.written
    assert json.loads(annotations["koordsched.io/circuit-breaker"])["state"] == "open"


def test_a_breaker_that_closes_before_its_opening_is_seen_is_written_closed():
    """The node bears nothing yet, as it should; then it bears what was written before."""
    machine, writes = Machine(NodeCircuitBreakerArgs(owner_nodes=1)), Writes()
    plugin = NodeCircuitBreaker(machine.breakers.args, machine.handle)
    controller = CircuitBreakerController(plugin, machine.breakers.args, handle(machine, writes))
    machine.node("a")
    machine.node("b")
    for n in range(3):
        machine.fails(f"p{n}", "a", f"o{n}")
    machine.wait()
    asyncio.run(controller.look())
    [(_, _, annotations)] = writes.written
    machine.fails("q", "b", "o0")  # so o0 fails everywhere, and says nothing about nodes
    machine.wait()
    assert machine.state("a") == "closed"
    asyncio.run(controller.look())
    machine.node("a", written=annotations["koordsched.io/circuit-breaker"])
    assert machine.state("a") == "closed"
    asyncio.run(controller.look())
    assert writes.written[1:] == [("nodes", "a", {"koordsched.io/circuit-breaker": None})]
    machine.node("a")
    asyncio.run(controller.look())
    assert len(writes.written) == 2
    assert not machine.breakers.unwritten


def test_quarantines_are_written_until_they_are():
    machine, writes = quarantine_machine.Machine(), Writes()
    plugin = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    controller = QuarantineController(plugin, machine.quarantines.args, handle(machine, writes))
    machine.nodes(100)
    felled(machine, 2)
    # Without its namespace there is nothing to write to, and the quarantine holds.
    asyncio.run(controller.look())
    assert (writes.written, machine.held()) == ([], ["bomb"])
    machine.namespace()
    machine.quarantines.unwritten |= dict.fromkeys(machine.quarantines.held)
    writes.refuses = True
    asyncio.run(controller.look())
    writes.refuses = False
    asyncio.run(controller.look())
    assert not machine.quarantines.unwritten
    [(plural, name, annotations)] = writes.written
    assert (plural, name, list(annotations)) == ("namespaces", "default", ["quarantine.koordsched.io/statefulset.bomb"])
    machine.write()
    machine.wait(machine.quarantines.args.cool_down.seconds)
    asyncio.run(controller.look())
    assert writes.written[1] == ("namespaces", "default", {"quarantine.koordsched.io/statefulset.bomb": None})


def test_an_annotation_that_says_nothing_is_taken_away_until_it_is():
    machine, writes = quarantine_machine.Machine(), Writes()
    plugin = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    controller = QuarantineController(plugin, machine.quarantines.args, handle(machine, writes))
    key = "quarantine.koordsched.io/statefulset.bomb"
    machine.namespace(**{key.replace("/", "__"): "{"})
    writes.refuses = True
    asyncio.run(controller.look())
    writes.refuses = False
    asyncio.run(controller.look())
    asyncio.run(controller.look())
    assert writes.written == [("namespaces", "default", {key: None})]


def test_metrics_of_breakers_and_quarantines():
    leading = True
    metrics = Metrics(process_metrics=False, leads=lambda: leading)
    broken, machine = Machine(), quarantine_machine.Machine()
    breaker = NodeCircuitBreaker(broken.breakers.args, broken.handle)
    CircuitBreakerController(breaker, broken.breakers.args, handle(broken, None, metrics))
    quarantine = WorkloadQuarantine(machine.quarantines.args, machine.handle)
    QuarantineController(quarantine, machine.quarantines.args, handle(machine, None, metrics))
    value = metrics.registry.get_sample_value
    machine.nodes(100)
    machine.namespace()
    felled(machine, 2)
    broken.node("a", written='{"state":"half-open"}')
    assert broken.place("probe", "a")
    broken.fails("probe", "a")
    broken.wait()
    assert value("koordsched_quarantined_workloads") == 1
    assert value("koordsched_quarantines_total", {"to": "quarantined"}) == 1
    assert value("koordsched_circuit_breakers", {"state": "open"}) == 1
    assert value("koordsched_circuit_breaker_transitions_total", {"to": "open"}) == 1
    leading = False
    assert value("koordsched_quarantined_workloads") is None
    assert value("koordsched_circuit_breakers", {"state": "open"}) is None
    assert value("koordsched_quarantines_total", {"to": "quarantined"}) == 1
