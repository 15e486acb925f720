"""Elastic quotas on the command line: the trees of a report, and the refusal of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from koordsched.framework.declaration import View
from koordsched.framework.display import Line, Table
from koordsched.plugins.elasticquota.explanation import Details, Holder
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.elasticquota.reports.pages import TREES
from koordsched.plugins.elasticquota.reports.report import LoanReport, QuotaReport, Report, TreeReport, report

_MOST = 4
"""Holders named per resource of a refusal."""


def tables(shown: Report) -> Iterator[Line | Table]:
    """A line per quota and resource, quotas indented by their level; then what is wrong with quotas."""
    for number, tree in enumerate(shown.trees):
        if number:
            yield Line("")
        yield from _tree(tree)
    problems = [
        (f"{quota.namespace}/{quota.name}", quota.problems) for tree in shown.trees for _, quota in _walk(tree.quotas)
    ]
    for name, texts in [*((name, texts) for name, texts in problems if texts), *shown.unused.items()]:
        yield Line(f"{name}: {'; '.join(texts)}")
    for name, pods in shown.unknown.items():
        yield Line(f"There is no quota {name}, which {pods} {'pod' if pods == 1 else 'pods'} named.")


def _tree(tree: TreeReport) -> Iterator[Line | Table]:
    title = f"Tree {tree.id}" if tree.id else "Default tree"
    total = ", ".join(f"{name} {amount}" for name, amount in tree.total.items())
    yield Line(f"{title}: {total or 'nothing'} to distribute", bold=True)
    rows: list[tuple[str, ...]] = []
    for level, quota in _walk(tree.quotas):
        name, pods = "  " * level + quota.name, f"{quota.running}/{quota.pods}"
        if not quota.resources:
            rows.append((name, pods, "-", "", "", "", "", "", ""))
        for line in quota.resources:
            numbers = line.min, line.max or "-", line.runtime or "-", line.request, line.used
            loans = "; ".join([*_texts("borrows", "from", line.borrows), *_texts("lends", "to", line.lends)])
            rows.append((name, pods, line.resource, *numbers, loans))
            name = pods = ""
    figures = "MIN", "MAX", "RUNTIME", "REQUEST", "USED"
    yield Table(("QUOTA", "PODS", "RESOURCE", *figures, "LOANS"), rows, numbers=("PODS", *figures))


def _texts(verb: str, preposition: str, loans: list[LoanReport]) -> list[str]:
    if not loans:
        return []
    sources = (f"{preposition} {loan.quota}" if loan.quota else "that belongs to no quota" for loan in loans)
    parts = (f"{loan.amount} {source}" for loan, source in zip(loans, sources, strict=True))
    return [f"{verb} {', '.join(parts)}"]


def _walk(quotas: list[QuotaReport], level: int = 0) -> Iterator[tuple[int, QuotaReport]]:
    for quota in quotas:
        yield level, quota
        yield from _walk(quota.children, level + 1)


def refusal_table(values: Any) -> list[Line | Table]:
    """Which quota lacks what. `values`: `Details` as JSON values. Raises msgspec.ValidationError if they are not."""
    details = msgspec.convert(values, Details)
    above = "" if details.quota == details.pods_quota else f", which is above the pod's quota {details.pods_quota},"
    bound = {"runtime": "may use now", "max": "may use at most", "min": "has for pods that must not be preempted"}
    figures = "MISSING", "LIMIT", "USED", "REQUESTED"
    rows = [
        (line.resource, line.missing, line.limit, line.used, line.requested, _named(line.held_by), _named(line.lent_to))
        for line in details.dimensions
    ]
    return [
        Line(f"Quota {details.quota}{above} has no room for it.", bold=True),
        Table(("RESOURCE", *figures, "HELD BY", "LENT TO"), rows, numbers=figures),
        Line(f"(limit = what the quota {bound.get(details.bound, details.bound)})"),
    ]


def _named(holders: list[Holder]) -> str:
    shown = [f"{holder.name} {holder.amount}" for holder in holders[:_MOST]]
    rest = len(holders) - _MOST
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _report(plugin: ElasticQuota) -> Report:
    return report(plugin.books)


VIEW = View(
    group="quota",
    group_help="Look at elastic quotas.",
    name="tree",
    help="""Show the trees of quotas: min, max, runtime, request and usage of each, and loans between them.

    Asks a running scheduler, or, with -f, counts what is in files.
    """,
    title="a report on quotas",
    page=TREES,
    type=Report,
    report=_report,
    show=tables,
)
