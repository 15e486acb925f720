"""Kubeconfig files: which ones count, several as one document, and what a context says.

As kubectl has it: `--kubeconfig`, or the files in $KUBECONFIG, or ~/.kube/config; of an entry that is in several files
the first counts (kubernetes.io "Organizing Cluster Access Using kubeconfig Files").
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from koordsched.client.errors import ConnectionConfigError

_LISTS = ("clusters", "users", "contexts")
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def usual_path(environ: Mapping[str, str], home: Path) -> str:
    """What kubectl reads without `--kubeconfig`: $KUBECONFIG, which may list several files, or ~/.kube/config.

    "" if there is no such file.
    """
    named = [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        # Files that are missing do not count, unless all of them are: then reading says which.
        return os.pathsep.join([path for path in named if Path(path).exists()] or named)
    usual = home / ".kube" / "config"
    return str(usual) if usual.exists() else ""


def load(path: str) -> dict[str, Any]:
    """One document of one file or several (`a:b`), with absolute file names. Raises ConnectionConfigError."""
    merged: dict[str, Any] = {name: [] for name in _LISTS}
    for file in path.split(os.pathsep):
        document = _read(file)
        _make_absolute(document, Path(file).resolve().parent)
        for key, value in document.items():
            if key not in _LISTS:
                merged[key] = merged.get(key) or value
            elif isinstance(value, list):
                known = [entry.get("name") for entry in merged[key]]
                merged[key] += [entry for entry in value if isinstance(entry, dict) and entry.get("name") not in known]
    return merged


def current_context(document: Mapping[str, Any], path: str, context: str | None) -> str:
    """The name of the context: the one asked for, or the current one. Raises ConnectionConfigError if there is none."""
    wanted = context or document.get("current-context")
    if not wanted:
        raise ConnectionConfigError(f"kubeconfig {path}: no current-context, and no context was given")
    return str(wanted)


def section(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any] | None:
    """What a document says of a context, cluster or user (`kind`) of this name; None if it says nothing."""
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
            found: dict[str, Any] = entry[kind]
            return found
    return None


def namespace_of(path: str, context: str | None) -> str:
    """The namespace that a context names, else `default`. Raises ConnectionConfigError."""
    document = load(path)
    found = section(document, "context", current_context(document, path, context)) or {}
    return str(found.get("namespace") or "default")


def _read(path: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        raise ConnectionConfigError(f"kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConnectionConfigError(f"kubeconfig {path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConnectionConfigError(f"kubeconfig {path}: not a kubeconfig file")
    return document


def _make_absolute(document: dict[str, Any], directory: Path) -> None:
    """File names in a kubeconfig are relative to the file."""
    for kind in ("cluster", "user"):
        entries = document.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            found = entry.get(kind) if isinstance(entry, dict) else None
            if isinstance(found, dict):
                for key in _FILES:
                    if isinstance(found.get(key), str) and found[key]:
                        found[key] = str(directory / found[key])
                plugin = found.get("exec")
                if isinstance(plugin, dict) and isinstance(plugin.get("command"), str) and os.sep in plugin["command"]:
                    plugin["command"] = str(directory / plugin["command"])
