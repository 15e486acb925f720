"""Devices that pods claim: a pod waits for one until it is freed, and two share one that is partitioned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from koordsched.cli.demo.stage import Stage, StageFailed
from koordsched.cli.output import table

NODE = "large-0"
_PODS = "/api/v1/namespaces/demo/pods"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims"
_FIRST, _SECOND, _WAITING = "render-a", "render-b", "render-c"
_HALVES = ("preview-a", "preview-b")
_WAITS = "cannot allocate all claims"


@dataclass(frozen=True, slots=True)
class Claims:
    """`devices`: what each pod got. `message`: why one had to wait."""

    devices: dict[str, str]
    message: str


async def play(stage: Stage, examples: Path) -> Claims:
    """Raises StageFailed, ChildFailed or InputError."""
    folder = examples / "dra" / "demo"
    await stage.create(folder / "10-cards.yaml")
    devices = {name: await _device(stage, name) for name in (_FIRST, _SECOND)}
    await stage.create(folder / "20-waiting.yaml")
    waiting = await stage.until_object(
        f"{_PODS}/{_WAITING}", lambda pod: _WAITS in _message(pod), f"Pod demo/{_WAITING} waits for a card"
    )
    await stage.transport.request("DELETE", f"{_PODS}/{_FIRST}")
    devices[_WAITING] = await _device(stage, _WAITING)
    if devices[_WAITING] != devices[_FIRST]:
        raise StageFailed(f"Pod demo/{_WAITING}: has {devices[_WAITING]}, not {devices[_FIRST]}, which was freed")
    await stage.create(folder / "30-halves.yaml")
    devices |= {name: await _device(stage, name) for name in _HALVES}
    if len({devices[name] for name in (_SECOND, _WAITING, *_HALVES)}) < 4:
        raise StageFailed(f"pods have the same device: {devices}")
    return Claims(devices, _message(waiting))


async def _device(stage: Stage, name: str) -> str:
    """What the claim of a pod has, once the pod runs. Raises StageFailed, ChildFailed."""
    pod = await stage.until_object(
        f"{_PODS}/{name}", lambda each: each["status"].get("phase") == "Running", f"Pod demo/{name} runs"
    )
    (named,) = pod["status"]["resourceClaimStatuses"]
    claim = await stage.get(f"{_CLAIMS}/{named['resourceClaimName']}")
    if claim is None:
        raise StageFailed(f"Pod demo/{name}: runs without its claim")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return f"{result['driver']}/{result['pool']}/{result['device']}"


def _message(pod: dict[str, Any]) -> str:
    """Why a pod waits; "" if it does not."""
    conditions = pod["status"].get("conditions") or ()
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def print_claims(out: Console, shown: Claims) -> None:
    """A line for each pod."""
    out.print(f"{NODE} has two cards that pods claim, and one that can be partitioned:")
    rows = table("POD", "DEVICE", "OUTCOME")
    outcomes = {
        _FIRST: "ran, and was deleted",
        _SECOND: "runs",
        _WAITING: f"waited until demo/{_FIRST} was deleted",
        **dict.fromkeys(_HALVES, "runs on a half"),
    }
    for name, outcome in outcomes.items():
        rows.add_row(f"demo/{name}", shown.devices[name], outcome)
    out.print(rows)
    out.print(f"While demo/{_WAITING} waited: {shown.message}", soft_wrap=True)
