"""Probes: pods that are tried on half-open nodes, and what comes of them with time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from koordsched.framework.handle import Clock
from koordsched.framework.timers import Timer, Timers, due_of
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs
from koordsched.plugins.nodecircuitbreaker.sightings import Sighting
from koordsched.plugins.nodecircuitbreaker.state import ProbeState


@dataclass(slots=True)
class Probe:
    """A pod that is tried on a half-open node. `healthy_since`: monotonic seconds; None while it does not run."""

    row: int
    timer: Timer | None
    healthy_since: float | None = None
    probation: Timer | None = None

    def stop(self) -> None:
        """Nothing is waited for any more."""
        for timer in (self.timer, self.probation):
            if timer is not None:
                timer.cancel()


class Probes:
    """All of them, by uid."""

    def __init__(
        self,
        args: NodeCircuitBreakerArgs,
        clock: Clock,
        timers: Timers,
        close: Callable[[int, str, float], None],
        end: Callable[[str], None],
    ) -> None:
        """`close` is called with the row of a node whose probe ran for long enough, why, and the monotonic seconds from
        which on it ran; `end` with the uid of a probe that told nothing.
        """
        self._args, self._clock, self._timers = args, clock, timers
        self._close, self._end = close, end
        self._probes: dict[str, Probe] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._probes

    def get(self, uid: str) -> Probe | None:
        """The probe of this uid, if the pod is one."""
        return self._probes.get(uid)

    def __iter__(self) -> Iterator[str]:
        return iter(self._probes)

    def remember(self, uid: str, row: int) -> None:
        """The pod is tried on a row."""
        self._probes[uid] = Probe(row, self._timer(uid))

    def forget(self, uid: str) -> None:
        """The pod is a probe no more."""
        probe = self._probes.pop(uid, None)
        if probe is not None:
            probe.stop()

    def _timer(self, uid: str) -> Timer:
        when = self._clock.monotonic() + self._args.probe_timeout.seconds
        return self._timers.at(when, partial(self._overdue, uid))

    def runs(self, uid: str, probe: Probe, pod: Sighting, now: float) -> None:
        """Nothing speaks against the probe; once it has run for long enough, nothing speaks against the node."""
        report = pod.report
        if not pod.start_time or (report is not None and not report.running):
            if probe.healthy_since is not None:
                probe.healthy_since = None
                probe.stop()
                probe.timer = self._timer(uid)
        elif probe.healthy_since is None:
            probe.healthy_since = now
            probe.probation = self._timers.at(
                now + self._args.probation.seconds, partial(self._probation_over, uid, now)
            )

    def _probation_over(self, uid: str, healthy_since: float) -> None:
        probe = self._probes.get(uid)
        if probe is not None and probe.healthy_since == healthy_since:
            self._close(probe.row, "its probe runs", healthy_since)

    def _overdue(self, uid: str) -> None:
        probe = self._probes.get(uid)
        if probe is not None and probe.healthy_since is None:
            self._end(uid)

    def gone(self, uid: str, now: float) -> None:
        """The pod left its node. One that ran for longer than a crash takes has told enough."""
        probe = self._probes[uid]
        if probe.healthy_since is not None and now - probe.healthy_since > self._args.quick_crash.seconds:
            self._close(probe.row, "its probe ran", probe.healthy_since)
        else:
            self._end(uid)

    # --- what journals record --------------------------------------------------------------------------

    def recorded_state(self) -> tuple[ProbeState, ...]:
        """See `framework.pluginstates.Keeper`."""
        return tuple(
            ProbeState(uid, probe.row, probe.healthy_since, due_of(probe.timer), due_of(probe.probation))
            for uid, probe in self._probes.items()
        )

    def restore_state(self, state: Iterable[ProbeState]) -> None:
        """See `framework.pluginstates.Keeper`."""
        for probe in self._probes.values():
            probe.stop()
        self._probes = {each.uid: self._restored(each) for each in state}

    def _restored(self, state: ProbeState) -> Probe:
        uid, since = state.uid, state.healthy_since
        probe = Probe(state.row, None, since)
        if state.timer is not None:
            probe.timer = self._timers.restore(state.timer, partial(self._overdue, uid))
        if state.probation is not None and since is not None:
            probe.probation = self._timers.restore(state.probation, partial(self._probation_over, uid, since))
        return probe
