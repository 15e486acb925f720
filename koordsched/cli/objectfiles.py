"""API objects from files: directories of YAML and JSON, several documents to a file, Lists, standard input."""

from __future__ import annotations

import gzip
import math
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from koordsched.api.nesting import check_depth

SUFFIXES = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
COMPRESSED = ".gz"
STANDARD_INPUT = "-"

Object = dict[str, Any]


class InputError(ValueError):
    """The input cannot be used; the message names the file, the document in it and the field."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """An object and its place: `pods.yaml: document 2: items[4]`."""

    where: str
    obj: Object

    @property
    def kind(self) -> str:
        kind: str = self.obj["kind"]
        return kind

    @property
    def api_version(self) -> str:
        version: str = self.obj["apiVersion"]
        return version

    @property
    def meta(self) -> Object:
        meta: Object = self.obj["metadata"]
        return meta

    @property
    def name(self) -> str:
        name: str = self.meta["name"]
        return name

    @property
    def namespace(self) -> str:
        return self.meta.get("namespace") or ""


def read_objects(paths: Iterable[str]) -> list[Sourced]:
    """Every object in the files, and below the directories, in the order of their names. Raises InputError.

    In directories, only files with these suffixes are read; a file that is named is read whatever its suffix.
    """
    found: list[Sourced] = []
    for path in paths:
        for file in _files(path):
            found += _read(file)
    return found


def _files(path: str) -> list[str]:
    if path == STANDARD_INPUT or not Path(path).is_dir():
        return [path]
    files = sorted(str(file) for file in Path(path).rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
    if not files:
        raise InputError(f"{path}: no file below it ends in {', '.join(SUFFIXES)}")
    return files


def _read(path: str) -> Iterator[Sourced]:
    name = "standard input" if path == STANDARD_INPUT else path
    try:
        content = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
        if name.endswith(COMPRESSED):
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{name}: not compressed by gzip: {error}") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error
    documents = _documents(name, content)
    for number, document in enumerate(documents, start=1):
        if document is not None:
            where = f"{name}: document {number}" if len(documents) > 1 else name
            yield from _unpacked(where, document)


def _documents(name: str, content: bytes) -> list[Any]:
    if name.removesuffix(COMPRESSED).endswith(".json"):
        try:
            return [orjson.loads(content)]
        except orjson.JSONDecodeError as error:
            raise InputError(f"{name}: not valid JSON: {error}") from error
    try:
        text = content.decode("utf-8")
        check_depth(text)
        return [_as_json(document) for document in yaml.load_all(text, Loader=_Loader)]
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (yaml.YAMLError, orjson.JSONEncodeError, ValueError, RecursionError) as error:
        raise InputError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error


def _as_json(document: Any) -> Any:
    """The value as JSON has it: keys are text, aliases are copies. Raises orjson.JSONEncodeError for other types."""
    return orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))


def _unpacked(where: str, document: Any) -> Iterator[Sourced]:
    """The object itself, or the items of a List."""
    if not isinstance(document, dict):
        raise InputError(f"{where}: an object was expected, not {type(document).__name__}")
    if isinstance(document.get("kind"), str) and document["kind"].endswith("List") and "items" in document:
        items = document["items"]
        if not isinstance(items, list | None):
            raise InputError(f"{where}: items: a list was expected, not {type(items).__name__}")
        for index, item in enumerate(items or ()):
            place = f"{where}: items[{index}]"
            if not isinstance(item, dict):
                raise InputError(f"{place}: an object was expected, not {type(item).__name__}")
            # The items of a typed list (PodList) need not say what they are.
            item.setdefault("apiVersion", document.get("apiVersion"))
            item.setdefault("kind", document["kind"].removesuffix("List"))
            yield _checked(place, item)
        return
    yield _checked(where, document)


def _checked(where: str, obj: Object) -> Sourced:
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            raise InputError(f"{where}: {field} is missing")
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        raise InputError(f"{where}: {obj['kind']}: metadata is missing")
    if not meta.get("name") and isinstance(meta.get("generateName"), str):
        meta["name"] = f"{meta['generateName']}1"
    for field in ("name", "namespace", "uid"):
        if not isinstance(meta.get(field), str | None):
            raise InputError(f"{where}: {obj['kind']}: metadata.{field}: text was expected, not {meta[field]!r}")
    labels = meta.get("labels")
    if not isinstance(labels, dict | None):
        kind = type(labels).__name__
        raise InputError(f"{where}: {obj['kind']}: metadata.labels: an object was expected, not {kind}")
    owners = meta.get("ownerReferences")
    if not isinstance(owners, list | None) or any(not isinstance(owner, dict) for owner in owners or ()):
        raise InputError(f"{where}: {obj['kind']}: metadata.ownerReferences: a list of objects was expected")
    if not meta.get("name"):
        raise InputError(f"{where}: {obj['kind']}: metadata.name is missing")
    return Sourced(where, obj)


class _Loader(yaml.CSafeLoader):
    """Reads YAML as JSON would have it: timestamps stay text, numbers are finite."""

    def finite(self, node: yaml.ScalarNode) -> float:
        """A float. Raises yaml.constructor.ConstructorError for values that JSON does not have."""
        number: float = self.construct_yaml_float(node)
        if not math.isfinite(number):
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a finite number", node.start_mark)
        return number


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in entries if tag != "tag:yaml.org,2002:timestamp"]
    for first, entries in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.finite)
