"""Pages about loads: one node as upstream's plugin shows it, and all nodes.

Source of the path under /apis: loadaware spec 3.6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any

from koordsched.api.quantity import format_bytes, format_nano
from koordsched.framework.declaration import Page
from koordsched.plugins.loadaware.estimation import Vector
from koordsched.plugins.loadaware.loads import Loads
from koordsched.plugins.loadaware.nodeload import NodeLoad
from koordsched.plugins.loadaware.plugin import LoadAwareScheduling
from koordsched.plugins.loadaware.reports.report import Report, reporting

NODES = "/debug/load"
_UPSTREAM = "/apis/v1/plugins/LoadAwareScheduling/node/{name}"


def _node(plugin: LoadAwareScheduling, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One node; `{}` for an unknown one. Without a report its vectors are empty."""
    load = plugin.loads.of_node(parameters["name"])
    return _summary(plugin.loads, load) if load is not None else {}


def _summary(loads: Loads, load: NodeLoad) -> dict[str, Any]:
    pods = sorted((loads.times_of(pod)[0], pod.key, pod) for pod in loads.pods_on(load))
    shown: dict[str, Any] = {
        "pods": [{"timestamp": _time(placed), "pod": _identity(pod.namespace, pod.name)} for placed, _, pod in pods]
    }
    if load.measurement is None:
        return shown
    sums = loads.sums(load)
    added = {key: loads.contribution_of(load, pod) for _, key, pod in pods}
    return shown | {
        "prodUsage": amounts(loads, sums.prod_usage),
        "nodeDelta": amounts(loads, sums.node_delta),
        "prodDelta": amounts(loads, sums.prod_delta),
        "nodeEstimated": amounts(loads, sums.estimated),
        "nodeDeltaPods": sorted(key for key, each in added.items() if each.node_delta is not None),
        "prodDeltaPods": sorted(key for key, each in added.items() if each.prod_delta is not None),
        "nodeEstimatedPods": sorted(key for key, each in added.items() if each.estimated is not None),
    }


def _identity(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def amounts(loads: Loads, vector: Vector) -> dict[str, str]:
    """A vector as quantities."""
    return {
        name: format_nano(amount * 10**6) if name == "cpu" else format_bytes(amount)
        for name, amount in zip(loads.resources, vector, strict=True)
    }


def _nodes(plugin: LoadAwareScheduling, parameters: Mapping[str, str]) -> Generator[None, None, Report]:
    """All nodes."""
    return reporting(plugin)


PAGES = (Page(NODES, _nodes), Page(_UPSTREAM, _node))
