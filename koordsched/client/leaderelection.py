"""Leader election on a Lease: one replica acts, the others are warm standbys.

Same protocol as client-go's tools/leaderelection (leaderelection.go), so that replicas of either kind may compete for
one lock. What differs: standbys watch the Lease and take a released one at once; the holder of an expired one is
replaced the moment it expires; and a leader can tell at any time until when it provably leads (`deadline`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from random import Random

import msgspec

from koordsched.api.decoding import Decoder
from koordsched.client.clock import Clock
from koordsched.client.errors import ClientError, Conflict, NotFound, raise_for_status
from koordsched.client.lease import Lease, LeaseLock, Record, micro_time, new_lease
from koordsched.client.reflector import Reflector
from koordsched.client.sink import ObjectKey
from koordsched.client.transport import Request, Response, Transport

log = logging.getLogger(__name__)

JITTER = 1.2
"""A standby waits `retry_period`, and up to this share of it more, between tries (client-go: JitterFactor)."""

TAKEOVER_SPREAD = 0.02
"""Seconds over which standbys spread their attempts to take a free lease."""

TOLERATED_OVERDUE = 20.0
"""Seconds past the lease duration until a leader that cannot renew is reported as unhealthy (kube-scheduler)."""

SHORTEST_TRY = 0.01
"""Seconds before the deadline that are not worth another attempt."""

RELEASE_ATTEMPTS = 2
"""The second attempt starts from a fresh read if the first met a conflict."""

RELEASE_TIMEOUT = 3.0
"""Seconds for each request of a release; a process that has lost the server must not linger."""


@dataclass(frozen=True)
class ElectionConfig:
    """Durations in seconds; `identity` must differ between replicas (`<hostname>_<uuid>` by custom)."""

    identity: str
    namespace: str = "kube-system"
    name: str = "kube-scheduler"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Raises ValueError for durations that cannot work together (client-go NewLeaderElector)."""
        if not self.identity:
            raise ValueError("the election identity is empty")
        if min(self.lease_duration, self.renew_deadline, self.retry_period) <= 0:
            raise ValueError("leaseDuration, renewDeadline and retryPeriod must be greater than zero")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError("leaseDuration must be greater than renewDeadline")
        if self.renew_deadline <= JITTER * self.retry_period:
            raise ValueError(f"renewDeadline must be greater than retryPeriod*{JITTER}")


Write = Callable[[Request], Awaitable[Response]]


