"""`koordsched check-config`, and the files the project ships."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
import yaml
from click.testing import CliRunner

from koordsched.cli.check_config import build_check_config, check_config
from koordsched.config import IN_TREE, default_configuration, load, resolve, warnings
from koordsched.config.feature_gates import KNOWN_GATES, WITHOUT_EFFECT
from koordsched.plugins import CATALOG
from tests.config.documents import document

ROOT = Path(__file__).parents[2]
FILES = ROOT / "config"
OUT_OF_TREE = FILES / "examples" / "plugin"
CONFIGURATIONS = [
    file
    for folder in ("config", "manifests", "bench")
    for file in sorted((ROOT / folder).rglob("*.yaml"))
    if "\nkind: KubeSchedulerConfiguration" in file.read_text() and OUT_OF_TREE not in file.parents
]

TABLE = """\
leader election     off
API rate limit      20/s, burst 100
back-off            1s to 10s
nodes considered    all (percentageOfNodesToScore: 0 has no effect)
parallelism         16 (no effect)
extender            http://e (filter)

profile tiny
  queueSort         PrioritySort
  preFilter         NodeResourcesFit (not implemented)
  filter            NodeResourcesFit (not implemented)
  preScore          NodeResourcesFit (not implemented)
  score             NodeResourcesFit (not implemented) 2
  bind              DefaultBinder
  placementScore    NodeResourcesFit (not implemented) 2
