"""Pages about gangs: upstream's, and our own."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from koordsched.framework.declaration import Page
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.reports import upstream
from koordsched.plugins.coscheduling.reports.report import GangReport, Overview, overviewing, report_on

ALL = "/debug/gangs"
ONE = ALL + "/{name}"
"""The name has its slash encoded."""

UPSTREAM = "/apis/v1/plugins/Coscheduling"


def _overview(plugin: Coscheduling, parameters: Mapping[str, str]) -> Generator[None, None, Overview]:
    """All of them."""
    return overviewing(plugin)


def _report(plugin: Coscheduling, parameters: Mapping[str, str]) -> GangReport:
    """One of them. Raises NotFound."""
    return report_on(plugin, parameters["name"])


PAGES = (
    Page(ALL, _overview),
    Page(ONE, _report),
    Page(UPSTREAM + "/gangs", upstream.gangs),
    Page(UPSTREAM + "/gang/{namespace}/{name}", upstream.gang),
)
