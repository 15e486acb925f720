"""The interface to the API server. Everything above it works the same over the network and in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

if TYPE_CHECKING:
    from koordsched.client.errors import ClientError

Query = Mapping[str, str]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

DEFAULT_TIMEOUT = 30.0
"""Seconds until a request without a time-out of its own is given up; API servers themselves stop at 60."""

LONGEST_ANSWER = 32 << 20
"""Bytes of an answer about one object, and of every refusal (etcd holds objects of up to 1.5 MB)."""

LONGEST_LIST = 1 << 30
"""Bytes of a page of a list: a server may ignore its `limit`, and 200,000 pods of 5 KB are that much."""


class Response(NamedTuple):
    """A complete answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """One request, complete with everything needed to repeat it.

    `target` is the path with its query, already encoded. `timeout` is in seconds and covers the whole exchange.
    `fence` is asked at the last moment before the bytes are handed to a socket; when it says no, nothing is sent and
    the outcome is `Fenced`. `is_list`: what comes is a page of a list, not one object.
    """

    method: str
    target: str
    body: bytes = b""
    content_type: str = JSON
    timeout: float = DEFAULT_TIMEOUT
    headers: Mapping[str, str] | None = None
    fence: Callable[[], bool] | None = None
    is_list: bool = False

    def longest(self, status: int) -> int:
        """The bytes that an answer of this status may have; one that goes on is given up."""
        return LONGEST_LIST if self.is_list and status < 300 else LONGEST_ANSWER


Done = Callable[["Response | ClientError"], None]
"""Receives the outcome of a request started with `Transport.send`: a response of any status, or why there is none."""


class Stream(Protocol):
    """An answer whose body arrives in pieces."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Ends at a proper end, raises ConnectionFailure when cut off or timed out."""
        ...


class Transport(ABC):
    """Requests and streams to one API server."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = DEFAULT_TIMEOUT,
        headers: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """Sends and waits for the whole answer, of any status. Raises NotSent or Ambiguous when there is none.

        A query with a `limit` is that of a list.
        """
        target, is_list = target_of(path, query), query is not None and "limit" in query
        return self._request(Request(method, target, body or b"", content_type, timeout, headers, is_list=is_list))

    @abstractmethod
    def _request(self, request: Request) -> Coroutine[Any, Any, Response]: ...

    @abstractmethod
    def send(self, request: Request, done: Done) -> None:
        """Starts a request and calls `done` with its outcome, later and exactly once: the form without a task."""

    def stream(
        self,
        path: str,
        *,
        query: Query | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """A GET whose body is read in chunks; `timeout` bounds the whole of it. Raises ConnectionFailure."""
        return self._stream(Request("GET", target_of(path, query), timeout=timeout, headers=headers))

    @abstractmethod
    def _stream(self, request: Request) -> AbstractAsyncContextManager[Stream]: ...

    @abstractmethod
    def drop_connections(self) -> None:
        """Aborts every write under way (they end as Ambiguous), for a process that is no longer allowed to act."""

    @abstractmethod
    async def close(self) -> None:
        """Closes every connection; requests still under way end as Ambiguous, or NotSent if they never left."""


def target_of(path: str, query: Query | None) -> str:
    """The request target: the path with the query encoded behind it."""
    return f"{path}?{urlencode(query)}" if query else path