@dataclass(eq=False, repr=False)
class Elector:
    """Competes for one lock. `run` returns when leadership is lost; cancelling it releases the lock.

    All deadlines are this machine's boot time since a moment that lies before the server's: neither remote clocks nor a
    suspended machine can make us rely on a lease that others may have taken. `on_started` and `on_stopped` are called
    in pairs, `on_new_leader` with the identity of each leader seen, our own included. `write` carries lock writes if
    they are not to go straight to the transport. `may_release` is asked before the lock is given up: while writes of
    ours may still be on their way, it must be left to expire, or they could arrive when another replica leads.
    """

    config: ElectionConfig
    transport: Transport
    clock: Clock
    rng: Random
    _: KW_ONLY
    on_started: Callable[[], None]
    on_stopped: Callable[[], None]
    on_new_leader: Callable[[str], None] | None = None
    write: Write | None = None
    may_release: Callable[[], Awaitable[bool]] | None = None

    def __post_init__(self) -> None:
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{self.config.namespace}/leases"
        self.path = f"{self._collection}/{self.config.name}"
        """Of the Lease."""
        self.renewed_at = float("-inf")
        """Boot time at which the last successful attempt to get or keep the lock began."""
        self._lock: LeaseLock | None = None
        self._record: Record | None = None
        self._observed_at = 0.0
        self._deadline = float("-inf")
        self._leading = False
        self._leader = ""
        self._news = asyncio.Event()

    # --- what others ask ---

    def is_leader(self) -> bool:
        """Whether this process may act right now: the fence to ask right before each write."""
        return self._leading and self.clock.boottime() < self._deadline

    def deadline(self) -> float:
        """Boot time in seconds until which we lead if nothing is heard any more; -inf when not leading."""
        return self._deadline if self._leading else float("-inf")

    def renewed_elsewhere(self, began: float) -> None:
        """A thread of this process has renewed the lock by an attempt that began at this boot time; called there."""
        if self._leading:
            self._deadline = max(self._deadline, began + self.config.renew_deadline)

    @property
    def leader(self) -> str:
        """Identity of the leader last seen, empty if none."""
        return self._leader

    def check(self) -> str | None:
        """The state for /healthz: None if healthy, otherwise why not. A standby is always healthy."""
        if self._record is None or self._record.holder != self.config.identity:
            return None
        if self.clock.boottime() - self._observed_at <= self.config.lease_duration + TOLERATED_OVERDUE:
            return None
        return f"failed election to renew leadership on lease {self.config.name}"

    # --- the life of an elector ---

    async def run(self) -> None:
        """Waits for the lock, leads, and returns when the lock is lost. Raises nothing but CancelledError."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            await self._acquire()
            log.info("successfully acquired lease %s/%s", self.config.namespace, self.config.name)
            self._leading = True
            try:
                self.on_started()
                await self._renew()
            finally:
                # From here on the fence refuses writes, before another replica can hold the lock.
                self._leading = False
                self.on_stopped()
            log.error("lost lease %s/%s", self.config.namespace, self.config.name)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._release()

    async def _acquire(self) -> None:
        while True:
            # Cleared before the attempt: a change of the Lease during it must cut the following wait short.
            self._news.clear()
            if await self._try(self.config.renew_deadline / 2):
                return
            delay = self.config.retry_period * self.rng.uniform(1.0, 1.0 + JITTER)
            free_in = self._expires_in()
            if free_in is not None and 0 < free_in < delay:
                delay = free_in + self.rng.uniform(0.0, TAKEOVER_SPREAD)
            await self._sleep(delay)

    async def _renew(self) -> None:
        """Renews every `retry_period` until that failed for `renew_deadline`, or another replica holds the lock."""
        period = self.config.retry_period
        while True:
            await self._sleep(period)
            left = self._deadline - self.clock.boottime()
            if left < SHORTEST_TRY:
                return
            self._news.clear()
            await self._try(min(left, self.config.renew_deadline / 2))
            if not self._leading:
                return

    async def _sleep(self, delay: float) -> None:
        """Waits until the time is up, or the watch shows that the lock changed hands."""
        if self._leading:
            # Never past the deadline: what has to stop then must stop then.
            delay = max(min(delay, self._deadline - self.clock.boottime()), 0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._news.wait()
                await asyncio.sleep(self.rng.uniform(0.0, TAKEOVER_SPREAD))

    # --- the lock ---

    async def _try(self, within: float) -> bool:
        """One attempt to get or keep the lock; `within` is the time limit of each request, in seconds."""
        try:
            return await self._try_once(within)
        except (Conflict, NotFound) as error:
            # Another replica was faster, or the Lease was deleted: our copy is stale.
            self._lock = None
            log.debug("lease %s: %s", self.config.name, error)
        except (ClientError, msgspec.MsgspecError) as error:
            log.warning("cannot get or renew lease %s/%s: %s", self.config.namespace, self.config.name, error)
            self._lock = None
        return False

    async def _try_once(self, within: float) -> bool:
        # A leader whose copy is current renews without reading first.
        current = self._leading and self._lock is not None
        if not current and not await self._read(within):
            # The Lease was deleted. Its holder may still act as leader until the Lease would have expired.
            return (self._leading or not self._taken()) and await self._create(within)
        assert self._lock is not None
        held = self._lock.record
        if held.holder not in ("", self.config.identity) and (self._leading or self._taken()):
            self._leading = False
            return False
        ours = held.holder == self.config.identity
        wanted = self.claim(held) if ours else self._first_claim(held.transitions + 1)
        began = self.clock.boottime()
        request = Request("PUT", self.path, self._lock.rewritten(wanted), timeout=within)
        self._take(await self._send(request), began)
        return True

    async def _read(self, within: float) -> bool:
        """Fetches the Lease; False if there is none."""
        try:
            response = raise_for_status(await self.transport.request("GET", self.path, timeout=within))
        except NotFound:
            return False
        self._lock = LeaseLock(response.body, self.config.lease_duration)
        self._observe(self._lock.record)
        return True

    async def _create(self, within: float) -> bool:
        body = new_lease(self.config.namespace, self.config.name, self._first_claim(0))
        began = self.clock.boottime()
        self._take(await self._send(Request("POST", self._collection, body, timeout=within)), began)
        return True

    def claim(self, held: Record) -> Record:
        """The record that keeps us leader; `held` is the one that we have."""
        return held._replace(renewed=micro_time(self.clock.wall()), duration=self.config.lease_duration)

    def _first_claim(self, transitions: int) -> Record:
        """The record that makes us leader."""
        now = micro_time(self.clock.wall())
        return Record(self.config.identity, self.config.lease_duration, now, now, transitions)

    async def _send(self, request: Request) -> Response:
        if self.write is not None:
            return await self.write(request)
        response = await self.transport.request(
            request.method, request.target, body=request.body, timeout=request.timeout
        )
        return raise_for_status(response)

    def _take(self, response: Response, began: float) -> None:
        """Our write succeeded. The lease counts from before it was sent, which is before any replica can see it."""
        self._lock = LeaseLock(response.body, self.config.lease_duration)
        self._observe(self._lock.record)
        self._observed_at = self.clock.boottime()
        self._deadline = began + self.config.renew_deadline
        self.renewed_at = began

    def _observe(self, record: Record) -> None:
        """Remembers since when, by our own clock, the lock has had its current record."""
        if record != self._record:
            self._observed_at = self.clock.boottime()
        self._record = record
        if record.holder != self._leader:
            self._leader = record.holder
            if record.holder:
                log.info("new leader elected: %s", record.holder)
                if self.on_new_leader is not None:
                    self.on_new_leader(record.holder)

    def _expires_in(self) -> float | None:
        """Seconds until a lock held by another replica may be taken; None if its record is unknown."""
        record = self._record
        if record is None or not record.holder:
            return None
        return self._observed_at + record.duration - self.clock.boottime()

    def _taken(self) -> bool:
        """Whether another replica holds a lock that has not expired."""
        return (self._expires_in() or 0.0) > 0

    async def _release(self) -> None:
        """Gives the lock up if it is ours, so that the next leader need not wait for it to expire."""
        if self._leader == self.config.identity and self.may_release is not None and not await self.may_release():
            log.info("lease %s/%s is left to expire", self.config.namespace, self.config.name)
            return
        for _ in range(RELEASE_ATTEMPTS):
            lock = self._lock
            try:
                if lock is None:
                    if not await self._read(RELEASE_TIMEOUT):
                        return
                    lock = self._lock
                if lock is None or lock.record.holder != self.config.identity:
                    return
                now = micro_time(self.clock.wall())
                released = Record("", 1.0, now, now, lock.record.transitions)
                request = Request("PUT", self.path, lock.rewritten(released), timeout=RELEASE_TIMEOUT)
                await self._send(request)
                self._lock, self._record = None, released
                return
            except Conflict:
                self._lock = None
            except (ClientError, msgspec.MsgspecError) as error:
                log.warning("cannot release lease %s/%s: %s", self.config.namespace, self.config.name, error)
                return

    # --- the watch ---

    async def _watch(self) -> None:
        """Follows the Lease. Where that is forbidden, polling alone does it, only more slowly."""
        reflector = Reflector(
            self.transport,
            self._collection,
            Decoder(Lease),
            _LeaseSink(self.config.name, self._seen, self._changed),
            clock=self.clock,
            rng=self.rng,
            selectors={"fieldSelector": f"metadata.name={self.config.name}"},
        )
        await reflector.run()

    def _seen(self, lease: Lease) -> None:
        """Only a hint: every action starts with reading the Lease.

        It may only make a foreign lease look fresher, which delays us at worst.
        """
        record = Record.of(lease.spec, self.config.lease_duration)
        if record.holder == self.config.identity:
            return
        if not self._leading and record.holder:
            self._observe(record)
        else:
            self._changed()

    def _changed(self) -> None:
        """The lock is free, gone, or not ours any more: check at once."""
        self._lock = None
        self._news.set()


class _LeaseSink:
    """Passes on what happens to one Lease."""

    def __init__(self, name: str, changed: Callable[[Lease], None], removed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self._removed = removed
        self._known: ObjectKey | None = None

    def upsert(self, obj: Lease, anew: bool = False) -> None:
        meta = obj.metadata
        if meta.name == self._name:
            self._known = ObjectKey(meta.namespace, meta.name, meta.uid)
            self._changed(obj)

    def delete(self, obj: Lease) -> None:
        meta = obj.metadata
        self.delete_key(ObjectKey(meta.namespace, meta.name, meta.uid))

    def delete_key(self, key: ObjectKey) -> None:
        if key.name == self._name:
            if key == self._known:
                self._known = None
            self._removed()

    def known(self) -> Iterator[ObjectKey]:
        return iter(() if self._known is None else (self._known,))
