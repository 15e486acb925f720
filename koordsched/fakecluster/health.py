"""/healthz, /livez and /readyz."""

from __future__ import annotations

from koordsched.fakecluster import errors
from koordsched.fakecluster.messages import Response, text_response

_CHECKS = ("ping", "log", "etcd", "informer-sync")


def health_response(parts: list[str], verbose: bool, ready: bool) -> Response:
    """The answer to a health path, whole or of one check (`/readyz/ping`)."""
    if len(parts) > 1 and (len(parts) > 2 or parts[1] not in _CHECKS):
        raise errors.no_such_path()
    failing = parts[0] == "readyz" and not ready
    if failing:
        return text_response("[-]shutdown failed: the server is going down\nreadyz check failed\n", 500)
    if verbose and len(parts) == 1:
        lines = [f"[+]{check} ok" for check in _CHECKS]
        return text_response("\n".join([*lines, f"{parts[0]} check passed", ""]))
    return text_response("ok")
