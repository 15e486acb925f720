"""DynamicResources: devices that drivers publish, for pods that claim them (dra spec).

* `plugin` is the plugin. `books` has all that is known of claims and devices: `assumed` claims, allocations `inflight`,
  slices with the taints of `taintrules`; `changes` wakes tasks that wait for claims.
* `claims` finds the claims of a pod; `prefilter`, `filtering` and `deallocation` decide, with the state of
  `cyclestate`.
* `binding` writes before a pod is bound, through `claimwriter`; `conditions` and `readiness` wait for devices.
* `hints` says which changes wake pods.
* `structured` is the allocator, `cel` the expressions that select devices, `extended` serves extended resources.
* `explanation` has the numbers behind verdicts, `claimstates` the claims of a pod in words; `settling` does offline
  what is written otherwise; `metrics` counts devices.
* `reports` has the pages of the HTTP server and its part of the command `koordsched devices`.
"""

from koordsched.config.catalog import IN_TREE
from koordsched.framework.declaration import Declaration
from koordsched.plugins.dynamicresources.claimstates import show_refusal
from koordsched.plugins.dynamicresources.metrics import observe_pools
from koordsched.plugins.dynamicresources.plugin import DynamicResources
from koordsched.plugins.dynamicresources.reports.pages import PAGES
from koordsched.plugins.dynamicresources.reports.tables import VIEW

__all__ = ["DECLARATION", "DynamicResources"]

DECLARATION = Declaration(
    name=DynamicResources.name,
    factory=DynamicResources,
    entry=IN_TREE[DynamicResources.name],
    observe=observe_pools,
    pages=PAGES,
    views=(VIEW,),
    show_refusal=show_refusal,
)
