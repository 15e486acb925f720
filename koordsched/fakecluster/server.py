"""The API server: from a request to the handler that answers it. Knows no sockets."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable

from koordsched.fakecluster import errors
from koordsched.fakecluster.auth import ANONYMOUS, Authenticator, User
from koordsched.fakecluster.discovery import Discovery
from koordsched.fakecluster.emulation import Emulation
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.health import health_response
from koordsched.fakecluster.messages import Request, Response, error_response, json_response
from koordsched.fakecluster.openapi import OpenApi
from koordsched.fakecluster.protobufanswers import in_protobuf, wants_protobuf
from koordsched.fakecluster.registry import Registry
from koordsched.fakecluster.reviews import Reviews
from koordsched.fakecluster.subresources import Subresources
from koordsched.fakecluster.verbs import Verbs
from koordsched.fakecluster.watch import WatchHub

log = logging.getLogger(__name__)

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Answered without credentials, as the real server's public-info role allows."""


class ApiServer:
    """Serves a registry.

    `authenticator` None means that all requests are allowed; `emulation` gives writes a real server's service times;
    `rng` spreads watch time-outs.
    """

    def __init__(
        self,
        registry: Registry,
        authenticator: Authenticator | None = None,
        emulation: Emulation | None = None,
        rng: random.Random | None = None,
        hub: WatchHub | None = None,
    ) -> None:
        self.registry = registry
        self.authenticator = authenticator
        self.emulation = emulation
        self.hub = hub or WatchHub(registry.call_later)
        self.ready = True
        """What /readyz answers."""
        self.forbidden: set[str] = set()
        """Resources (`plural.group`) that no user may access, as if every role lacked the rules for them."""
        self._verbs = Verbs(registry, self.hub, rng or random.Random(0))
        self._subresources = Subresources(registry, self._verbs, authenticator)
        self._discovery = Discovery(registry)
        self._openapi = OpenApi(registry)
        self._reviews = Reviews(registry, authenticator)

    async def handle(self, request: Request) -> Response:
        """Answer a request; a refusal is an answer too."""
        answer = self.start(request)
        return answer if isinstance(answer, Response) else await answer

    def start(self, request: Request) -> Response | Awaitable[Response]:
        """Answer at once, or (writes under emulation, answers in protobuf) a little later."""
        if self.emulation is not None and request.method in WRITES:
            return self._after_service(request, self.emulation)
        response = self._respond(request)
        return in_protobuf(request, response) if wants_protobuf(request) else response

    async def _after_service(self, request: Request, emulation: Emulation) -> Response:
        try:
            await emulation.serve()
        except ApiStatusError as refusal:
            return error_response(refusal)
        return self._respond(request)

    def _respond(self, request: Request) -> Response:
        try:
            return self._route(request)
        except ApiStatusError as refusal:
            return error_response(refusal)
        except Exception as problem:
            log.exception("%s %s failed", request.method, request.path)
            text = f"Internal error occurred: {type(problem).__name__}: {problem}"
            return error_response(ApiStatusError(500, "InternalError", text))

    def _user(self, request: Request) -> User:
        if self.authenticator is None:
            return ANONYMOUS
        user = self.authenticator.authenticate(request.headers)
        if user is None and request.path not in _OPEN_PATHS:
            raise errors.unauthorized()
        return user or ANONYMOUS

    def _route(self, request: Request) -> Response:
        user = self._user(request)
        parts = request.path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            return self._resource(request, user, "", parts[1], parts[2:])
        if parts[0] == "apis" and len(parts) > 3:
            return self._resource(request, user, parts[1], parts[2], parts[3:])
        return self._other(request, parts)

    def _resource(self, request: Request, user: User, group: str, version: str, rest: list[str]) -> Response:
        namespace: str | None = None
        if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
            namespace, rest = rest[1], rest[2:]
        resource = self.registry.resource(group, version, rest[0])
        if namespace is not None and not resource.namespaced:
            raise errors.no_such_path()
        if resource.qualified in self.forbidden:
            raise errors.not_authorized(user.name, _verb(request, rest), resource, namespace)
        if len(rest) == 1:
            if resource.verbs == ("create",) and request.method == "POST":
                if resource.plural == "bindings":
                    return self._subresources.bind(request, namespace or "", None)
                return json_response(self._reviews.answer(request, resource, user), 201)
            return self._verbs.on_collection(request, resource, namespace)
        if resource.namespaced and namespace is None:
            raise errors.no_such_path()
        if len(rest) == 2:
            return self._verbs.on_object(request, resource, namespace, rest[1])
        if len(rest) > 3 and rest[2] != "proxy":
            raise errors.no_such_path()
        return self._subresources.answer(request, resource, namespace, rest[1], rest[2], user)

    def _other(self, request: Request, parts: list[str]) -> Response:
        if request.method != "GET":
            raise errors.no_such_path()
        head = parts[0]
        if head in ("api", "apis"):
            return self._discovery.answer(request, parts)
        if head in ("healthz", "livez", "readyz"):
            return health_response(parts, "verbose" in request.query, self.ready)
        if head == "version":
            return json_response(self.registry.release.version())
        if head == "openapi":
            return self._openapi.answer(request, parts)
        if head == "":
            paths = ["/api", "/api/v1", "/apis", *(f"/apis/{g}" for g in self._discovery.groups() if g)]
            paths += ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            return json_response({"paths": paths})
        raise errors.no_such_path()


def _verb(request: Request, rest: list[str]) -> str:
    """What the request does, in the words of roles."""
    if request.method == "GET":
        watches = request.query.get("watch", "") in ("1", "true")
        return "get" if len(rest) > 1 else "watch" if watches else "list"
    if request.method == "DELETE" and len(rest) == 1:
        return "deletecollection"
    return {"POST": "create", "PUT": "update"}.get(request.method, request.method.lower())
