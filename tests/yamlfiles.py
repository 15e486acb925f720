"""Documents in YAML files of the repository. A file is parsed once in a process: the definitions alone take long."""

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _parsed(path: Path) -> bytes:
    return orjson.dumps([each for each in yaml.load_all(path.read_text(), Loader=_Loader) if each])


def documents(path: Path | str) -> list[Any]:
    """All that are not empty, as copies that may be changed."""
    found: list[Any] = orjson.loads(_parsed(Path(path)))
    return found


def document(path: Path | str) -> Any:
    """The only one."""
    (found,) = documents(path)
    return found
