"""docs/numa.md does as it says: its console blocks, run from the first to the last, and what they print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml

from koordsched.config import load, resolve, warnings
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.nodenumaresource import demand, hints, kinds, plugin, podrequest
from koordsched.plugins.nodenumaresource.args import DEFAULT_ARGS
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.reports import report
from tests.cli.test_daemon import free_port
from tests.packaging.consoleblocks import Command, commands, differences, run
from tests.packaging.kubectl import needs_kubectl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "numa.md").read_text()
WITHIN = 240.0
MESSAGES = (
    podrequest.NOT_INTEGER,
    plugin.INVALID_TOPOLOGY,
    hints.NOT_ENOUGH_CPUS,
    plugin.NOT_WHOLE_CORES,
    plugin.CONFLICT,
    demand.POLICY_MISMATCH,
    plugin.NO_ZONES,
    plugin.NO_NUMA_RESOURCES,
    plugin.INSUFFICIENT_AMPLIFIED,
    plugin.INVALID_RATIO,
)
LABELS_AND_ANNOTATIONS = (
    kinds.RESOURCE_SPEC,
    kinds.NUMA_TOPOLOGY_SPEC,
    kinds.RESOURCE_STATUS,
    kinds.CPU_BIND_POLICY,
    kinds.NUMA_ALLOCATE_STRATEGY,
    kinds.NUMA_TOPOLOGY_POLICY,
    *kinds.OF_NODES,
    *kinds.OF_TOPOLOGIES[2:],
)


def nested(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The struct and those in its lists."""
    yield kind
    for field in msgspec.structs.fields(kind):
        for inner in get_args(field.type):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from nested(inner)


def environment(directory: Path, port: int) -> dict[str, str]:
    """A shell that finds `koordsched`, whose scheduler listens on a port of its own."""
    program = directory / "bin" / "koordsched"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
export PYTHONPATH={ROOT}
case "$1" in
  fakecluster) exec > {directory}/cluster.log 2>&1 ;;
  run) set -- "$@" --bind-address 127.0.0.1 --secure-port {port}; exec > {directory}/scheduler.log 2>&1 ;;
  explain|numa) set -- "$@" --server https://127.0.0.1:{port} ;;
esac
exec {sys.executable} -m koordsched "$@"
"""
    )
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


@needs_kubectl
def test_all_commands(tmp_path: Path) -> None:
    port = free_port()

    def here(text: str) -> str:
        return text.replace("/tmp/kc", str(tmp_path / "kc")).replace(":10259", f":{port}")

    script = [Command(here(command.text), command.printed) for command in commands(PAGE)]
    assert len(script) > 20
    printed = run(script, environment(tmp_path, port), ROOT, tmp_path / "output", WITHIN)
    assert differences(script, printed) == []


@pytest.mark.parametrize("text", [*MESSAGES, *LABELS_AND_ANNOTATIONS])
def test_messages_labels_and_annotations_are_explained(text: str) -> None:
    assert f"`{text}`" in PAGE or f"`{text}:" in PAGE


@pytest.mark.parametrize("kind", [*nested(report.Overview), *nested(report.NodeReport)])
def test_the_schema_of_reports_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in PAGE and f"`{name}[]`" not in PAGE] == []


def test_the_full_file_names_every_argument_with_its_default() -> None:
    (profile,) = yaml.safe_load((ROOT / "config" / "full.yaml").read_text())["profiles"]
    (given,) = [entry["args"] for entry in profile["pluginConfig"] if entry["name"] == NodeNUMAResource.name]
    assert given == msgspec.json.decode(msgspec.json.encode(DEFAULT_ARGS))


def test_the_configuration_of_the_example_says_nothing_without_effect() -> None:
    text = (ROOT / "config" / "examples" / "numa" / "scheduler.yaml").read_text()
    assert warnings(resolve(load(text, catalog=CATALOG), catalog=CATALOG), CATALOG, IN_TREE.keys()) == []
