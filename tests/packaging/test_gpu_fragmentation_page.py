"""docs/gpu-fragmentation.md is complete. (Its console blocks: `test_console_blocks.py`.)"""

from __future__ import annotations

from pathlib import Path

import msgspec

from koordsched.plugins.gpufragmentation.args import GPUFragmentationArgs

PAGE = (Path(__file__).parents[2] / "docs" / "gpu-fragmentation.md").read_text()


def test_arguments_are_explained() -> None:
    for field in msgspec.structs.fields(GPUFragmentationArgs):
        assert f"| `{field.encode_name}` |" in PAGE
