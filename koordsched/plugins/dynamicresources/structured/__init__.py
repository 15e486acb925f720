"""The structured allocator: which devices the claims of a pod get on a node (dra spec 3.3, 3.6 and the score of 3.7).

It is pure: it reads wire types, keeps columns, and knows neither plugins nor cycles. In use:

    in_use = DevicesInUse(features)                    # devices of allocated claims and of allocations in flight
    in_use.put(holder, allocation)                     # holder: any hashable, as ("claim", uid) or ("in flight", uid)
    in_use.drop(holder)                                # both union: a device held twice is free when both are dropped

    index = SliceIndex(features, in_use)               # all ResourceSlices and nodes, updated object by object
    index.put_slice(slice)                             # added or changed; with the taints of rules applied already
    index.remove_slice(name)
    index.put_node(row, node)                          # added, or its labels changed
    index.remove_node(row)

    allocator = Allocator(index, in_use, expressions, features, share_id)
    demand = allocator.demand(claims, class_of)        # the unallocated claims of a pod in pod order; never raises
    allocator.verdicts(demand, rows, deadline)         # Verdicts: outcomes int8[rows] (Outcome), scores int64[rows]
    allocator.allocate(demand, row, deadline)          # Allocation | None: one AllocationResult per claim, score
    allocator.explain(demand, row)                     # why not: per claim and request, devices counted by reason

* `Features`: the gates that matter, as upstream's defaults have them.
* `Demand`: prepared requests. Claims with equal specs, of equal classes, share what was prepared and all answers, so
  the thousandth replica costs a look-up. It holds the classes it was made with: make it anew in each cycle.
* `Outcome`: FITS, NONE (`cannot allocate all claims`), INVALID (`invalid resource pools were encountered`), ERROR (the
  attempt fails; `allocate` on that row raises the text) and EXPIRED (the search took too long; not remembered).
* `allocate` raises AllocationError (its text is upstream's), InvalidPools and SearchExpired.
* `Deadline(clock, seconds, total)`: the time that each search may take, and all searches of one call; 0 is no limit.
* With the gate for node-allocatable resources, `Verdicts.taken` says what the devices would take of each node
  (`footprint`), a position in `Verdicts.footprints`: one footprint per claim.
* `score_of(claim)`: the raw score of the allocation that a claim has.
* `expressions` evaluates selectors: `CelExpressions(features)`; `share_id` makes the id of a share.
"""

from koordsched.plugins.dynamicresources.structured.allocatedscore import score_of
from koordsched.plugins.dynamicresources.structured.allocator import Allocation, Allocator
from koordsched.plugins.dynamicresources.structured.celexpressions import CelExpressions
from koordsched.plugins.dynamicresources.structured.devices import is_converted
from koordsched.plugins.dynamicresources.structured.failures import (
    AllocationError,
    Deadline,
    InvalidPools,
    SearchExpired,
)
from koordsched.plugins.dynamicresources.structured.features import Features
from koordsched.plugins.dynamicresources.structured.inuse import DevicesInUse
from koordsched.plugins.dynamicresources.structured.requests import Demand
from koordsched.plugins.dynamicresources.structured.selectors import read_by
from koordsched.plugins.dynamicresources.structured.sliceindex import SliceIndex
from koordsched.plugins.dynamicresources.structured.verdicts import Outcome, Verdicts

__all__ = [
    "Allocation",
    "AllocationError",
    "Allocator",
    "CelExpressions",
    "Deadline",
    "Demand",
    "DevicesInUse",
    "Features",
    "InvalidPools",
    "Outcome",
    "SearchExpired",
    "SliceIndex",
    "Verdicts",
    "is_converted",
    "read_by",
    "score_of",
]
