"""The loads of all nodes as one value."""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice

import msgspec

from koordsched.plugins.loadaware.columns import PLAIN, PROD
from koordsched.plugins.loadaware.loads import Loads
from koordsched.plugins.loadaware.nodeload import NodeLoad
from koordsched.plugins.loadaware.plugin import LoadAwareScheduling

_NODES_AT_ONCE = 200


class ResourceLoad(msgspec.Struct, rename="camel"):
    """One resource of a node: milli-CPU, whole units of others.

    `measured` by the newest report, `estimated` on top of it for pods that it cannot contain. `threshold` in percent of
    `total`, `prod_threshold` for pods of production; 0 for none.
    """

    resource: str
    total: int
    measured: int
    estimated: int
    threshold: int
    prod_threshold: int


class NodeReport(msgspec.Struct, rename="camel"):
    """One node. `report`: `fresh`, `expired`, or `none`; `age`: seconds since it was made, None if it does not say.

    `refuses`: whether pods that use nothing are refused. `problem`: what is wrong with the node's annotations.
    """

    node: str
    report: str
    age: int | None
    resources: list[ResourceLoad]
    refuses: bool
    problem: str


class Report(msgspec.Struct, rename="camel"):
    """All nodes, by name."""

    nodes: list[NodeReport]


def report(plugin: LoadAwareScheduling) -> Report:
    """All of it, as it is now."""
    return Report([_node(plugin.loads, load) for load in _sorted(plugin.loads)])


def reporting(plugin: LoadAwareScheduling) -> Generator[None, None, Report]:
    """The same in steps, so that other tasks run."""
    loads, nodes = iter(_sorted(plugin.loads)), []
    while some := list(islice(loads, _NODES_AT_ONCE)):
        nodes += [_node(plugin.loads, load) for load in some]
        yield
    return Report(nodes)


def _sorted(loads: Loads) -> list[NodeLoad]:
    return sorted((load for load in loads if load.row >= 0), key=lambda load: load.name)


def _node(loads: Loads, load: NodeLoad) -> NodeReport:
    measurement = load.measurement
    measured = measurement.usage if measurement is not None else None
    thresholds = load.thresholds
    numbers = zip(
        loads.resources,
        load.total,
        measured if measured is not None else (0,) * len(load.total),
        loads.sums(load).node_delta,
        thresholds.plain,
        thresholds.prod,
        strict=True,
    )
    return NodeReport(
        load.name,
        loads.states.of(load.name),
        loads.age(load),
        [ResourceLoad(*each) for each in numbers],
        any(min(loads.columns.room(load.row, kind)) < 0 for kind in (PLAIN, PROD)),
        load.problem,
    )
