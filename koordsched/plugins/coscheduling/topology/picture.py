"""The tree with what it offers a job, for users: as a struct (JSON) and as lines of text (coscheduling spec 3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from koordsched.framework.status import PASS, Codes, ReasonTable
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.solver import (
    ABSENT,
    Solution,
    constrained,
    multiples_of,
    start_level,
)
from koordsched.plugins.coscheduling.topology.tree import Amounts, Tree

MOST_CHILDREN = 50
"""Of more children of a domain the picture has those that come first, and says how many there are beside them."""


class DomainPicture(msgspec.Struct, rename="camel", omit_defaults=True):
    """A domain, or a node.

    `offers`: how many members it has room for, by the multiples; None if that was not asked. `existing`: pods with the
    selector of the job. `gets`: members that are planned there. `refusals`: of a node, why not more fit. `hidden`:
    children that are left out.
    """

    layer: str
    name: str
    nodes: int
    offers: int | None = None
    existing: int = 0
    gets: int = 0
    refusals: list[str] = []
    children: list[DomainPicture] = []
    hidden: int = 0


class TopologyPicture(msgspec.Struct, rename="camel", omit_defaults=True):
    """The tree. `layers`: from the root to the nodes. `must_gather`: the layer of which one domain has to hold the job,
    "" if there is none. `desired`: how many members there are to place. `outside`: nodes that are not in the tree.
    """

    layers: list[str]
    root: DomainPicture
    must_gather: str = ""
    desired: int = 0
    multiples: dict[str, int] = {}
    outside: int = 0


def picture(
    tree: Tree,
    *,
    gathering: Gathering | None = None,
    desired: int = 0,
    offers: Amounts | None = None,
    existing: Amounts | None = None,
    solution: Solution | None = None,
    codes: Codes | None = None,
    reasons: ReasonTable | None = None,
    with_nodes: bool = True,
) -> TopologyPicture:
    """All arrays are by row of the table; what is not given is not in the picture. `with_nodes`: down to the nodes."""
    gathering = gathering or Gathering()
    multiples = multiples_of(tree, gathering)
    room = constrained(tree, multiples, offers) if offers is not None else None
    near = tree.sums(existing[tree.rows]) if existing is not None else None
    planned = None
    if solution is not None:
        size = int(max(tree.rows.max(initial=0), solution.rows.max(initial=0))) + 1
        planned = tree.sums(np.bincount(solution.rows, minlength=size)[tree.rows].astype(np.int64))
    numbers = [np.bincount(level.of_leaf, minlength=len(level)) for level in tree.levels]
    last = len(tree.levels) - 1

    def domain(level: int, position: int) -> DomainPicture:
        found = DomainPicture(
            tree.levels[level].layer,
            tree.levels[level].names[position],
            int(numbers[level][position]),
            None if room is None else int(room[level][position]),
            0 if near is None else int(near[level][position]),
            0 if planned is None else int(planned[level][position]),
        )
        if level == last:
            if codes is not None and reasons is not None and (code := int(codes[tree.rows[position]])) != PASS:
                found.refusals = list(reasons[code].texts)
        elif with_nodes or level + 1 < last:
            parents = tree.levels[level + 1].parents
            first, end = np.searchsorted(parents, (position, position + 1)).tolist()
            shown = min(end, first + MOST_CHILDREN)
            found.children = [domain(level + 1, child) for child in range(first, shown)]
            found.hidden = end - shown
        return found

    start = start_level(tree, gathering) if gathering.must else 0
    return TopologyPicture(
        list(tree.layers),
        domain(0, 0),
        ", ".join(gathering.must) if start == ABSENT else (tree.layers[start] if start else ""),
        desired,
        dict(sorted(gathering.multiples.items())),
        len(tree.outside),
    )


def lines(shown: TopologyPicture) -> list[str]:
    """The picture as text: a line per domain, indented by layer."""
    heads = []
    if shown.desired:
        heads.append(f"{shown.desired} member{'s' if shown.desired != 1 else ''}")
    if shown.must_gather:
        heads.append(f"in one domain of {shown.must_gather}")
    heads.extend(f"a multiple of {multiple} per {layer}" for layer, multiple in shown.multiples.items())
    found = [", ".join(heads)] if heads else []
    found.extend(_lines(shown.root, 0))
    if shown.outside:
        many = "nodes lack labels and are" if shown.outside > 1 else "node lacks labels and is"
        found.append(f"{shown.outside} {many} not in the tree")
    return found


def _lines(domain: DomainPicture, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield f"{indent}{domain.layer} {domain.name}".rstrip() + "".join(f", {text}" for text in _facts(domain))
    for child in domain.children:
        yield from _lines(child, depth + 1)
    if domain.hidden:
        yield f"{indent}  and {domain.hidden} more"


def _facts(domain: DomainPicture) -> Iterable[str]:
    if domain.layer != "NodeTopologyLayer":
        yield f"{domain.nodes} node{'' if domain.nodes == 1 else 's'}"
    if domain.offers is not None:
        yield f"room for {domain.offers}"
    if domain.existing:
        yield f"{domain.existing} with the selector"
    if domain.gets:
        yield f"gets {domain.gets}"
    yield from domain.refusals
