"""docs/devices.md is complete: messages, labels, annotations, arguments, reports, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from koordsched.config import load, resolve, warnings
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.deviceshare import kinds as vendors
from koordsched.plugins.deviceshare import reasons
from koordsched.plugins.deviceshare.args import DeviceShareArgs
from koordsched.plugins.deviceshare.reasons import Refusal, insufficient, no_functions
from koordsched.plugins.deviceshare.reports import report
from koordsched.plugins.shared.devices import kinds
from koordsched.plugins.shared.devices.request import REQUESTED
from koordsched.plugins.shared.devices.resources import DEPRECATED, TYPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "devices.md").read_text()
REFUSALS = [refusal for refusal in vars(reasons).values() if isinstance(refusal, Refusal)]
REFUSALS += [*map(insufficient, TYPES), no_functions("rdma"), reasons.cannot_share("M", "V")]
KEYS = [
    text
    for module in (kinds, vendors)
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and ("/" in text or name.startswith("CAMBRICON"))
]


def nested(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The struct and those in its fields."""
    yield kind
    for field in msgspec.structs.fields(kind):
        for inner in (field.type, *get_args(field.type)):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from nested(inner)


@pytest.mark.parametrize("text", sorted({text for refusal in REFUSALS for text in refusal.texts}))
def test_messages_are_explained(text: str) -> None:
    assert f"`{text}`" in PAGE


@pytest.mark.parametrize("text", KEYS)
def test_labels_and_annotations_are_explained(text: str) -> None:
    assert re.search(rf"(?<![\w.]){re.escape(text)}(?![\w-])", PAGE)


@pytest.mark.parametrize("name", sorted({name for of_type in REQUESTED.values() for name in of_type}))
def test_resources_are_explained(name: str) -> None:
    assert f"{name}: " in PAGE or f"`{name}`" in PAGE or f"`{name.removeprefix('koordinator.sh/')}`" in PAGE
    assert next(iter(DEPRECATED)) in PAGE


@pytest.mark.parametrize("kind", [*nested(report.Overview), *nested(report.NodeReport)])
def test_the_schema_of_reports_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in PAGE and f"`{name}[]`" not in PAGE] == []


@pytest.mark.parametrize("name", DeviceShareArgs.__struct_encode_fields__)
def test_arguments_are_explained(name: str) -> None:
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize(
    "path",
    [
        "config/examples/devices/scheduler.yaml",
        "config/examples/devices/gang-scheduler.yaml",
        "manifests/with-devices/config.yaml",
    ],
)
def test_configurations_say_nothing_without_effect(path: str) -> None:
    resolved = resolve(load((ROOT / path).read_text(), catalog=CATALOG), catalog=CATALOG)
    assert warnings(resolved, CATALOG, IN_TREE.keys()) == []
