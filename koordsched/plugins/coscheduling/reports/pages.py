"""Pages about gangs: upstream's, and our own."""

from __future__ import annotations

from koordsched.framework.declaration import Page, report_pages
from koordsched.plugins.coscheduling.reports import upstream
from koordsched.plugins.coscheduling.reports.report import overviewing, report_on

ALL = "/debug/gangs"
ONE = ALL + "/{name}"
"""The name has its slash encoded."""

UPSTREAM = "/apis/v1/plugins/Coscheduling"


PAGES = (
    *report_pages(ALL, overviewing, report_on),
    Page(UPSTREAM + "/gangs", upstream.gangs),
    Page(UPSTREAM + "/gang/{namespace}/{name}", upstream.gang),
)
