"""The search for devices: depth first over claims, requests and devices; the first solution wins (dra spec 3.6).

It finds what upstream's search finds, unless the demand wants the best fit (`bestfit`). Once it has to go back for the
first time it is careful: devices that are alike in everything that the demand looks at are tried once, a choice after
which the rest cannot be had is left at once (`bounds`), and what has failed is not tried again. No solution is lost by
that, and no error, as none of it is done where what is skipped could have ended in an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from koordsched.plugins.dynamicresources.structured.bestfit import ArrangedPlan, best_fit
from koordsched.plugins.dynamicresources.structured.bounds import Bounds
from koordsched.plugins.dynamicresources.structured.claiming import Claiming, Refused
from koordsched.plugins.dynamicresources.structured.failures import SearchExpired
from koordsched.plugins.dynamicresources.structured.ground import Ground
from koordsched.plugins.dynamicresources.structured.plans import Plan, Planner, Suits
from koordsched.plugins.dynamicresources.structured.requests import MOST_DEVICES, Alternative, Prepared
from koordsched.plugins.dynamicresources.structured.selectors import Expired

BEST_SCORE = 8
"""For the first of several sub-requests (dra spec 3.7)."""


class SelectorFailed(Exception):
    """A selector could not be evaluated on a device that a request might get."""

    def __init__(self, alternative: Alternative, text: str) -> None:
        self.alternative = alternative
        super().__init__(text)


class ConstraintViolated(Exception):
    """Not all devices that a request asks for go together."""

    def __init__(self, alternative: Alternative, position: int) -> None:
        self.alternative = alternative
        self.position = position
        super().__init__()


class Solution(NamedTuple):
    """The devices in the order of requests, as (number of the alternative, position); and the raw score."""

    picks: tuple[tuple[int, int], ...]
    score: int


class _Frame:
    """A step of the search. With `alternative` None, the choice of the next alternative of a request; else of a device
    for it. `next`: where the choice goes on; `mark`: how many devices were taken before.
    """

    __slots__ = ("alternative", "dead", "exceeded", "left", "mark", "next", "position", "request", "state")

    def __init__(self, request: int, mark: int, alternative: Alternative | None, left: int, start: int) -> None:
        self.request = request
        self.mark = mark
        self.alternative = alternative
        self.left = left
        self.next = start
        self.position = -1
        self.dead = 0
        self.exceeded = 0
        self.state: object = None


class Search:
    """One search: a demand, a plan and what is in use. Raises SelectorFailed, ConstraintViolated and SearchExpired."""

    def __init__(self, prepared: Prepared, planner: Planner, plan: Plan, ground: Ground, expired: Expired) -> None:
        self._order: Sequence[int] | None = None
        """Where the devices of the plan are in the caller's, if they are arranged anew."""
        if prepared.best_fit:
            order = best_fit(plan, ground)
            plan, ground, self._order = ArrangedPlan(plan, order), ground.arranged(order), order
        self._requests = prepared.requests
        self._prepared = prepared
        self._planner = planner
        self._plan = plan
        self._ground = ground
        self._expired = expired
        self._claiming = Claiming(prepared, plan, ground)
        self._bounds: Bounds | None = None
        self._failed: set[object] = set()
        self._stack: list[_Frame] = []
        self._all: dict[int, int] = {}

    def all_devices(self, alternative: Alternative) -> int:
        """The devices that a request for all of them gets: those that are selected and large enough.

        None where there may be more, in a pool of the same driver that is not in order: of lenient demands, as others
        fail there.
        """
        found = self._all.get(alternative.number)
        if found is None:
            self._planner.look_at_all(self._plan, alternative, self._expired)
            found, partial = 0, False
            for position, kind in enumerate(self._plan.kinds):
                suits = kind.suits[alternative.number]
                if suits is Suits.FAILED:
                    raise SelectorFailed(alternative, kind.failures[alternative.number])
                if suits is Suits.YES or suits in (Suits.NO_COUNTERS, Suits.TAINTED):
                    found |= 1 << position
                    partial |= kind.equipment.model.driver in self._plan.partial
            found = 0 if partial else found
            self._all[alternative.number] = found
        return found

    def run(self) -> Solution | None:
        """The first solution."""
        if not self._requests:
            return Solution((), 0)
        self._stack = [self._at_request(0)]
        while self._stack:
            if self._expired():
                raise SearchExpired
            frame = self._stack[-1]
            step = self._choose_alternative(frame) if frame.alternative is None else self._choose_device(frame)
            if step is not None:
                if step.request == len(self._requests):
                    return self._solution()
                self._stack.append(step)
            else:
                self._fail()
        return None

    def _solution(self) -> Solution:
        score = 0
        for frame in self._stack:
            if frame.alternative is None:
                chosen = self._requests[frame.request].alternatives[frame.next - 1]
                score += BEST_SCORE - chosen.sub if chosen.sub >= 0 else 0
        picks = tuple((pick.alternative.number, self._place(pick.position)) for pick in self._claiming.picks)
        return Solution(picks, score)

    def _place(self, position: int) -> int:
        """The position in the caller's plan."""
        return position if self._order is None else self._order[position]

    # --- steps -------------------------------------------------------------------------------------------

    def _at_request(self, request: int) -> _Frame:
        return _Frame(request, len(self._claiming.picks), None, 0, 0)

    def _choose_alternative(self, frame: _Frame) -> _Frame | None:
        """The step that follows the choice of the next alternative; None if there is none left."""
        claiming = self._claiming
        claiming.undo(frame.mark)
        request = self._requests[frame.request]
        if frame.next == 0 and self._bounds is not None and self._bounds.prunes:
            frame.state = self._state(frame.request)
            if frame.state in self._failed:
                return None
        while frame.next < len(request.alternatives):
            alternative = request.alternatives[frame.next]
            frame.next += 1
            count = alternative.wanted
            if alternative.everything:
                count = self.all_devices(alternative).bit_count()
                if not count:
                    continue
            if claiming.numbers[request.claim] + count > MOST_DEVICES:
                frame.exceeded += 1
                continue
            if not alternative.everything:
                if self._hopeless(frame.request, alternative, count, 0):
                    continue
                return _Frame(frame.request, frame.mark, alternative, count, 0)
            if self._take_all(alternative):
                if self._hopeless(frame.request + 1, None, 0, 0):
                    claiming.undo(frame.mark)
                    continue
                return self._at_request(frame.request + 1)
            claiming.undo(frame.mark)
        return None

    def _take_all(self, alternative: Alternative) -> bool:
        remaining = self.all_devices(alternative)
        while remaining:
            low = remaining & -remaining
            remaining ^= low
            position = low.bit_length() - 1
            if not self._claiming.free(alternative) & low:
                return False
            if self._plan.kinds[position].suits[alternative.number] is not Suits.YES:
                return False
            refused = self._claiming.take(alternative, position)
            if refused is Refused.CONSTRAINT and not self._prepared.lenient:
                raise ConstraintViolated(alternative, self._place(position))
            if refused is not Refused.NO:
                return False
        return True

    def _choose_device(self, frame: _Frame) -> _Frame | None:
        """The step that follows the choice of the next device; None if there is none left."""
        claiming, plan, alternative = self._claiming, self._plan, frame.alternative
        assert alternative is not None
        number = alternative.number
        claiming.undo(frame.mark)
        if frame.position >= 0 and self._bounds is not None:
            frame.dead |= self._bounds.like(frame.position)
        unsuited = plan.known[number] & ~plan.suited[number] & ~plan.failed[number]
        open_ = claiming.free(alternative) & ~unsuited & ~frame.dead & (-1 << frame.next)
        while open_:
            low = open_ & -open_
            open_ ^= low
            position = low.bit_length() - 1
            suits = self._planner.look(plan, alternative, position, self._expired)
            if suits is Suits.FAILED:
                raise SelectorFailed(alternative, plan.kinds[position].failures[number])
            if suits is not Suits.YES or claiming.take(alternative, position) is not Refused.NO:
                continue
            frame.next = position + 1
            frame.position = position
            left = frame.left - 1
            if self._bounds is not None and self._hopeless(
                frame.request if left else frame.request + 1, alternative if left else None, left, position + 1
            ):
                claiming.undo(frame.mark)
                frame.dead |= self._bounds.like(position)
                open_ &= ~frame.dead
                continue
            if left:
                return _Frame(frame.request, len(claiming.picks), alternative, left, position + 1)
            return self._at_request(frame.request + 1)
        return None

    def _hopeless(self, request: int, alternative: Alternative | None, left: int, start: int) -> bool:
        """Whether it is certain that there is no solution from here on, nor an error."""
        return self._bounds is not None and self._bounds.hopeless(request, alternative, left, start)

    # --- failure -----------------------------------------------------------------------------------------

    def _fail(self) -> None:
        """The last step has no choice left."""
        frame = self._stack.pop()
        self._claiming.undo(frame.mark)
        if frame.alternative is None:
            if frame.state is not None:
                self._failed.add(frame.state)
            if frame.exceeded and frame.exceeded == len(self._requests[frame.request].alternatives):
                self._leave_sizes()
        if self._bounds is None and self._stack and self._claiming.picks:
            self._bounds = Bounds(self._prepared, self._planner, self._claiming, self._expired)

    def _leave_sizes(self) -> None:
        """No alternative of a request fits the claim: other devices for the requests before it do not help."""
        while self._stack:
            frame = self._stack[-1]
            if frame.alternative is None and len(self._requests[frame.request].alternatives) > 1:
                return
            self._stack.pop()
            self._claiming.undo(frame.mark)

    def _state(self, request: int) -> object:
        assert self._bounds is not None
        return (request, self._bounds.state(request))
