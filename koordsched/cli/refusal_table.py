"""What a plugin says about its refusal of a pod: a table for elastic quotas, as it comes for others."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import msgspec
import yaml
from rich.console import Console

from koordsched.cli.output import table
from koordsched.plugins.elasticquota.explanation import Details, Holder

_NUMBERS = ("MISSING", "LIMIT", "USED", "REQUESTED")
_MOST = 4
"""Holders named per resource."""


def print_refusal(out: Console, plugin: str, refusal: Any) -> None:
    """Prints it; `refusal` is what the plugin answered, or that as JSON values."""
    values = msgspec.to_builtins(refusal)
    if plugin == "ElasticQuota":
        try:
            _print_quota(out, msgspec.convert(values, Details))
            return
        except msgspec.ValidationError:
            pass  # of a scheduler of another version: shown as it is
    out.print(f"{plugin} says:", style="bold")
    out.print(indent(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), "  "), end="")


def _print_quota(out: Console, details: Details) -> None:
    above = "" if details.quota == details.pods_quota else f", which is above the pod's quota {details.pods_quota},"
    bound = {"runtime": "may use now", "max": "may use at most", "min": "has for pods that must not be preempted"}
    out.print(f"Quota {details.quota}{above} has no room for it.", style="bold", soft_wrap=True)
    rows = table("RESOURCE", *_NUMBERS, "HELD BY", "LENT TO", right=_NUMBERS)
    for line in details.dimensions:
        numbers = line.missing, line.limit, line.used, line.requested
        rows.add_row(line.resource, *numbers, _named(line.held_by), _named(line.lent_to))
    out.print(rows)
    out.print(f"(limit = what the quota {bound.get(details.bound, details.bound)})")


def _named(holders: list[Holder]) -> str:
    shown = [f"{holder.name} {holder.amount}" for holder in holders[:_MOST]]
    rest = len(holders) - _MOST
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
