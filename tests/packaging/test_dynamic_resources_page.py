"""docs/dynamic-resources.md is complete: messages, reports, metrics, arguments, feature gates."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from koordsched.config.plugin_args import DynamicResourcesArgs
from koordsched.plugins.dynamicresources import claimstates, deallocation, filtering
from koordsched.plugins.dynamicresources.extended import claim
from koordsched.plugins.dynamicresources.reports.tables import VIEW
from koordsched.plugins.dynamicresources.structured.inspection import CONDITIONS, Use
from tests.packaging.test_devices_page import nested

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dynamic-resources.md").read_text()
MESSAGES = [
    filtering.CANNOT_ALLOCATE,
    filtering.INVALID_POOLS,
    filtering.UNAVAILABLE,
    f"node N: {filtering.TIMED_OUT}",
    claim.CANNOT_SCHEDULE,
    claim.CANNOT_FIT,
    deallocation.DEALLOCATED,
    deallocation.STILL_NOT,
    deallocation.NOTHING_TO_DEALLOCATE,
]
STATES = [text for name, text in vars(claimstates).items() if name.isupper() and name != "EVERYWHERE"]
DETAIL = VIEW.detail
assert DETAIL is not None


@pytest.mark.parametrize("text", [*MESSAGES, *STATES, *CONDITIONS.values(), *map(str, Use)])
def test_texts_are_explained(text: str) -> None:
    assert f"`{text}`" in PAGE


@pytest.mark.parametrize("kind", [*nested(VIEW.type), *nested(DETAIL.type), *nested(claimstates.ClaimsRefusal)])
def test_the_schema_of_reports_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in PAGE and f"`{name}[]`" not in PAGE] == []


@pytest.mark.parametrize("name", [name for name in DynamicResourcesArgs.__struct_encode_fields__ if name[0].islower()])
def test_arguments_are_explained(name: str) -> None:
    assert f"{name}: " in PAGE


def test_metrics_are_explained() -> None:
    folder = ROOT / "koordsched" / "plugins" / "dynamicresources"
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    names = set(re.findall(r'"((?:scheduler|koordsched)_\w+)"', text))
    assert len(names) >= 5
    assert [name for name in sorted(names) if f"`{name}" not in PAGE] == []
