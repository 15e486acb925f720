"""A report on quotas as a table: a line per quota and resource, quotas indented by their level."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from koordsched.cli.output import counted, table
from koordsched.controllers.elasticquota.report import LoanReport, QuotaReport, Report, TreeReport

_NUMBERS = ("PODS", "MIN", "MAX", "RUNTIME", "REQUEST", "USED")


def print_report(out: Console, report: Report) -> None:
    """Prints all of it."""
    for number, tree in enumerate(report.trees):
        if number:
            out.print()
        _print_tree(out, tree)
    problems = [
        (f"{quota.namespace}/{quota.name}", quota.problems) for tree in report.trees for _, quota in _walk(tree.quotas)
    ]
    for name, texts in [*((name, texts) for name, texts in problems if texts), *report.unused.items()]:
        out.print(f"{name}: {'; '.join(texts)}", soft_wrap=True)
    for name, pods in report.unknown.items():
        out.print(f"There is no quota {name}, which {counted(pods, 'pod')} named.", soft_wrap=True)


def _print_tree(out: Console, tree: TreeReport) -> None:
    title = f"Tree {tree.id}" if tree.id else "Default tree"
    total = ", ".join(f"{name} {amount}" for name, amount in tree.total.items())
    out.print(f"{title}: {total or 'nothing'} to distribute", style="bold", soft_wrap=True)
    rows = table("QUOTA", "PODS", "RESOURCE", "MIN", "MAX", "RUNTIME", "REQUEST", "USED", "LOANS", right=_NUMBERS)
    for level, quota in _walk(tree.quotas):
        name, pods = "  " * level + quota.name, f"{quota.running}/{quota.pods}"
        if not quota.resources:
            rows.add_row(name, pods, "-", "", "", "", "", "", "")
        for line in quota.resources:
            loans = "; ".join([*_texts("borrows", "from", line.borrows), *_texts("lends", "to", line.lends)])
            rows.add_row(
                name,
                pods,
                line.resource,
                line.min,
                line.max or "-",
                line.runtime or "-",
                line.request,
                line.used,
                loans,
            )
            name = pods = ""
    out.print(rows)


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
