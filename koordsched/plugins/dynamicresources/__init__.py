"""DynamicResources: devices that drivers publish, for pods that claim them (dra spec).

* `plugin` ties the others to the extension points; `cyclestate` is what it keeps of one attempt.
* `books` is what is known of claims and devices: `assumed` claims, allocations `inflight`, slices with `taintrules`.
* `claims` are those of a pod, `prefilter` finds what is wrong with them, `filtering` judges nodes, `explanation` says
  why; `deallocation` frees what is idle.
* `binding` writes with `claimwriter`, and waits for `conditions` of devices (`readiness`, `changes`).
* `groups` are PodGroups whose pods have claims together, with the gate DRAWorkloadResourceClaims.
* `hints` say what wakes a pod.
* `cel` has the expressions that select devices, `structured` the allocator, `extended` the claims that are made for
  extended resources, `classselectors` which devices a class has, for scoring.
"""

from koordsched.plugins.dynamicresources.plugin import DynamicResources

__all__ = ["DynamicResources"]
