"""What is known of nodes, and who has CPUs: the metrics of NodeNUMAResource."""

import asyncio
import copy
import json

import numpy as np
import pytest

from koordsched.cli.pluginmetrics import observe_plugins
from koordsched.plugins.nodenumaresource import reportstates
from koordsched.plugins.nodenumaresource.metrics import conflicting_cpus, cpus
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.harness import Bench
from tests.plugins.loadaware.running import remove
from tests.plugins.nodenumaresource.machines import detail, holder, node, topology
from tests.plugins.nodenumaresource.randomstates import random_state
from tests.virtualtime import run

ENABLED = {"filter": {"enabled": [{"name": "NodeNUMAResource"}]}}
CONFIG = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler", "plugins": ENABLED}]}
POLICY = {"node.koordinator.sh/numa-topology-policy": "Restricted"}


def named(name, thing, **labels):
    """The object as one of another name."""
    return {**thing, "metadata": {**thing["metadata"], "name": name, "labels": labels}}


def report(name):
    """A report about a machine of 8 CPUs, of which CPU 0 is reserved."""
    reserved = {"kubelet.koordinator.sh/cpu-manager-policy": {"policy": "none", "reservedCPUs": "0"}}
    return named(name, topology(detail(1, 1, 4), [("8", "64Gi")], annotations=reserved))


def on(node_name, thing):
    """The pod on another node."""
    return {**thing, "spec": {**thing["spec"], "nodeName": node_name}}


def exposed(metrics, name):
    """Label `state`, or "", -> value."""
    samples = [sample for metric in metrics.collect() for sample in metric.samples if sample.name == name]
    return {sample.labels.get("state", ""): sample.value for sample in samples}


def test_nodes_and_cpus_of_a_running_scheduler():
    async def main():
        embedded = Embedded()
        labels = {"ash": {}, "elm": {}, "oak": POLICY, "yew": {}}
        for thing in (*custom_resources(), *(named(name, node(), **of) for name, of in labels.items())):
            embedded.insert(thing)
        async with scheduler_on(embedded, CONFIG) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)

            def shown():
                names = "koordsched_numa_nodes", "koordsched_numa_cpus", "koordsched_numa_conflicting_cpus"
                nodes, cpus, conflicts = (exposed(metrics, name) for name in names)
                return nodes, cpus, conflicts[""]

            async def settled():
                await asyncio.sleep(2)
                return shown()

            nodes = {"none": 3, "valid": 0, "invalid": 0, "missing": 1}
            assert shown() == (nodes, {"held": 0, "reserved": 0, "free": 0}, 0)
            embedded.insert(report("ash"))
            embedded.insert(report("nowhere"))
            broken = report("elm")
            broken["metadata"]["annotations"] = {"node.koordinator.sh/cpu-topology": "{"}
            embedded.insert(broken)
            nodes = {"none": 1, "valid": 1, "invalid": 1, "missing": 1}
            assert await settled() == (nodes, {"held": 0, "reserved": 1, "free": 7}, 0)
            embedded.insert(on("ash", holder("a", "2-4")))
            embedded.insert(on("ash", holder("b", "0,4,70")))
            embedded.insert(on("yew", holder("c", "2-4")))
            embedded.insert(on("yew", holder("d", "3-4")))
            nodes = {"none": 0, "valid": 1, "invalid": 1, "missing": 2}
            assert await settled() == (nodes, {"held": 4, "reserved": 0, "free": 4}, 3)
            remove(embedded, holder("b"))
            remove(embedded, named("yew", node()))
            nodes = {"none": 0, "valid": 1, "invalid": 1, "missing": 1}
            assert await settled() == (nodes, {"held": 3, "reserved": 1, "free": 4}, 0)

    run(main())


def test_without_the_plugin_there_are_none():
    async def main():
        async with scheduler_on(Embedded()) as running:
            metrics = running.scheduler.metrics
            observe_plugins(metrics, running.scheduler.profiles)
            assert exposed(metrics, "koordsched_numa_nodes") == {}

    run(main())


def test_a_report_that_says_nothing_is_one():
    bench = Bench()
    plugin = bench.plugin("NodeNUMAResource", bench.typed_args("NodeNUMAResource", {}))
    bench.add(node())
    assert reportstates.state_of(plugin.columns, 0) == "none"
    bench.add(topology(None))
    assert reportstates.state_of(plugin.columns, 0) == "invalid"
    bench.remove(topology(None))
    assert reportstates.state_of(plugin.columns, 0) == "none"


@pytest.mark.parametrize("seed", range(30))
def test_cpus_as_counted_one_by_one(seed):
    """Random states, with the CPUs of some nodes beyond those that pods hold, and of other nodes the reverse."""
    state, bench = random_state(seed), Bench()
    plugin = bench.plugin("NodeNUMAResource", bench.typed_args("NodeNUMAResource", state.args))
    running = [thing for thing in state.bound if thing["status"]["phase"] == "Running"]
    for thing in (*state.nodes, *state.topologies, *running):
        bench.add(thing)
    if seed % 2:
        wide = copy.deepcopy(named("wide", topology(detail(2, 4, 32))))
        for thing in (named("wide", node()), wide):
            bench.add(thing)
    found, conflicts, columns = {"held": 0, "reserved": 0, "free": 0}, 0, plugin.columns
    for row in bench.rows.tolist():
        holds = np.zeros(4096, dtype=int)
        for _, given in plugin.allocations_on(row):
            for cpu in range(given.cpus.bit_length()):
                holds[cpu] += given.cpus >> cpu & 1
        conflicts += int((holds > 1).sum())
        layout = columns.layout(row)
        for cpu in layout.topology.members if layout is not None else ():
            reserved = layout.reserved >> cpu.id & 1
            found["held" if holds[cpu.id] else "reserved" if reserved else "free"] += 1
    assert cpus(columns) == found
    assert conflicting_cpus(columns) == conflicts
    assert sum(reportstates.counts(columns).values()) == len(bench.rows)
    assert json.dumps(found)  # plain numbers
