"""DynamicResources: devices that drivers publish, for pods that claim them (dra spec).

* `plugin` ties the others to the extension points; `cyclestate` is what it keeps of one attempt.
* `books` is what is known of claims and devices: `assumed` claims, allocations `inflight`, slices with `taintrules`.
* `claims` are those of a pod, `prefilter` finds what is wrong with them, `filtering` judges nodes, `explanation` says
  why; `deallocation` frees what is idle.
* `binding` writes with `claimwriter`, and waits for `conditions` of devices (`readiness`, `changes`).
* `leftclaims` frees what an earlier binding has left with a pod that waits.
* `groups` are PodGroups whose pods have claims together, with the gate DRAWorkloadResourceClaims.
* `hints` say what wakes a pod.
* `cel` has the expressions that select devices, `structured` the allocator, `extended` the claims that are made for
  extended resources, `classselectors` which devices a class has, for scoring.
* `claimstates` has the claims of a pod in words; `settling` does offline what is written otherwise.
* `metrics` counts devices; `reports` has the pages of the HTTP server and its part of the command `koordsched devices`.
"""

from koordsched.config.catalog import IN_TREE
from koordsched.framework.declaration import Declaration
from koordsched.plugins.dynamicresources.claimstates import show_refusal
from koordsched.plugins.dynamicresources.leftclaims import LeftClaims
from koordsched.plugins.dynamicresources.metrics import observe_pools
from koordsched.plugins.dynamicresources.plugin import DynamicResources
from koordsched.plugins.dynamicresources.reports.pages import PAGES
from koordsched.plugins.dynamicresources.reports.tables import VIEW

__all__ = ["DECLARATION", "DynamicResources"]

DECLARATION = Declaration(
    name=DynamicResources.name,
    factory=DynamicResources,
    entry=IN_TREE[DynamicResources.name],
    controller=LeftClaims,
    observe=observe_pools,
    pages=PAGES,
    views=(VIEW,),
    show_refusal=show_refusal,
)
