"""Pages about devices: upstream's, and our own."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from koordsched.framework.declaration import Page
from koordsched.plugins.deviceshare.plugin import DeviceShare
from koordsched.plugins.deviceshare.reports.report import NodeReport, Overview, overviewing, report_on
from koordsched.plugins.deviceshare.reports.summary import all_summaries, node_summary

NODES = "/debug/devices"
NODE = NODES + "/{name}"
UPSTREAM = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"


def _overview(plugin: DeviceShare, parameters: Mapping[str, str]) -> Generator[None, None, Overview]:
    """All nodes."""
    return overviewing(plugin)


def _report(plugin: DeviceShare, parameters: Mapping[str, str]) -> NodeReport:
    """One node, device by device. Raises NotFound for one that is unknown."""
    return report_on(plugin, parameters["name"])


PAGES = (
    Page(NODES, _overview),
    Page(NODE, _report),
    Page(UPSTREAM, all_summaries),
    Page(UPSTREAM + "/{name}", node_summary),
)
