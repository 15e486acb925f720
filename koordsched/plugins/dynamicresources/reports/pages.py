"""Pages about the devices of ResourceSlices."""

from __future__ import annotations

from koordsched.framework.declaration import report_pages
from koordsched.plugins.dynamicresources.reports.report import overviewing, reporting_on

POOLS = "/debug/resourcepools"
NODE = POOLS + "/{name}"

PAGES = report_pages(POOLS, overviewing, reporting_on)
