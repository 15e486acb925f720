"""Access to endpoints: authentication, authorization, and the responses to rejected requests.

Order and texts as in kube-scheduler's handler chain (apiserver `endpoints/filters`): credentials that are wrong are
refused on every path; without credentials one is `system:anonymous`, who may use the always-allowed paths only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from koordsched.observability.escaping import printable

_log = logging.getLogger(__name__)

DEFAULT_ALLOWED_PATHS = ("/healthz", "/readyz", "/livez")
"""--authorization-always-allow-paths."""
DEFAULT_ALLOWED_GROUPS = ("system:masters",)


@dataclass(frozen=True)
class User:
    """The user, as authenticated by the API server."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


class LookupFailed(Exception):
    """The API server could not be asked; the message says why."""


Authenticate = Callable[[str], Awaitable[User | None]]
"""The user of a bearer token, None if it is invalid. Raises LookupFailed."""

Authorize = Callable[[User, str, str], Awaitable[bool]]
"""Whether a user may `verb` (an HTTP method in lower case) a path. Raises LookupFailed."""


class PathSet:
    """Paths that need no authorization; one that ends in `*` covers everything that begins so."""

    def __init__(self, paths: Iterable[str]) -> None:
        cleaned = [path.strip("/") for path in paths]
        self._exact = {path for path in cleaned if not path.endswith("*")}
        self._prefixes = tuple(path[:-1] for path in cleaned if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        path = path.strip("/")
        return path in self._exact or path.startswith(self._prefixes)


class AccessControl:
    """An aiohttp middleware. `authenticate` None: bearer tokens are refused; `authorize` None: only allowed paths and
    groups pass."""

    def __init__(
        self,
        authenticate: Authenticate | None,
        authorize: Authorize | None,
        *,
        allowed_paths: Sequence[str] = DEFAULT_ALLOWED_PATHS,
        allowed_groups: Sequence[str] = DEFAULT_ALLOWED_GROUPS,
    ) -> None:
        self._authenticate = authenticate
        self._authorize = authorize
        self._allowed_paths = PathSet(allowed_paths)
        self._allowed_groups = frozenset(allowed_groups)

    def middleware(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        """To be put before every handler."""

        @web.middleware
        async def check(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            refusal = await self._refusal(request)
            return refusal if refusal is not None else await handler(request)

        return check

    async def _refusal(self, request: web.Request) -> web.Response | None:
        user = await self._user(request)
        if user is None:
            return status_response(401, "Unauthorized", "Unauthorized")
        path, verb = request.path, request.method.lower()
        if path in self._allowed_paths or not self._allowed_groups.isdisjoint(user.groups):
            return None
        try:
            allowed = self._authorize is not None and await self._authorize(user, verb, path)
        except LookupFailed as error:
            _log.warning("Authorization of %s could not be checked: %s", user.name, error)
            return status_response(500, "InternalError", f'Internal Server Error: "{path}": {error}')
        if allowed:
            return None
        return status_response(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"')

    async def _user(self, request: web.Request) -> User | None:
        """The user, ANONYMOUS without credentials, None with wrong ones."""
        from_certificate = user_of_certificate(request.get_extra_info("peercert"))
        if from_certificate is not None:
            return from_certificate
        header = request.headers.get("Authorization", "")
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        if self._authenticate is None or not token.isascii():
            return None  # bytes that are no UTF-8 come as surrogates, which cannot be sent on
        try:
            return await self._authenticate(token.strip())
        except LookupFailed as error:
            _log.warning("A bearer token could not be verified: %s", error)
            return None


def user_of_certificate(certificate: Mapping[str, Any] | None) -> User | None:
    """The user a verified client certificate (`SSLSocket.getpeercert`) stands for: CN the name, O the groups."""
    if not certificate:
        return None
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    if not names:
        return None
    groups = tuple(value for key, value in subject if key == "organizationName")
    return User(names[-1], groups=(*groups, "system:authenticated"))


def status_response(code: int, reason: str, message: str) -> web.Response:
    """An error in the form of the Kubernetes API."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": printable(message),
        "reason": reason,
        "code": code,
    }
    headers = {"WWW-Authenticate": "Bearer"} if code == 401 else None
    return web.Response(status=code, body=orjson.dumps(body) + b"\n", content_type="application/json", headers=headers)
