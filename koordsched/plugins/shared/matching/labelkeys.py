"""Keys under which groups wait for labels: what they need of a label selector, and what an object offers.

See `queue.groupindex`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

from koordsched.api.selectors import Requirement
from koordsched.plugins.shared.podcounts.labelselectors import is_negative, spots_of


def needed(requirements: Iterable[Requirement]) -> list[Collection[Hashable]]:
    """The conditions that requirements are, those apart that a missing label satisfies."""
    return [
        spots_of(requirement) if requirement[1] == "In" else requirement[:1]
        for requirement in requirements
        if not is_negative(requirement)
    ]


def offered(labels: Mapping[str, str]) -> Iterator[Hashable]:
    """Each label, and its key alone."""
    yield from labels.items()
    yield from labels
