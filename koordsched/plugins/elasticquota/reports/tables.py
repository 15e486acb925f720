"""Elastic quotas on the command line: the trees of a report, and the refusal of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from koordsched.framework.declaration import View
from koordsched.framework.display import Line, Table, amount_text
from koordsched.plugins.elasticquota.arithmetic.trees import BUILT_IN
from koordsched.plugins.elasticquota.explanation import Details, Holder
from koordsched.plugins.elasticquota.plugin import ElasticQuota
from koordsched.plugins.elasticquota.reports.pages import TREES
from koordsched.plugins.elasticquota.reports.report import (
    LoanReport,
    QuotaReport,
    Report,
    ResourceReport,
    TreeReport,
    report,
)

_MOST = 4
"""Holders named per resource of a refusal."""


def without_built_in(shown: Report) -> Report:
    """The same without the quotas that the scheduler makes, unless something is wrong with them."""
    trees = [
        msgspec.structs.replace(
            tree, quotas=[each for each in tree.quotas if each.name not in BUILT_IN or each.problems]
        )
        for tree in shown.trees
    ]
    return msgspec.structs.replace(shown, trees=trees)


def tables(shown: Report) -> Iterator[Line | Table]:
    """A line per quota and resource, quotas indented by their level; then what is wrong with quotas."""
    for number, tree in enumerate(shown.trees):
        if number:
            yield Line("")
        yield from _tree(tree)
    quotas = [quota for tree in shown.trees for _, quota in _walk(tree.quotas)]
    for quota in quotas:
        yield from _above_max(quota)
    problems = [(f"{quota.namespace}/{quota.name}", quota.problems) for quota in quotas]
    for name, texts in [*((name, texts) for name, texts in problems if texts), *shown.unused.items()]:
        yield Line(f"{name}: {'; '.join(texts)}")
    for name, pods in shown.unknown.items():
        yield Line(f"Quota {name} does not exist; {pods} {'pod names' if pods == 1 else 'pods name'} it.")


def _above_max(quota: QuotaReport) -> Iterator[Line]:
    why = "quotas below it got their min back" if quota.children else "its max was lowered"
    for line in quota.resources:
        if line.above_max:
            amount = amount_text(line.resource, line.above_max)
            yield Line(f"{quota.name} uses {amount} {line.resource} above max: {why}.")


def _tree(tree: TreeReport) -> Iterator[Line | Table]:
    title = f"Tree {tree.id}" if tree.id else "Default tree"
    total = ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in tree.total.items())
    yield Line(f"{title}: {total or 'nothing'} to distribute", bold=True)
    rows: list[tuple[str, ...]] = []
    for level, quota in _walk(tree.quotas):
        members = [each for _, each in _walk([quota])]
        name = "  " * level + quota.name
        pods = f"{sum(each.running for each in members)}/{sum(each.pods for each in members)}"
        if not quota.resources:
            rows.append((name, pods, "-", "", "", "", "", "", ""))
        for line in quota.resources:
            amounts = line.min, line.max, line.runtime, line.request, line.used
            numbers = (amount_text(line.resource, amount) if amount else "-" for amount in amounts)
            rows.append((name, pods, line.resource, *numbers, "; ".join(_loans(line))))
            name = pods = ""
    figures = "MIN", "MAX", "RUNTIME", "REQUEST", "USED"
    yield Table(("QUOTA", "PODS", "RESOURCE", *figures, "LOANS"), rows, numbers=("PODS", *figures))


def _loans(line: ResourceReport) -> Iterator[str]:
    yield from _texts("borrows", "from", line.resource, line.borrows)
    yield from _texts("lends", "to", line.resource, line.lends)
    if line.above_max:
        yield f"{amount_text(line.resource, line.above_max)} above max"


def _texts(verb: str, preposition: str, resource: str, loans: list[LoanReport]) -> list[str]:
    if not loans:
        return []
    sources = (f"{preposition} {loan.quota}" if loan.quota else "that belongs to no quota" for loan in loans)
    parts = (f"{amount_text(resource, loan.amount)} {source}" for loan, source in zip(loans, sources, strict=True))
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
        (
            line.resource,
            *(amount_text(line.resource, each) for each in (line.missing, line.limit, line.used, line.requested)),
            _named(line.resource, line.held_by),
            _named(line.resource, line.lent_to),
        )
        for line in details.dimensions
    ]
    return [
        Line(f"Quota {details.quota}{above} has no room for this pod.", bold=True),
        Table(("RESOURCE", *figures, "HELD BY", "LENT TO"), rows, numbers=figures),
        Line(f"(limit = what the quota {bound.get(details.bound, details.bound)})"),
    ]


def _named(resource: str, holders: list[Holder]) -> str:
    shown = [f"{holder.name} {amount_text(resource, holder.amount)}" for holder in holders[:_MOST]]
    rest = len(holders) - _MOST
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _report(plugin: ElasticQuota) -> Report:
    return report(plugin.books)


VIEW = View(
    group="quota",
    group_help="Show elastic quotas.",
    name="tree",
    help="""Show the quota trees: min, max, runtime, requests and usage of each quota, and loans between quotas.

    Reads the cluster of the kubeconfig, or files (-f), or asks a running scheduler (--live).
    """,
    title="a report on quotas",
    page=TREES,
    type=Report,
    report=_report,
    show=tables,
    brief=without_built_in,
)
