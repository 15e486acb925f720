"""The current address, TLS context and credentials, kept up to date for all connections."""

from __future__ import annotations

import asyncio
import logging
import ssl

from koordsched.client.clock import Clock
from koordsched.client.errors import ConnectionConfigError
from koordsched.client.settings import SHORTEST_RENEWAL, Settings, Source

log = logging.getLogger(__name__)


class Connection:
    """The settings to reach one API server, re-read when due and when the server rejects our credentials.

    `generation` counts changes of credentials, so that a refused request can tell whether newer ones are there already.
    """

    def __init__(self, source: Source, clock: Clock, settings: Settings) -> None:
        self._source = source
        self._clock = clock
        self._refreshing: asyncio.Task[None] | None = None
        self._fingerprint = settings.tls_fingerprint()
        self._reload_at = self._due(settings)
        self._read_at = clock.monotonic()
        self.settings = settings
        self.tls: ssl.SSLContext | None = settings.tls_context()
        self.generation = 0

    @classmethod
    async def open(cls, source: Source, clock: Clock) -> Connection:
        """Reads the settings for the first time. Raises ConnectionConfigError."""
        settings = await source()
        try:
            return cls(source, clock, settings)
        except OSError as error:
            raise ConnectionConfigError(f"cannot read {error.filename}: {error.strerror}") from error

    @property
    def host(self) -> str:
        return self.settings.server.hostname or ""

    @property
    def port(self) -> int:
        url = self.settings.server
        return url.port or (443 if url.scheme == "https" else 80)

    @property
    def server_name(self) -> str | None:
        """The name to verify the server's certificate against, None without TLS."""
        return (self.settings.server_name or self.host) if self.tls else None

    @property
    def base_url(self) -> str:
        """scheme://host:port plus the path under which the API lives, without a slash at the end."""
        return self.settings.server.geturl()

    def refresh_if_due(self) -> None:
        """Starts reading the settings again when it is time; the caller goes on with the ones at hand."""
        if self._reload_at is not None and self._clock.monotonic() >= self._reload_at:
            self._start_refresh()

    def suspect(self) -> None:
        """The TLS handshake failed: certificates may have been replaced. Reads the settings again, unless just done."""
        if self._clock.monotonic() - self._read_at >= SHORTEST_RENEWAL:
            self._start_refresh()

    async def refresh(self, generation: int) -> None:
        """Makes sure the credentials are newer than `generation` if newer ones can be had; one reading serves all."""
        if self.generation == generation:
            await asyncio.shield(self._start_refresh())

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None:
            self._read_at = self._clock.monotonic()
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            settings = await self._source()
            fingerprint = settings.tls_fingerprint()
            if fingerprint != self._fingerprint:
                self.tls, self._fingerprint = settings.tls_context(), fingerprint
            elif settings.authorization == self.settings.authorization:
                self._reload_at = self._due(settings)
                return
            self.settings, self._reload_at = settings, self._due(settings)
            self.generation += 1
        except (ConnectionConfigError, OSError) as error:
            log.warning("credentials could not be renewed, keeping the old ones: %s", error)
            self._reload_at = self._clock.monotonic() + SHORTEST_RENEWAL
        finally:
            self._refreshing = None

    def _due(self, settings: Settings) -> float | None:
        return None if settings.reload_after is None else self._clock.monotonic() + settings.reload_after

    async def close(self) -> None:
        """Ends a reading that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
