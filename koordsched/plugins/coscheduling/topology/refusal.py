"""Why a job has no place in the tree: the text that users read (coscheduling spec 3.5, step 9)."""

from __future__ import annotations

import numpy as np

from koordsched.cluster.changelog import RowArray
from koordsched.framework.diagnosis import refusals
from koordsched.framework.status import Codes, ReasonTable
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.solver import ABSENT, constrained, multiples_of, start_level
from koordsched.plugins.coscheduling.topology.tree import Amounts, Tree

MOST_DOMAINS = 100
"""Of more the text names those with most room, and how many others there are: a message has no room for thousands."""


def message(
    tree: Tree,
    gathering: Gathering,
    desired: int,
    offers: Amounts,
    codes: Codes,
    rows: RowArray,
    reasons: ReasonTable,
) -> str:
    """`offers`, `codes`: by row of the table, how many members fit and why not more. `rows`: the candidates."""
    text = f"no candidate topology nodes can accommodate job, desiredOfferSlot: {desired}, "
    text += f"{_domains(tree, gathering, offers)}, "
    text += f"0/{len(rows)} nodes are available:{refusals(codes[rows], reasons)}"
    if gathering.multiples:
        multiples = sorted(f"{layer}={multiple}" for layer, multiple in gathering.multiples.items())
        text += f"; podCountMultiple constraints: {', '.join(multiples)}"
    return text


def _domains(tree: Tree, gathering: Gathering, offers: Amounts) -> str:
    """What each of the domains offers of which one has to hold the job."""
    start = start_level(tree, gathering)
    if start == ABSENT:
        return ""
    level = tree.levels[start]
    room = constrained(tree, multiples_of(tree, gathering), offers)[start]
    shown = np.argsort(-room, kind="stable")[:MOST_DOMAINS].tolist()
    texts = sorted(f"topology topologyNode {level.layer}/{level.names[at]}: {room[at]}" for at in shown)
    if len(level) > len(shown):
        texts.append(f"and {len(level) - len(shown)} more")
    return ";".join(texts)
