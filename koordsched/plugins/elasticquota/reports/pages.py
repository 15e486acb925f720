"""Pages about elastic quotas: the trees with their loans, and quota by quota as upstream's plugin shows them.

Source of the paths under /apis: elasticquota spec 3.19.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from koordsched.framework.declaration import NotFound, Page
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.elasticquota.reports.report import Report, reporting
from koordsched.plugins.elasticquota.reports.summary import summaries, summary

TREES = "/debug/quota"
_UPSTREAM = "/apis/v1/plugins/ElasticQuota/quotas"


def _trees(plugin: ElasticQuota, parameters: Mapping[str, str]) -> Generator[None, None, Report]:
    """All trees, with loans."""
    return reporting(plugin.books)


def _all(plugin: ElasticQuota, parameters: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """All quotas by name, or those of `?tree=<id>`; with pods for `?includePods=true`."""
    return summaries(plugin.books, parameters.get("tree"), pods=_with_pods(parameters))


def _one(plugin: ElasticQuota, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One quota. Raises NotFound."""
    name = parameters["name"]
    quota = plugin.books.quota(name)
    if quota is None:
        raise NotFound(f"cannot find quota {name}")
    return summary(plugin.books, quota, pods=_with_pods(parameters))


def _with_pods(parameters: Mapping[str, str]) -> bool:
    return parameters.get("includePods") == "true"


PAGES = (Page(TREES, _trees), Page(_UPSTREAM, _all), Page(_UPSTREAM + "/{name}", _one))
