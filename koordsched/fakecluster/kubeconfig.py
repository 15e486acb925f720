"""The kubeconfig that the server writes for its clients."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml

_NAME = "koordsched-fakecluster"


def kubeconfig(server: str, token: str = "", authority: bytes = b"") -> dict[str, Any]:
    """A kubeconfig with one cluster, user and context; `authority` is PEM."""
    cluster: dict[str, Any] = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
        "current-context": _NAME,
    }


def write_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Write it whole or not at all, readable by the owner alone (it may hold a token). Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
