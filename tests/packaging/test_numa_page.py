"""docs/numa.md is complete: messages, labels, reports and arguments. (Its console blocks: `test_console_blocks.py`.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from koordsched.config import load, resolve, warnings
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.nodenumaresource import kinds, reasons
from koordsched.plugins.nodenumaresource.args import DEFAULT_ARGS
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.reports import report
from tests.yamlfiles import document

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "numa.md").read_text()
MESSAGES = (*reasons.UNSCHEDULABLE, *reasons.UNRESOLVABLE)
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


@pytest.mark.parametrize("text", [*MESSAGES, *LABELS_AND_ANNOTATIONS])
def test_messages_labels_and_annotations_are_explained(text: str) -> None:
    assert f"`{text}`" in PAGE or f"`{text}:" in PAGE


@pytest.mark.parametrize("kind", [*nested(report.Overview), *nested(report.NodeReport)])
def test_the_schema_of_reports_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in PAGE and f"`{name}[]`" not in PAGE] == []


def test_the_full_file_names_every_argument_with_its_default() -> None:
    (profile,) = document(ROOT / "config" / "full.yaml")["profiles"]
    (given,) = [entry["args"] for entry in profile["pluginConfig"] if entry["name"] == NodeNUMAResource.name]
    assert given == msgspec.json.decode(msgspec.json.encode(DEFAULT_ARGS))


def test_the_configuration_of_the_example_says_nothing_without_effect() -> None:
    text = (ROOT / "config" / "examples" / "numa" / "scheduler.yaml").read_text()
    assert warnings(resolve(load(text, catalog=CATALOG), catalog=CATALOG), CATALOG, IN_TREE.keys()) == []
