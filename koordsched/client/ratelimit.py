"""How much may be under way: adaptive concurrency, and a token bucket if one is configured."""

from __future__ import annotations

LATENCY_TARGET = 1.0
"""Seconds. Kubernetes promises 99 % of writes to single objects within 1 s; a slower server is an overloaded one."""

INCREASE = 1.0
"""Slots gained per round of answers while every slot is in use, once the server has shown that it can have too much."""

DECREASE = 0.7
"""Share of the slots kept after a sign of overload."""

COOLDOWN = 0.25
"""Seconds between two decreases: one jam shows in many answers."""


class AdaptiveLimit:
    """Concurrency by slow start, then additive increase and multiplicative decrease, as in TCP.

    It grows only while it is what holds writes back, by a slot per answer until the first sign of overload and by
    `INCREASE` slots per round afterwards. It shrinks on 429, 503, failed connections and answers slower than
    `LATENCY_TARGET`. `current` is the number of requests allowed under way. More than 128 do not help: an API server
    does less work per write the more it has at once, up to about that, and queues or refuses what is beyond.
    """

    def __init__(self, initial: int = 32, smallest: int = 2, largest: int = 128) -> None:
        self._value = float(initial)
        self._smallest = smallest
        self._largest = largest
        self._decreased_at = float("-inf")
        self.current = initial
        self.decreases = 0

    def succeeded(self, now: float, latency: float, saturated: bool) -> None:
        """An answer after `latency` seconds; `saturated` when every slot was in use."""
        if latency > LATENCY_TARGET:
            self.overloaded(now)
        elif saturated and self._value < self._largest:
            gained = INCREASE / self._value if self.decreases else 1.0
            self._value = min(self._value + gained, self._largest)
            self.current = int(self._value)

    def overloaded(self, now: float) -> None:
        """A sign that the server is overloaded."""
        if now - self._decreased_at < COOLDOWN:
            return
        self._decreased_at = now
        self._value = max(self._value * DECREASE, self._smallest)
        self.current = int(self._value)
        self.decreases += 1


class TokenBucket:
    """`qps` tokens a second, at most `burst` saved up (client-go util/flowcontrol/throttle.go)."""

    def __init__(self, qps: float, burst: int, now: float) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a rate limit needs qps > 0 and burst >= 1, not {qps} and {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._updated = now

    def take(self, now: float) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one."""
        self._tokens = min(self._tokens + (now - self._updated) * self._qps, self._burst)
        self._updated = now
        # A timer may fire a rounding error early; that must not cost another round of the loop.
        if self._tokens >= 1 - 1e-9:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._qps
