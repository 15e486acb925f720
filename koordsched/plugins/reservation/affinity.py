"""What a pod says about the Reservations that it may use: annotations `reservation-affinity` and
`exact-match-reservation` (reservation spec 2.2, 3.4).

Source: koordinator `apis/extension/reservation.go`, `pkg/util/reservation/reservation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from koordsched.api import gojson
from koordsched.api.core import NodeSelectorRequirement, NodeSelectorTerm, Quantity, Taint, Toleration
from koordsched.api.decoding import DecodeError, Decoder
from koordsched.api.meta import Wire
from koordsched.api.quantity import parse
from koordsched.api.selectors import ValueTest, check_labels, field_test, value_test
from koordsched.plugins.shared.matching.tolerations import NO_SCHEDULE, Tolerations

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)

T = TypeVar("T")


class _Selector(Wire, frozen=True):
    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class _Affinity(Wire, frozen=True):
    name: str = ""
    required: _Selector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class _ExactMatch(Wire, frozen=True):
    resource_names: tuple[str, ...] = ()


_affinities = Decoder(_Affinity)
_exact_matches = Decoder(_ExactMatch)


def _decoded(decode: Decoder[T], text: str, go_type: str) -> T | None:
    """None for an empty annotation, and for null. Raises ValueError with the message that upstream gives."""
    if not text or text.strip() == "null":
        return None
    try:
        return decode(text.encode())
    except (DecodeError, UnicodeEncodeError) as error:
        raise ValueError(gojson.message(text, error, f"extension.{go_type}")) from None


class _Term:
    """Requirements, ANDed."""

    __slots__ = ("_labels", "_names")

    def __init__(self, term: NodeSelectorTerm) -> None:
        """Raises SelectorError."""
        self._labels = [_test(each) for each in term.match_expressions]
        self._names = [field_test(each) for each in term.match_fields]

    def matches(self, name: str, label: Callable[[str], str | None]) -> bool:
        """The verdict on a Reservation of a name; `label`: its label of a key, None if it has none."""
        return all(test(name) for test in self._names) and all(test(label(key)) for key, test in self._labels)


def _test(requirement: NodeSelectorRequirement) -> tuple[str, ValueTest]:
    check_labels(requirement.key, requirement.values)
    return requirement.key, value_test(requirement.operator, requirement.values)


class ReservationAffinity:
    """A pod with this annotation has to use a Reservation that it owns and that is selected here.

    `name`: the one it has to use, whatever else is said, or "". `selector`: labels that it has to have.
    `tolerates_unschedulable`: it may be one that takes no new owners.
    """

    __slots__ = ("_terms", "_tolerations", "name", "selector", "tolerates_unschedulable")

    def __init__(self, text: str) -> None:
        """`text`: the annotation; empty as `{}`. Raises ValueError."""
        given = _decoded(_affinities, text, "ReservationAffinity") or _Affinity()
        self.name = given.name
        self.selector = given.reservation_selector
        self._tolerations = Tolerations(given.tolerations)
        self.tolerates_unschedulable = self._tolerations.tolerate(_UNSCHEDULABLE)
        self._terms: list[_Term] | None = None
        if given.required is not None:
            terms = given.required.reservation_selector_terms
            self._terms = [_Term(term) for term in terms if term.match_expressions or term.match_fields]

    def untolerated(self, taints: Sequence[Taint]) -> str | None:
        """The first taint of a Reservation that keeps the pod away, as `{key: value}`."""
        taint = next(self._tolerations.turned_away_by(taints), None)
        return f"{{{taint.key}: {taint.value}}}" if taint is not None else None

    def selects(
        self,
        name: str,
        node_labels: Mapping[str, str],
        reservation_labels: Mapping[str, str],
        omit_node_labels: bool,
    ) -> bool:
        """Whether selector and terms select the Reservation of this name, by its own labels before those of its node.

        `omit_node_labels`: gate OmitNodeLabelsForReservation, its own labels alone. `self.name` is not looked at.
        """
        if not self.selector and self._terms is None:
            return True

        def label(key: str) -> str | None:
            value = reservation_labels.get(key)
            return value if value is not None or omit_node_labels else node_labels.get(key)

        if any(label(key) != value for key, value in self.selector.items()):
            return False
        return self._terms is None or any(term.matches(name, label) for term in self._terms)


class ExactMatch:
    """Resources of which a pod's request has to be the Reservation's allocatable."""

    __slots__ = ("_names",)

    def __init__(self, text: str) -> None:
        """`text`: the annotation; an empty one asks for nothing. Raises ValueError."""
        given = _decoded(_exact_matches, text, "ExactMatchReservationSpec")
        self._names = given.resource_names if given is not None else ()

    def matches(self, requests: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]) -> bool:
        """The verdict; both in the same unit. As upstream, no name is looked at behind one that is in neither.

        Raises QuantityError.
        """
        for name in self._names:
            requested, allocated = requests.get(name), allocatable.get(name)
            if requested is None or allocated is None:
                return requested is None and allocated is None
            if requested != allocated and parse(requested) != parse(allocated):
                return False
        return True