"""
TINY = document(
    leaderElection={"leaderElect": False},
    clientConnection={"qps": 20},
    profiles=[
        {
            "schedulerName": "tiny",
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [
                        {"name": "PrioritySort"},
                        {"name": "NodeResourcesFit", "weight": 2},
                        {"name": "DefaultBinder"},
                    ],
                }
            },
        }
    ],
    extenders=[{"urlPrefix": "http://e", "filterVerb": "f"}],
)


def test_table() -> None:
    command = build_check_config(lambda: (IN_TREE, {"PrioritySort", "DefaultBinder"}))
    result = CliRunner().invoke(command, ["-"], input=TINY)
    assert result.exit_code == 0
    assert result.stdout == TABLE
    assert CliRunner().invoke(command, ["-", "-o", "wide"], input=TINY).stdout == TABLE
    assert result.stderr == (
        '\nwarning: plugin "NodeResourcesFit" is not implemented and will be ignored (profiles: tiny)\n'
    )


@pytest.mark.parametrize("output, read", [("json", orjson.loads), ("yaml", yaml.safe_load)])
def test_report(output: str, read: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TINY)
    result = CliRunner().invoke(check_config, [str(path), "-o", output])
    report = read(result.stdout)
    assert (result.exit_code, report["valid"], report["warnings"]) == (0, True, [])
    assert report["configuration"]["clientConnection"]["qps"] == 20
    (profile,) = report["profiles"]
    assert profile["plugins"]["score"] == [{"name": "NodeResourcesFit", "weight": 2}]
    assert profile["plugins"]["filter"] == ["NodeResourcesFit"]
    assert profile["args"]["NodeResourcesFit"]["scoringStrategy"]["type"] == "LeastAllocated"


def test_refused() -> None:
    text = document(parallelism=0, percentageOfNodesToScore=101)
    message = (
        "[parallelism: Invalid value: 0: should be an integer value greater than zero, "
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]]"
    )
    result = CliRunner().invoke(check_config, ["-"], input=text)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"error: {message}\n")
    result = CliRunner().invoke(check_config, ["-", "-o", "json"], input=text)
    report = orjson.loads(result.stdout)
    assert result.exit_code == 1
    assert (report["valid"], report["error"], len(report["errors"])) == (False, message, 2)


def test_gates_and_files_are_checked_too() -> None:
    result = CliRunner().invoke(check_config, ["-", "--feature-gates", "Bogus=true"], input=TINY)
    assert (result.exit_code, result.stderr) == (1, "error: unrecognized feature gate: Bogus\n")
    result = CliRunner().invoke(check_config, ["/nowhere"])
    assert (result.exit_code, result.stderr) == (1, "error: open /nowhere: no such file or directory\n")


@pytest.mark.parametrize("gate", WITHOUT_EFFECT)
def test_gates_without_effect_are_named(gate: str) -> None:
    default = str(KNOWN_GATES[gate].default).lower()
    other = "false" if default == "true" else "true"
    result = CliRunner().invoke(check_config, ["-", "--feature-gates", f"{gate}={other}"], input=TINY)
    assert result.exit_code == 0
    assert f"feature gate {gate}={other} has no effect: {WITHOUT_EFFECT[gate]}" in " ".join(result.output.split())
    result = CliRunner().invoke(check_config, ["-", "--feature-gates", f"{gate}={default}"], input=TINY)
    assert "feature gate" not in result.output


def test_default_file_is_the_default() -> None:
    assert load(FILES / "default.yaml") == default_configuration()


def test_full_file_names_every_field() -> None:
    configuration = load(FILES / "full.yaml", catalog=CATALOG)
    resolved = resolve(configuration, catalog=CATALOG)
    assert set(resolved.profiles[0].args) == {name for name, entry in CATALOG.items() if entry.args}
    given = yaml.safe_load((FILES / "full.yaml").read_text())
    fields = set(type(configuration).__struct_encode_fields__)
    assert set(given) == fields | {"apiVersion", "kind"}
    (profile,), (extender,) = configuration.profiles, configuration.extenders
    assert set(given["profiles"][0]) == set(type(profile).__struct_encode_fields__)
    assert set(given["profiles"][0]["plugins"]) == set(type(profile.plugins).__struct_encode_fields__)
    assert set(given["extenders"][0]) == set(type(extender).__struct_encode_fields__)


def without_generator() -> click.Command:
    """The command, as if one plugin was not implemented."""
    return build_check_config(lambda: (IN_TREE, IN_TREE.keys() - {"TopologyPlacementGenerator"}))


def test_plugins_that_are_not_built_are_named(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    profile = {"plugins": {"placementGenerate": {"enabled": [{"name": "TopologyPlacementGenerator"}]}}}
    path.write_text(document(profiles=[profile]))
    result = CliRunner().invoke(without_generator(), [str(path)])
    assert result.exit_code == 0
    assert 'plugin "TopologyPlacementGenerator" is not implemented and will be ignored' in result.output


def test_strict_is_about_warnings(tmp_path: Path) -> None:
    profile = {"plugins": {"placementGenerate": {"enabled": [{"name": "TopologyPlacementGenerator"}]}}}
    text = document(profiles=[profile])
    result = CliRunner().invoke(without_generator(), ["-", "--strict"], input=text)
    assert result.exit_code == 1
    assert "TopologyPlacementGenerator (not implemented)" in " ".join(result.stdout.split())
    result = CliRunner().invoke(without_generator(), ["-", "-o", "json"], input=text)
    assert (result.exit_code, orjson.loads(result.stdout)["unimplemented"]) == (0, ["TopologyPlacementGenerator"])
    assert CliRunner().invoke(check_config, ["-", "--strict"], input=TINY).exit_code == 0


def test_gates_of_gangs_without_effect_are_said():
    given = "EnableInlineBatchSchedule=true,SkipFilterWithNominatedPods=true,GangPendingPodsConditionPatch=false"
    result = CliRunner().invoke(check_config, ["-", "-o", "json", "--feature-gates", given], input=TINY)
    said = [text for text in orjson.loads(result.stdout)["warnings"] if text.startswith("feature gate")]
    assert [text.split(" has no effect")[0] for text in said] == [
        "feature gate EnableInlineBatchSchedule=true",
        "feature gate GangPendingPodsConditionPatch=false",
        "feature gate SkipFilterWithNominatedPods=true",
    ]


@pytest.mark.parametrize(
    ("left_out", "outcome"),
    [
        ("postFilter", "claims that keep pods from nodes are never freed"),
        ("reserve", "several pods may get the same devices"),
        ("preBind", "claims are not written, and pods start without their devices"),
    ],
)
def test_devices_that_are_only_half_dealt_with_are_said(left_out: str, outcome: str) -> None:
    plugins = {left_out: {"disabled": [{"name": "DynamicResources"}]}}
    given = load(document(profiles=[{"plugins": plugins}]), catalog=CATALOG)
    (found,) = warnings(resolve(given, catalog=CATALOG), CATALOG)
    assert found == (f'profiles[0]: plugin "DynamicResources" is enabled at preFilter but not at {left_out}: {outcome}')


def test_profiles_without_devices_are_not_about_claims() -> None:
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    given = load(document(profiles=[{"plugins": plugins}]), catalog=CATALOG)
    assert warnings(resolve(given, catalog=CATALOG), CATALOG) == []


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: str(file.relative_to(ROOT)))
def test_configurations_that_come_with_it_deal_with_claims(file: Path) -> None:
    found = warnings(resolve(load(file.read_text(), catalog=CATALOG), catalog=CATALOG), CATALOG)
    assert not [text for text in found if "DynamicResources" in text]
