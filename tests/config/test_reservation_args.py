"""The arguments of Reservation as `koordsched check-config` takes them (reservation spec 2.3)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from koordsched.cli.check_config import check_config
from koordsched.config import load, resolve
from koordsched.plugins import CATALOG
from koordsched.plugins.reservation.args import PreAllocationConfig, ReservationArgs, SelectorIndexConfig
from tests.config.documents import profile
from tests.config.test_check_config import FILES

START = "initializing profiles: creating profile for scheduler name default-scheduler: "
START += 'initializing plugin "Reservation": '
NATIVE = "must be an extended resource name (e.g. example.com/gpu); native resources cannot be ignored"
PREFIX = "must be usable as an extended resource prefix (a valid DNS subdomain and not the reserved "
PREFIX += '"kubernetes.io" namespace)'
NEGATIVE = "must be non-negative"


def enabled(**fields: Any) -> str:
    return profile(
        plugins={"filter": {"enabled": [{"name": "Reservation"}]}},
        pluginConfig=[{"name": "Reservation", "args": fields}],
    )


def check(**fields: Any) -> Result:
    return CliRunner().invoke(check_config, ["-"], input=enabled(**fields))


def resolved(**fields: Any) -> ReservationArgs:
    found = resolve(load(enabled(**fields), catalog=CATALOG), catalog=CATALOG).profiles[0].args["Reservation"]
    assert isinstance(found, ReservationArgs)
    return found


REFUSED = {
    "percentage": (
        {"minCandidateNodesPercentage": 101},
        "MinCandidateNodesPercentage: Invalid value: 101: must be in the range [0, 100]",
    ),
    "everything below 0": (
        {
            "minCandidateNodesPercentage": -1,
            "minCandidateNodesAbsolute": -2,
            "gcDurationSeconds": -3,
            "gcIntervalSeconds": -4,
            "resyncIntervalSeconds": -5,
        },
        "[MinCandidateNodesPercentage: Invalid value: -1: must be in the range [0, 100], "
        f"MinCandidateNodesAbsolute: Invalid value: -2: {NEGATIVE}, GcDuration: Invalid value: -3: {NEGATIVE}, "
        f"GcInterval: Invalid value: -4: {NEGATIVE}, ResyncIntervalSeconds: Invalid value: -5: {NEGATIVE}]",
    ),
    "native resource": (
        {"ignoredResources": ["example.com/gpu", "cpu"]},
        f'ignoredResources[1]: Invalid value: "cpu": {NATIVE}',
    ),
    "resource of kubernetes.io": (
        {"ignoredResources": ["kubernetes.io/batch-cpu"]},
        f'ignoredResources[0]: Invalid value: "kubernetes.io/batch-cpu": {NATIVE}',
    ),
    "group with a slash": (
        {"ignoredResourceGroups": ["example.com/gpu"]},
        "ignoredResourceGroups[0]: Invalid value: \"example.com/gpu\": resource group name can't contain '/'",
    ),
    "group of kubernetes.io": (
        {"ignoredResourceGroups": ["kubernetes.io"]},
        f'ignoredResourceGroups[0]: Invalid value: "kubernetes.io": {PREFIX}',
    ),
    "no group": ({"ignoredResourceGroups": [""]}, f'ignoredResourceGroups[0]: Invalid value: "": {PREFIX}'),
    "no candidates": (
        {"enablePreemption": True, "minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        "failed to new preemption, err: [minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same "
        "time as minCandidateNodesAbsolute, minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same "
        "time as minCandidateNodesPercentage]",
    ),
}


@pytest.mark.parametrize("fields, complaint", REFUSED.values(), ids=REFUSED)
def test_rules(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (1, f"error: {START}{complaint}\n")


@pytest.mark.parametrize(
    "fields, complaint",
    [
        ({"enablePreemption": "yes"}, "cannot unmarshal string into Go struct field"),
        ({"controllerWorkers": 1 << 31}, "cannot unmarshal number 2147483648 into Go struct field"),
        ({"preAllocationConfig": []}, "cannot unmarshal array into Go struct field"),
        ({"reservationSelectorIndex": {"keys": "team"}}, "cannot unmarshal string into Go struct field"),
        ({"gcDuration": 5}, 'unknown field "gcDuration"'),
    ],
)
def test_what_is_no_such_field_or_type(fields: dict[str, Any], complaint: str) -> None:
    result = check(**fields)
    assert result.exit_code == 1
    assert complaint in result.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        {"ignoredResources": ["example.com/gpu"], "ignoredResourceGroups": ["example.com"]},
        {"enablePreemption": True, "minCandidateNodesPercentage": 0},
    ],
)
def test_what_is_taken(fields: dict[str, Any]) -> None:
    result = check(**fields)
    assert (result.exit_code, result.stderr) == (0, "")


def test_defaults() -> None:
    assert resolved() == ReservationArgs()
    assert resolved(gcDurationSeconds=0, gcIntervalSeconds=0, resyncIntervalSeconds=0) == ReservationArgs()
    default = ReservationArgs()
    assert (default.enable_preemption, default.disable_garbage_collection) == (False, False)
    assert (default.min_candidate_nodes_percentage, default.min_candidate_nodes_absolute) == (10, 100)
    assert (default.gc_duration_seconds, default.gc_interval_seconds, default.resync_interval_seconds) == (
        86400,
        60,
        60,
    )
    assert default.pre_allocation_config is default.reservation_selector_index is None


def test_the_keys_of_cluster_mode_have_defaults() -> None:
    config = resolved(preAllocationConfig={"enableClusterMode": True}).pre_allocation_config
    assert config == PreAllocationConfig(enable_cluster_mode=True)
    assert config.label == "pod.koordinator.sh/is-pre-allocatable"
    assert config.priority_annotation == "pod.koordinator.sh/pre-allocatable-priority"
    named = PreAllocationConfig(cluster_label_key="mine", cluster_priority_annotation_key="first")
    assert (named.label, named.priority_annotation) == ("mine", "first")


def test_the_selector_index_is_normalised() -> None:
    given = {"enabled": True, "keyPrefixes": [" quota-", "", "quota-", "b-"], "keys": ["team ", "team", "\t"]}
    assert resolved(reservationSelectorIndex=given).reservation_selector_index == SelectorIndexConfig(
        enabled=True, key_prefixes=("quota-", "b-"), keys=("team",)
    )


@pytest.mark.parametrize(
    "name, ignored",
    [
        ("example.com/gpu", True),
        ("other.com/fpga", True),
        ("example.com/fpga", False),
        ("sub.other.com/fpga", False),
        ("other.com", False),
        ("cpu", False),
    ],
)
def test_ignored_resources(name: str, ignored: bool) -> None:
    given = resolved(ignoredResources=["example.com/gpu"], ignoredResourceGroups=["other.com"])
    assert given.ignores(name) is ignored


def test_the_full_file_names_every_argument_with_its_default() -> None:
    (given,) = yaml.safe_load((FILES / "full.yaml").read_text())["profiles"]
    (args,) = [entry["args"] for entry in given["pluginConfig"] if entry["name"] == "Reservation"]
    assert set(args) == set(ReservationArgs.__struct_encode_fields__)
    examples = {"preAllocationConfig", "ignoredResources", "ignoredResourceGroups", "reservationSelectorIndex"}
    assert set(args["preAllocationConfig"]) == set(PreAllocationConfig.__struct_encode_fields__)
    assert set(args["reservationSelectorIndex"]) == set(SelectorIndexConfig.__struct_encode_fields__)
    assert resolved(**{name: value for name, value in args.items() if name not in examples}) == resolved()
