"""The arguments of DeviceShare as `koordsched check-config` takes them (deviceshare spec 2.4)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from koordsched.cli.check_config import check_config
from koordsched.config import load, resolve
from koordsched.plugins import CATALOG
from koordsched.plugins.deviceshare.args import (
    DEFAULT_STRATEGY,
    DEFAULT_TEMPLATES,
    DeviceShareArgs,
    GPUModel,
    ScoringStrategy,
    TemplatesConfig,
)
from tests.config.documents import profile
from tests.config.test_check_config import FILES

START = "initializing profiles: creating profile for scheduler name default-scheduler: "
START += 'initializing plugin "DeviceShare": '
CORE, RDMA = "koordinator.sh/gpu-core", "koordinator.sh/rdma"


def enabled(**fields: Any) -> str:
    return profile(
        plugins={"filter": {"enabled": [{"name": "DeviceShare"}]}},
        pluginConfig=[{"name": "DeviceShare", "args": fields}],
    )


def check(**fields: Any) -> Result:
    return CliRunner().invoke(check_config, ["-"], input=enabled(**fields))


def resolved(**fields: Any) -> DeviceShareArgs:
    found = resolve(load(enabled(**fields), catalog=CATALOG), catalog=CATALOG).profiles[0].args["DeviceShare"]
    assert isinstance(found, DeviceShareArgs)
    return found


def strategy(kind: str = "LeastAllocated", **weights: int) -> dict[str, Any]:
    resources = [{"name": f"koordinator.sh/{name}", "weight": weight} for name, weight in weights.items()]
    return {"scoringStrategy": {"type": kind, "resources": resources}}


REFUSED = {
    "type": (strategy("RequestedToCapacityRatio"), "scoring strategy RequestedToCapacityRatio is not supported"),
    "no type": ({"scoringStrategy": {"resources": []}}, "scoring strategy  is not supported"),
    "weight of 0": (
        strategy(rdma=0),
        f"resources[0].weight: Invalid value: 0: resource weight of {RDMA} not in valid range (0, 100]",
    ),
    "weights beyond 100 and below 0": (
        strategy(fpga=1, rdma=101, gpu=-1),
        f"[resources[1].weight: Invalid value: 101: resource weight of {RDMA} not in valid range (0, 100], "
        "resources[2].weight: Invalid value: -1: resource weight of koordinator.sh/gpu not in valid range (0, 100]]",
    ),
    "weight before type": (
        strategy("Odd", rdma=0),
        f"resources[0].weight: Invalid value: 0: resource weight of {RDMA} not in valid range (0, 100]",
    ),
}


@pytest.mark.parametrize("fields, complaint", REFUSED.values(), ids=REFUSED)
def test_rules(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (1, f"error: {START}{complaint}\n")


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ({"disableDeviceNUMATopologyAlignment": "yes"}, "cannot unmarshal string into Go struct field"),
        ({"gpuShareUnsupportedModels": ["H800"]}, "cannot unmarshal string into Go struct field"),
        ({"scoringStrategy": {"resources": {CORE: 1}}}, "cannot unmarshal object into Go struct field"),
        ({"disableDeviceNumaTopologyAlignment": True}, 'unknown field "disableDeviceNumaTopologyAlignment"'),
    ],
)
def test_what_is_no_such_field_or_type(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert result.exit_code == 1
    assert complaint in result.stderr


def test_defaults() -> None:
    assert resolved() == DeviceShareArgs(
        scoring_strategy=DEFAULT_STRATEGY, gpu_shared_resource_templates_config=DEFAULT_TEMPLATES
    )
    names = ("gpu-memory-ratio", "gpu-memory", "rdma", "fpga")
    assert [(each.name, each.weight) for each in DEFAULT_STRATEGY.resources] == [
        (f"koordinator.sh/{name}", 1) for name in names
    ]
    assert DEFAULT_STRATEGY.type == "LeastAllocated"


def test_a_structure_that_is_given_is_taken_as_it_is() -> None:
    given = resolved(
        scoringStrategy={"type": "MostAllocated"},
        gpuSharedResourceTemplatesConfig={"configMapName": "mine"},
        gpuShareUnsupportedModels=[{"vendor": "nvidia", "model": "H800"}],
        improvedAllocation=True,
    )
    assert given.scoring_strategy == ScoringStrategy(type="MostAllocated")
    assert given.gpu_shared_resource_templates_config == TemplatesConfig(config_map_name="mine")
    assert given.gpu_share_unsupported_models == (GPUModel(vendor="nvidia", model="H800"),)
    assert given.improved_allocation


@pytest.mark.parametrize("fields", [{}, {"allocator": ""}, {"improvedAllocation": True}])
def test_what_has_an_effect_is_taken_in_silence(fields: dict[str, Any]) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (0, "")


def test_what_has_no_effect_is_said() -> None:
    result = check(allocator="autopilot")
    text = "warning: profiles[0].pluginConfig[0].args.allocator has no effect"
    assert (result.exit_code, result.stderr) == (0, f"\n{text}\n")


def test_the_full_file_names_every_argument_with_its_default() -> None:
    (given,) = yaml.safe_load((FILES / "full.yaml").read_text())["profiles"]
    (args,) = [entry["args"] for entry in given["pluginConfig"] if entry["name"] == "DeviceShare"]
    assert set(args) == set(DeviceShareArgs.__struct_encode_fields__)
    examples = {"gpuShareUnsupportedModels"}
    default = resolved(allocator="")
    assert resolved(**{name: value for name, value in args.items() if name not in examples}) == default
