"""Delegated authentication and authorization: the API server decides (TokenReview, SubjectAccessReview)."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec
import orjson

from koordsched.api.decoding import DecodeError, Decoder
from koordsched.client.transport import Transport
from koordsched.observability.access import LookupFailed, User

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CLIENT_CA_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

CACHE_SECONDS = 10.0
"""How long an answer is cached (component-base's delegating options: 10 s for all three kinds)."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""


class _TokenReview(msgspec.Struct):
    status: _TokenReviewStatus = msgspec.field(default_factory=_TokenReviewStatus)


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessReviewStatus = msgspec.field(default_factory=_AccessReviewStatus)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class _Cache(Generic[K, V]):
    """Answers by key, for a while. Equal questions asked at the same time are asked once; failures are not kept."""

    def __init__(self, monotonic: Callable[[], float], seconds: float, max_entries: int) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._max_entries = max_entries
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        known = self._answers.get(key)
        if known is not None and self._monotonic() < known[0]:
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, ask))
        # A request that is cancelled must not cancel the lookup for the others.
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._answers[key] = (self._monotonic() + self._seconds, answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)
        return answer


class DelegatedAuth:
    """`authenticate` and `authorize` for `access.AccessControl`. Tokens are remembered as hashes only."""

    def __init__(
        self,
        requester: Transport,
        monotonic: Callable[[], float],
        *,
        cache_seconds: float = CACHE_SECONDS,
        max_entries: int = 1024,
    ) -> None:
        self._requester = requester
        self._users: _Cache[bytes, User | None] = _Cache(monotonic, cache_seconds, max_entries)
        self._verdicts: _Cache[Hashable, bool] = _Cache(monotonic, cache_seconds, max_entries)

    async def authenticate(self, token: str) -> User | None:
        """The user of a bearer token, None if it is invalid. Raises LookupFailed."""
        return await self._users.get(hashlib.sha256(token.encode()).digest(), lambda: self._review_token(token))

    async def authorize(self, user: User, verb: str, path: str) -> bool:
        """Whether the user may do this. Raises LookupFailed."""
        extra = tuple(sorted((key, values) for key, values in user.extra.items()))
        key = (user.name, user.uid, user.groups, extra, verb, path)
        return await self._verdicts.get(key, lambda: self._review_access(user, verb, path))

    async def client_ca(self) -> bytes | None:
        """The PEM bundle that the cluster signs client certificates with, None if it publishes none.

        Raises LookupFailed.
        """
        found = await self._ask("GET", CLIENT_CA_CONFIG_MAP, None, _ConfigMap)
        bundle = (found.data or {}).get("client-ca-file")
        return bundle.encode() if bundle else None

    async def _review_token(self, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._ask("POST", TOKEN_REVIEWS, body, _TokenReview)).status
        if not status.authenticated:
            return None
        extra = {key: tuple(values) for key, values in (status.user.extra or {}).items()}
        return User(status.user.username, status.user.uid, tuple(status.user.groups or ()), extra)

    async def _review_access(self, user: User, verb: str, path: str) -> bool:
        spec: dict[str, Any] = {"user": user.name, "nonResourceAttributes": {"path": path, "verb": verb}}
        if user.uid:
            spec["uid"] = user.uid
        if user.groups:
            spec["groups"] = user.groups
        if user.extra:
            spec["extra"] = user.extra
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return (await self._ask("POST", SUBJECT_ACCESS_REVIEWS, body, _AccessReview)).status.allowed

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None, kind: type[V]) -> V:
        try:
            answer = await self._requester.request(method, path, body=None if body is None else orjson.dumps(body))
        except Exception as error:
            # Whatever the transport raises: the client gets a server error.
            text = str(error) or type(error).__name__
            raise LookupFailed(text if text.startswith(f"{method} {path}") else f"{method} {path}: {text}") from error
        if not 200 <= answer.status < 300:
            raise LookupFailed(f"{method} {path}: the API server answered {answer.status}")
        try:
            return Decoder(kind)(answer.body)
        except DecodeError as error:
            raise LookupFailed(f"{method} {path}: {error}") from error
