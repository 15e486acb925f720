"""Nodes to add and nodes that could go, as tables."""

from __future__ import annotations

from rich.console import Console

from koordsched.cli.capacity import Plan
from koordsched.cli.capacity_report import CapacityReport
from koordsched.cli.output import counted, table
from koordsched.cli.removal import Removable

_MOST_ROWS = 20


def print_capacity(out: Console, report: CapacityReport, *, wide: bool) -> None:
    """Prints it. `wide`: all nodes that could go, and where their pods would."""
    out.print()
    if not report.waiting:
        out.print("No node has to be added.", style="bold")
    elif not report.plans:
        out.print("No node of any group would help.", style="bold")
    else:
        _print_plans(out, report)
    for unhelped in report.unhelped:
        many = f" ({counted(unhelped.pods, 'pod')})" if unhelped.pods > 1 else ""
        out.print(f"no group helps: {unhelped.example if unhelped.pods == 1 else unhelped.workload}{many}")
        for group, reason in unhelped.reasons.items():
            out.print(f"  {group}: {reason}", soft_wrap=True)
    out.print()
    _print_removable(out, report.removable, wide=wide)


def _print_plans(out: Console, report: CapacityReport) -> None:
    costs = any(plan.cost is not None for plan in report.plans)
    rows = table("ADD", "NODES OF", *(["COST"] if costs else []), "PODS THAT RUN", "PENDING", right=_NUMBERS)
    for plan in report.plans:
        cost = [f"{plan.cost:g}" if plan.cost is not None else "-"] if costs else []
        rows.add_row(str(plan.total), _groups(plan), *cost, str(plan.run), str(plan.pending))
    out.print(rows)


_NUMBERS = ("ADD", "COST", "PODS THAT RUN", "PENDING")


def _groups(plan: Plan) -> str:
    if len(plan.nodes) == 1:
        return next(iter(plan.nodes))
    return ", ".join(f"{group} {count}" for group, count in plan.nodes.items())


def _print_removable(out: Console, removable: list[Removable], *, wide: bool) -> None:
    if not removable:
        out.print("No node of these groups could go.")
        return
    rows = table("COULD GO", "GROUP", "PODS", *(["THEY WOULD GO TO"] if wide else []), right=["PODS"])
    for node in removable if wide else removable[:_MOST_ROWS]:
        where = [", ".join(f"{pod}: {to}" for pod, to in node.pods.items()) or "-"] if wide else []
        rows.add_row(node.node, node.group, str(len(node.pods)), *where)
    out.print(rows)
    if not wide and len(removable) > _MOST_ROWS:
        out.print(f"(and {len(removable) - _MOST_ROWS} more; -o wide lists all, and where their pods would go)")
