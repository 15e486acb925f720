"""Delegated authentication and authorization: what is asked of the API server, how often, and what its answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import pytest

from koordsched.observability.access import LookupFailed, User
from koordsched.observability.authdelegate import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, DelegatedAuth


class Answer(NamedTuple):
    status: int
    body: bytes


@dataclass
class Server:
    """Answers every request with the same, after letting others run."""

    answer: Any = field(default_factory=dict)
    status: int = 201
    error: Exception | None = None
    requests: list[tuple[str, str, Any]] = field(default_factory=list)

    async def request(self, method: str, path: str, *, body: bytes | None = None) -> Answer:
        self.requests.append((method, path, orjson.loads(body) if body else None))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return Answer(self.status, self.answer if isinstance(self.answer, bytes) else orjson.dumps(self.answer))


USER = User("jane", "u1", ("devs", "system:authenticated"), {"scope": ("a", "b")})


async def test_token_review() -> None:
    user = {"username": "jane", "uid": "u1", "groups": list(USER.groups), "extra": {"scope": ["a", "b"]}}
    server = Server({"status": {"authenticated": True, "user": user}})
    assert await DelegatedAuth(server, lambda: 0.0).authenticate("t0ken") == USER
    assert server.requests == [
        (
            "POST",
            TOKEN_REVIEWS,
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t0ken"}},
        )
    ]


async def test_a_token_of_nobody() -> None:
    assert await DelegatedAuth(Server({"status": {"error": "expired"}}), lambda: 0.0).authenticate("x") is None


@pytest.mark.parametrize(("status", "allowed"), [({"allowed": True}, True), ({"allowed": False}, False), ({}, False)])
async def test_access_review(status: dict[str, Any], allowed: bool) -> None:
    server = Server({"status": status})
    assert await DelegatedAuth(server, lambda: 0.0).authorize(USER, "get", "/metrics") is allowed
    assert server.requests == [
        (
            "POST",
            SUBJECT_ACCESS_REVIEWS,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": "jane",
                    "uid": "u1",
                    "groups": ["devs", "system:authenticated"],
                    "extra": {"scope": ["a", "b"]},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            },
        )
    ]


async def test_answers_are_believed_for_ten_seconds() -> None:
    times = [0.0]
    server = Server({"status": {"allowed": True}})
    auth = DelegatedAuth(server, lambda: times[-1])
    for now in (0.0, 9.9, 10.0, 15.0, 20.0):
        times.append(now)
        assert await auth.authorize(USER, "get", "/metrics")
    await auth.authorize(USER, "get", "/configz")
    await auth.authorize(User("other"), "get", "/metrics")
    assert len(server.requests) == 5


async def test_equal_questions_at_the_same_time_are_asked_once() -> None:
    server = Server({"status": {"authenticated": True}})
    auth = DelegatedAuth(server, lambda: 0.0)
    asking = [asyncio.create_task(auth.authenticate("same")) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    answers = await asyncio.gather(*asking[1:])
    assert [user is not None for user in answers] == [True] * 4
    assert len(server.requests) == 1


async def test_the_cache_is_bounded() -> None:
    server = Server({"status": {"authenticated": True}})
    auth = DelegatedAuth(server, lambda: 0.0, max_entries=2)
    for token in ("a", "b", "c", "c", "b", "a"):
        await auth.authenticate(token)
    assert [body["spec"]["token"] for _, _, body in server.requests] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Server(error=ConnectionError("refused")), "tokenreviews: refused"),
        (Server(error=TimeoutError()), "tokenreviews: TimeoutError"),
        (Server(error=ConnectionError(f"POST {TOKEN_REVIEWS}: refused")), f"^POST {TOKEN_REVIEWS}: refused$"),
        (Server(status=403), "the API server answered 403"),
        (Server(b"<html>"), "malformed"),
        (Server({"status": {"authenticated": "yes"}}), "Expected `bool`"),
    ],
)
async def test_failures_are_told_and_not_remembered(server: Server, message: str) -> None:
    auth = DelegatedAuth(server, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(LookupFailed, match=message):
            await auth.authenticate("x")
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "bundle"), [({"data": {"client-ca-file": "PEM"}}, b"PEM"), ({"data": None}, None), ({}, None)]
)
async def test_client_ca(answer: dict[str, Any], bundle: bytes | None) -> None:
    server = Server(answer, status=200)
    assert await DelegatedAuth(server, lambda: 0.0).client_ca() == bundle
    assert server.requests == [
        ("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", None)
    ]
