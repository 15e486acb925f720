"""A whole cluster as a directory of YAML: one file per resource and namespace, one document per object.

Objects come back exactly as they were, uids, resourceVersions and timestamps included, so that a dump of what was
loaded is the same directory again.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from koordsched.api.nesting import check_depth
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.resources import Resource

Object = dict[str, Any]

_CLUSTER_FOLDER = "_cluster"
"""Holds what belongs to no namespace; namespaces cannot begin with an underscore."""
_FIRST = ("customresourcedefinitions", "namespaces", "priorityclasses", "storageclasses", "nodes")
"""Loaded before the rest, in this order: others refer to them."""


class SnapshotError(ValueError):
    """The directory cannot be loaded or written; the message names the file and the document in it."""


def dump(registry: Registry, directory: Path | str) -> int:
    """Writes every object below `directory`, which must be empty or not exist; returns how many.

    Raises SnapshotError when the directory is in use or cannot be written.
    """
    root = Path(directory)
    try:
        if root.exists() and any(root.iterdir()):
            raise SnapshotError(f"{root}: not empty: a snapshot needs a directory of its own")
        written = 0
        for resource in stored_resources(registry):
            by_namespace: dict[str, list[Object]] = defaultdict(list)
            for record in registry.scan(resource):
                by_namespace[record.namespace].append(record.fresh())
            for namespace, objects in sorted(by_namespace.items()):
                folder = root / (namespace or _CLUSTER_FOLDER)
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / f"{resource.qualified}.yaml"
                # For the owner alone: there are Secrets among the objects.
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    yaml.dump_all(objects, file, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=1000)
                written += len(objects)
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(f"{error.filename or root}: {error.strerror}") from error
    return written


def load(registry: Registry, directory: Path | str) -> int:
    """Restores every object below `directory`, as it stands there, manifests with defaults; returns how many.

    Any YAML file counts, wherever it lies, and a `List` stands for its items, so `kubectl get -o yaml` output can be
    loaded too. When a document is wrong nothing is loaded but the definitions of kinds. Raises SnapshotError.
    """
    root = Path(directory)
    if not root.is_dir():
        raise SnapshotError(f"{root}: not a directory")
    return restore(registry, list(_documents(root)))


def restore(registry: Registry, documents: list[tuple[str, Object]]) -> int:
    """Restores objects, each with where it is from; returns how many. Raises SnapshotError."""
    documents = sorted(documents, key=lambda document: _rank(document[1]))
    definitions = [document for document in documents if _rank(document[1])[0] == 0]
    # Kinds first: what they define can only be checked once they are served.
    loaded = _restore(registry, definitions)
    return loaded + _restore(registry, documents[len(definitions) :])


def _restore(registry: Registry, documents: list[tuple[str, Object]]) -> int:
    checked: list[tuple[Resource, Object]] = []
    seen: dict[tuple[str, str, str], str] = {}
    for where, obj in documents:
        try:
            resource = registry.resource_for_kind(obj["apiVersion"], obj["kind"])
        except ApiStatusError as error:
            raise SnapshotError(f"{where}: {error.message}") from error
        metadata = obj["metadata"]
        if resource.namespaced and not metadata.get("namespace"):
            raise SnapshotError(f"{where}: {obj['kind']} {metadata['name']}: metadata.namespace is missing")
        key = (resource.storage, metadata.get("namespace") or "", metadata["name"])
        if key in seen:
            raise SnapshotError(f"{where}: {obj['kind']} {metadata['name']} is also in {seen[key]}")
        seen[key] = where
        checked.append((resource, obj))
    for (resource, obj), (where, _) in zip(checked, documents, strict=True):
        try:
            if "uid" not in obj["metadata"]:  # a manifest: controllers compare what they make with its defaults
                registry.strategy(resource).defaults(obj)
            if resource.to_storage is not None and resource.converted:
                obj = resource.to_storage(obj)
                registry.strategy(resource).fit_storage(obj)
            registry.restore(resource, obj)
        except ApiStatusError as error:
            raise SnapshotError(f"{where}: {error.message}") from error
    return len(checked)


def _documents(root: Path) -> Iterator[tuple[str, Object]]:
    """(file and document number, object) of every object below the directory."""
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".yaml", ".yml", ".json")):
        try:
            text = path.read_text(encoding="utf-8")
            check_depth(text)
            content = list(yaml.load_all(text, Loader=_Loader))
        except OSError as error:
            raise SnapshotError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SnapshotError(f"{path}: not UTF-8 text: {error.reason}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SnapshotError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
        for number, document in enumerate(content, start=1):
            if document is None:
                continue
            where = f"{path}: document {number}"
            items = [document]
            if isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and "items" in document:
                items = document["items"] or []
            for obj in items:
                yield where, _checked(where, obj)


def _checked(where: str, obj: Any) -> Object:
    if not isinstance(obj, dict):
        raise SnapshotError(f"{where}: not an object but {type(obj).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise SnapshotError(f"{where}: {field} is missing")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise SnapshotError(f"{where}: {obj['kind']}: metadata.name is missing")
    version = metadata.get("resourceVersion")
    if version is not None and not (isinstance(version, str) and version.isdecimal()):
        raise SnapshotError(f"{where}: {obj['kind']} {metadata['name']}: resourceVersion {version!r} is not a number")
    return obj


def _rank(obj: Object) -> tuple[int, int]:
    """Order of loading: what others refer to, then by resourceVersion, as things once happened."""
    plural = obj["kind"].lower() + ("es" if obj["kind"].endswith("s") else "s")
    rank = _FIRST.index(plural) if plural in _FIRST else len(_FIRST)
    return rank, int(obj["metadata"].get("resourceVersion") or 0)


def stored_resources(registry: Registry) -> list[Resource]:
    """One resource for each collection: the one whose version the objects are stored in."""
    found: dict[str, Resource] = {}
    for resource in registry.resources():
        if "list" in resource.verbs and (resource.storage not in found or not resource.converted):
            found[resource.storage] = resource
    return sorted(found.values(), key=lambda resource: resource.qualified)


class _Loader(yaml.CSafeLoader):
    """Reads YAML as JSON would have it: timestamps stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in entries if tag != "tag:yaml.org,2002:timestamp"]
    for first, entries in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.CSafeDumper):
    """Writes every object in full: aliases would make two objects share what happens to be equal."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
