"""GangScheduling: PodGroups of Kubernetes' own (coscheduling spec, Appendix A).

Active only with the feature gates GenericWorkload and GangScheduling.

* `messages` the texts; the PodGroup itself is `plugins.shared.podgroups`.
* `cache` has the pods of every group; `plugin` is the plugin at the extension points; `round` one attempt at a group.
* `topology` is TopologyPlacementGenerator and PodGroupPodsCount, with the gate TopologyAwareWorkloadScheduling.
* `controller` writes the condition PodGroupScheduled.
"""

from koordsched.config.catalog import entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.gangscheduling.controller import PodGroupConditions
from koordsched.plugins.gangscheduling.plugin import GangScheduling
from koordsched.plugins.gangscheduling.topology import PodGroupPodsCount, TopologyPlacementGenerator

DECLARATION = Declaration(
    name=GangScheduling.name,
    factory=GangScheduling,
    entry=entry("preEnqueue permit"),
    controller=PodGroupConditions,
)

PLACEMENT_GENERATOR = Declaration(
    name=TopologyPlacementGenerator.name,
    factory=TopologyPlacementGenerator,
    entry=entry("placementGenerate"),
)

PODS_COUNT = Declaration(name=PodGroupPodsCount.name, factory=PodGroupPodsCount, entry=entry("placementScore"))
