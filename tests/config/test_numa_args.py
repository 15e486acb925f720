"""The arguments of NodeNUMAResource as `koordsched check-config` takes them (nodenumaresource spec 2.1)."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from koordsched.cli.check_config import check_config
from tests.config.documents import profile

START = "initializing profiles: creating profile for scheduler name default-scheduler: "
START += 'initializing plugin "NodeNUMAResource": '


def check(**fields: Any) -> Result:
    enabled = {"filter": {"enabled": [{"name": "NodeNUMAResource"}]}}
    document = profile(plugins=enabled, pluginConfig=[{"name": "NodeNUMAResource", "args": fields}])
    return CliRunner().invoke(check_config, ["-"], input=document)


def strategy(kind: str = "LeastAllocated", **weights: int) -> dict[str, Any]:
    return {"type": kind, "resources": [{"name": name, "weight": weight} for name, weight in weights.items()]}


REFUSED = {
    "bind policy": (
        {"defaultCPUBindPolicy": "ConstrainedBurst"},
        'defaultCPUBindPolicy: Invalid value: "ConstrainedBurst": '
        "must specified CPU bind policy FullPCPUs or SpreadByPCPUs",
    ),
    "weight of 0": (
        {"scoringStrategy": strategy(cpu=1, memory=0)},
        "resources[1].weight: Invalid value: 0: resource weight of memory not in valid range (0, 100]",
    ),
    "weight beyond 100": (
        {"numaScoringStrategy": strategy(cpu=101)},
        "resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
    ),
    "type": (
        {"numaScoringStrategy": strategy("Odd", cpu=1)},
        "numa scoring strategy Odd is not supported",
    ),
}


@pytest.mark.parametrize("fields, complaint", REFUSED.values(), ids=REFUSED)
def test_rules(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (1, f"error: {START}{complaint}\n")


@pytest.mark.parametrize("policy", ["", "FullPCPUs", "SpreadByPCPUs"])
def test_what_is_taken(policy: str) -> None:
    fields = {"defaultCPUBindPolicy": policy, "scoringStrategy": strategy("MostAllocated", cpu=1, memory=100)}
    assert check(**fields).exit_code == 0
