"""Authentication by bearer tokens."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    def info(self) -> dict[str, Any]:
        """As authentication.k8s.io UserInfo."""
        info: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        return info


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


class Authenticator:
    """Tokens and their users."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._tokens = {token.encode(): user for token, user in tokens.items()}

    def add(self, token: str, user: User) -> None:
        """Accept one more token."""
        self._tokens[token.encode()] = user

    def user(self, token: str) -> User | None:
        """The user of this token, or None."""
        given = token.encode()
        found = None
        for known, user in self._tokens.items():
            if hmac.compare_digest(known, given):
                found = user
        return found

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The user of a request, or None."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self.user(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
