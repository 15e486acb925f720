"""The configurations in documents are valid and say nothing that has no effect."""

import re
from pathlib import Path

import pytest

from koordsched.config import load, resolve, warnings
from koordsched.plugins import CATALOG, IN_TREE

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL))
    if "kind: KubeSchedulerConfiguration" in block and "profiles:" in block
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_configuration_in_a_document(example: str) -> None:
    assert warnings(resolve(load(example, catalog=CATALOG), catalog=CATALOG), CATALOG, IN_TREE.keys()) == []


def test_there_are_some() -> None:
    assert EXAMPLES
