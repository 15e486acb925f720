"""What the network has to offer a job now, for users who ask why it waits (coscheduling spec 3.5, diagnosis)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordsched.cluster.pod import Pod
from koordsched.framework.handle import Handle
from koordsched.plugins.coscheduling.topology.gathering import Gathering
from koordsched.plugins.coscheduling.topology.members import in_order, member_of
from koordsched.plugins.coscheduling.topology.offers import Offers
from koordsched.plugins.coscheduling.topology.picture import TopologyPicture, picture
from koordsched.plugins.coscheduling.topology.selected import selector_of
from koordsched.plugins.coscheduling.topology.service import NetworkTopology
from koordsched.plugins.coscheduling.topology.solver import solve


def explained(
    handle: Handle, topology: NetworkTopology, offers: Offers, gathering: Gathering, pods: Sequence[Pod]
) -> TopologyPicture | None:
    """The tree with what each domain offers the pods, the pending members of a job, and where they would go.

    None if there is no tree, or no such pod. All nodes count as candidates. Changes nothing.
    """
    tree = topology.tree()
    if tree is None or not pods:
        return None
    table = handle.cluster.table
    members = [member_of(pod) for pod in pods]
    existing = topology.existing(selector_of(pods[0].shape))
    rows = np.flatnonzero(table.alive.data[: table.size])
    counted = offers.count([pods[at] for at in in_order(members)], rows)
    return picture(
        tree,
        gathering=gathering,
        desired=len(pods),
        offers=counted.offers,
        existing=existing,
        solution=solve(tree, gathering, len(pods), counted.offers, existing),
        codes=counted.codes,
        reasons=handle.reasons,
    )
