"""Errors of requests to the API server, by what the caller may do about them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from koordsched.client.status import Status, read_status
from koordsched.client.transport import Response


class ClientError(Exception):
    """Base of everything this package raises for a request."""


class ConnectionConfigError(ClientError):
    """The connection settings cannot be used; the message names the file and what is wrong in it."""


class ConnectionFailure(ClientError):
    """No complete response arrived."""


class NotSent(ConnectionFailure):
    """Nothing of the request reached the server (refused, or lost before the first byte): safe to repeat."""


class Ambiguous(ConnectionFailure):
    """The request may or may not have been carried out (time-out or connection lost after sending): read back."""


class TooLong(Ambiguous):
    """The answer is longer than any that an API server sends; its connection was closed before its end."""

    def __init__(self, what: str, longest: int) -> None:
        super().__init__(f"{what}: the answer is longer than {longest:,} bytes")


class Fenced(ClientError):
    """The write was withheld: this process is no longer, or not provably, the leader, or it only reads."""


class QueueFull(ClientError):
    """The lane for this kind of write is full; nothing was sent."""


class LanesClosed(ClientError):
    """The write was still queued when its lanes were closed; nothing was sent."""


class ApiError(ClientError):
    """The server answered with a status of 300 or above. API servers send no redirects; a proxy in front of one may.

    `status` is the HTTP code; `reason`, `message` and `details` come from the Status body and are empty when there was
    none; `retry_after` is in seconds, from the Retry-After header or the body, None if the server named no time.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message or f"the server answered {status} {reason}".rstrip())
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details: Mapping[str, Any] = details or {}

    def has_cause(self, reason: str) -> bool:
        """Whether the details name this cause, such as ResourceVersionTooLarge."""
        causes = self.details.get("causes")
        return isinstance(causes, list) and any(isinstance(c, dict) and c.get("reason") == reason for c in causes)


class Unauthorized(ApiError):
    """401: the credentials were not accepted, even after refreshing them once."""


class Forbidden(ApiError):
    """403: the credentials are known but may not do this."""


class NotFound(ApiError):
    """404: no such object, or no such resource type."""


_ABOUT_UID = ("UID in precondition", "UID in the precondition", "uid mismatch")
"""No name contains any of these."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition (uid) does not hold."""

    @property
    def is_about_uid(self) -> bool:
        """Whether the object is no more, and another one has its name.

        The reason is the same for every conflict; the text says it, but also names the object, which may be called
        druid-0 (apiserver `storage/interfaces.go`, `registry/rest/delete.go`, `endpoints/handlers/patch.go`).
        """
        return any(words in self.message for words in _ABOUT_UID)


class AlreadyExists(Conflict):
    """409 on a create."""


class Gone(ApiError):
    """410: the resource version or continue token has been compacted away."""


class TooManyRequests(ApiError):
    """429: not carried out, to be repeated later (or, for an eviction, refused by a disruption budget)."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooManyRequests,
}


def error_from_status(body: bytes | msgspec.Raw, status: int = 0, headers: Mapping[str, str] | None = None) -> ApiError:
    """The error a Status object stands for. `status` is the HTTP code (0: take the code from the body).

    A body that is no Status (a proxy's HTML page) becomes the message, cut to 512 characters.
    """
    parsed = read_status(body) or Status(message=bytes(body)[:512].decode("utf-8", "replace").strip())
    code = status or parsed.code or 0
    details = parsed.details or {}
    reason = parsed.reason or ""
    kind = _BY_STATUS.get(code, ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason == "Expired":
        kind = Gone
    return kind(code, reason, parsed.message or "", _retry_after(headers or {}, details), details)


async def whole(chunks: AsyncIterator[bytes], longest: int, what: str) -> bytes:
    """All of a body that arrives in pieces. Raises TooLong about the request `what` if it is longer than that."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size > longest:
            pieces.clear()  # the error, which is kept, leads to this frame
            raise TooLong(what, longest)
    return b"".join(pieces)


def raise_for_status(response: Response) -> Response:
    """The response itself if its status is below 300. Raises ApiError otherwise."""
    if response.status < 300:
        return response
    raise error_from_status(response.body, response.status, response.headers)


def _retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    """Seconds to wait; API servers send whole seconds, never a date."""
    named = headers.get("retry-after", details.get("retryAfterSeconds"))
    try:
        seconds = float(named) if named is not None else math.inf
    except (TypeError, ValueError, OverflowError):
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
