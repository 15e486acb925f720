"""One extender: its verbs as coroutines over HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from koordsched.cluster.pod import Pod
from koordsched.cluster.shape import PodShape
from koordsched.config.secrets import without_secrets
from koordsched.config.wire import Extender
from koordsched.extender.tls import tls_context
from koordsched.extender.wire import (
    BadReply,
    FilterReply,
    MetaVictims,
    binding_arguments,
    read_binding,
    read_filter,
    read_priorities,
    read_victims,
)
from koordsched.observability.instruments import HistogramFamily

DEFAULT_TIMEOUT = 5.0
"""Seconds for a request if `httpTimeout` is not set."""

SMALL_REPLY = 16 << 20
"""Bytes that any answer may have; beyond that it may be twice as long as the request."""

T = TypeVar("T")


class ExtenderError(Exception):
    """The request to the extender failed; the message is upstream's where there is one.

    `asked`: whether the request may have reached it; `uncertain`: what it asked for may yet be done.
    """

    def __init__(self, message: str, *, asked: bool = True, uncertain: bool = False) -> None:
        super().__init__(message)
        self.asked = asked
        self.uncertain = uncertain


class Withheld(Exception):
    """The request must not be sent any more."""


class _Body(aiohttp.BytesPayload):
    """A request body that is only sent if it still may be: connecting takes time, and processes may be stopped
    meanwhile.
    """

    def __init__(self, arguments: bytes, may_send: Callable[[], bool]) -> None:
        super().__init__(arguments, content_type="application/json")
        self._may_send = may_send

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """See aiohttp. Raises Withheld, whereupon aiohttp drops the connection: no server acts on half a request."""
        if not self._may_send():
            raise Withheld
        await super().write_with_length(writer, content_length)


class HttpExtender:
    """Calls one extender. A verb that the configuration does not name is not called: see `filters` and the like."""

    def __init__(self, config: Extender, durations: HistogramFamily, clock: Callable[[], float]) -> None:
        """Raises ExtenderConfigError."""
        self.url = without_secrets(config.url_prefix)
        self.weight = config.weight
        self.ignorable = config.ignorable
        self.node_cache_capable = config.node_cache_capable
        self.filters = bool(config.filter_verb)
        self.prioritizes = bool(config.prioritize_verb)
        self.preempts = bool(config.preempt_verb)
        self.binds = bool(config.bind_verb)
        self._config = config
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._timeout = config.http_timeout.seconds or DEFAULT_TIMEOUT
        self._tls: ssl.SSLContext = tls_context(config)
        self._server_name = config.tls_config.server_name if config.tls_config is not None else ""
        self._durations = durations
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    def is_interested(self, pod: Pod) -> bool:
        """Whether it wants to be asked about the pod: about any, or about those that use its resources."""
        return not self._managed or pod.shape.compiled(self, self._is_managed)

    def _is_managed(self, shape: PodShape) -> bool:
        for container in (*shape.spec.containers, *shape.spec.init_containers):
            resources = container.resources
            if resources is not None and not self._managed.isdisjoint((*resources.requests, *resources.limits)):
                return True
        return False

    async def filter(self, arguments: bytes) -> FilterReply:
        """Which of the nodes may stay. Raises ExtenderError."""
        names = self.node_cache_capable
        reply = await self._ask(self._config.filter_verb, arguments, lambda body: read_filter(body, names=names))
        if reply.error:
            raise ExtenderError(reply.error)
        return reply

    async def prioritize(self, arguments: bytes) -> list[tuple[str, int]]:
        """(node, score of 0 to 10). Raises ExtenderError."""
        return await self._ask(self._config.prioritize_verb, arguments, read_priorities)

    async def preempt(self, arguments: bytes) -> dict[str, MetaVictims]:
        """The candidates that remain, by node, with the victims it agrees to. Raises ExtenderError."""
        return await self._ask(self._config.preempt_verb, arguments, read_victims)

    async def bind(self, pod: Pod, node: str, may_send: Callable[[], bool]) -> None:
        """Binds the pod. `may_send` is asked right before the request is handed to a socket. Raises ExtenderError."""
        arguments = binding_arguments(pod.namespace, pod.name, pod.uid, node)
        error = await self._ask(self._config.bind_verb, arguments, read_binding, may_send)
        if error:
            raise ExtenderError(error)

    async def close(self) -> None:
        """Closes its connections."""
        if self._session is not None:
            await self._session.close()

    # --- HTTP --------------------------------------------------------------------------------------

    async def _ask(
        self, verb: str, arguments: bytes, read: Callable[[bytes], T], may_send: Callable[[], bool] = lambda: True
    ) -> T:
        url = f"{self.url.rstrip('/')}/{verb}"  # for messages
        started = self._clock()
        result = "error"
        try:
            status, body = await self._post(f"{self._config.url_prefix.rstrip('/')}/{verb}", arguments, may_send)
            if status != 200:
                raise ExtenderError(f"failed {verb} with extender at URL {url}, code {status}", uncertain=status >= 500)
            answer = read(body)
            result = "success"
            return answer
        except Withheld as error:
            raise ExtenderError(f'Post "{url}": withheld: not the leader', asked=False) from error
        except TimeoutError as error:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderError(f'Post "{url}": {late}', uncertain=True) from error
        except aiohttp.ClientConnectorError as error:
            raise ExtenderError(f'Post "{url}": {error}', asked=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderError(f'Post "{url}": {error or type(error).__name__}', uncertain=True) from error
        except BadReply as error:
            raise ExtenderError(f"failed {verb} with extender at URL {url}: {error}", uncertain=True) from error
        except ValueError as error:
            # aiohttp's error for an invalid URL, which it repeats.
            raise ExtenderError(f'Post "{url}": {type(error).__name__}', asked=False) from error
        finally:
            self._durations.labels(self.url, verb, result).observe(self._clock() - started)

    async def _post(self, url: str, arguments: bytes, may_send: Callable[[], bool]) -> tuple[int, bytes]:
        """Status and body; the body of a refusal is not read. Raises Withheld, aiohttp's errors and BadReply."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=self._timeout)
            )
        name = self._server_name or None
        try:
            async with self._session.post(
                url, data=_Body(arguments, may_send), ssl=self._tls, server_hostname=name
            ) as response:
                if response.status != 200:
                    return response.status, b""
                return 200, await self._read(response, max(SMALL_REPLY, 2 * len(arguments)))
        except aiohttp.ClientConnectionError as error:
            if isinstance(error.__cause__, Withheld):
                raise error.__cause__ from None
            raise

    @staticmethod
    async def _read(response: aiohttp.ClientResponse, longest: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > longest:
                raise BadReply(f"the answer is longer than {longest} bytes")
            pieces.append(piece)
        return b"".join(pieces)


def in_order(extenders: Sequence[HttpExtender]) -> list[HttpExtender]:
    """Those that must not fail come first."""
    return sorted(extenders, key=lambda extender: extender.ignorable)
