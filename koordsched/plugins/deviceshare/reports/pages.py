"""Pages about devices: upstream's, and our own."""

from __future__ import annotations

from koordsched.framework.declaration import Page, report_pages
from koordsched.plugins.deviceshare.reports.report import overviewing, report_on
from koordsched.plugins.deviceshare.reports.summary import all_summaries, node_summary

NODES = "/debug/devices"
NODE = NODES + "/{name}"
UPSTREAM = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"


PAGES = (
    *report_pages(NODES, overviewing, report_on),
    Page(UPSTREAM, all_summaries),
    Page(UPSTREAM + "/{name}", node_summary),
)
