"""Reservations: room that is kept for a pod, is used by it, and given up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from koordsched.cli.demo.stage import Stage, StageFailed
from koordsched.cli.output import table
from koordsched.plugins.reservation.kinds import AVAILABLE, RESERVATIONS

NAME, POD = "reservation-demo", "pod-demo-0"
_POD_PATH = f"/api/v1/namespaces/default/pods/{POD}"


@dataclass(frozen=True, slots=True)
class Reserved:
    """What was reserved where, and what the pod used of it: amounts by resource."""

    node: str
    held: dict[str, str]
    used: dict[str, str]


async def play(stage: Stage, examples: Path) -> Reserved:
    """Raises StageFailed, ChildFailed or InputError."""
    path = RESERVATIONS.object_path("", NAME)
    await stage.create(examples / "reservation" / f"{NAME}.yaml")
    made = await stage.until_object(
        path, lambda each: each.get("status", {}).get("phase") == AVAILABLE, f"Reservation {NAME} is Available"
    )
    await stage.create(examples / "reservation" / f"{POD}.yaml")
    used = await stage.until_object(
        path,
        lambda each: [owner["name"] for owner in each["status"].get("currentOwners") or ()] == [POD],
        f"Pod default/{POD} uses Reservation {NAME}",
    )
    pod = await stage.until_object(
        _POD_PATH, lambda each: each["status"].get("phase") == "Running", f"Pod default/{POD} runs"
    )
    node = made["status"]["nodeName"]
    if pod["spec"]["nodeName"] != node:
        raise StageFailed(f"Pod default/{POD}: on {pod['spec']['nodeName']}, not on {node}, where its room is")
    await stage.transport.request("DELETE", path)
    if await stage.get(path) is not None:
        raise StageFailed(f"Reservation {NAME}: deleted, and still there")
    left = await stage.get(_POD_PATH)
    if left is None or left["metadata"].get("deletionTimestamp") or left["status"].get("phase") != "Running":
        raise StageFailed(f"Pod default/{POD}: does not run any more without its Reservation")
    return Reserved(node, made["status"]["allocatable"], used["status"]["allocated"])


def print_reserved(out: Console, shown: Reserved) -> None:
    """The story in three lines."""
    out.print(f"{NAME} keeps room for pods labelled app=pod-demo:")
    rows = table("STEP", "OUTCOME")
    rows.add_row("created", f"Available, with {_listed(shown.held)} on {shown.node}")
    rows.add_row(f"default/{POD}", f"on {shown.node}, uses {_listed(shown.used)} of it")
    rows.add_row("deleted", f"default/{POD} runs on")
    out.print(rows)


def _listed(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items()))
