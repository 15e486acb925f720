"""What a plugin says about its refusal of a pod: as the plugin formats it, or as raw values."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import msgspec
import yaml
from rich.console import Console

from koordsched.cli.output import print_blocks
from koordsched.plugins import DECLARED


def print_refusal(out: Console, plugin: str, refusal: Any) -> None:
    """Prints it; `refusal` is what the plugin answered, or that as JSON values."""
    values = msgspec.to_builtins(refusal)
    for declared in DECLARED:
        if declared.name == plugin and declared.show_refusal is not None:
            try:
                print_blocks(out, declared.show_refusal(values))
                return
            except msgspec.ValidationError:
                pass  # of a scheduler of another version: shown as it is
    out.print(f"{plugin} says:", style="bold")
    out.print(indent(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), "  "), end="")
