"""GangScheduling: PodGroups of Kubernetes' own (coscheduling spec, Appendix A).

Active only with the feature gates GenericWorkload and GangScheduling.

* `kinds` the PodGroup; `messages` the texts.
* `cache` has the pods of every group; `plugin` is the plugin at the extension points; `round` one attempt at a group.
* `controller` writes the condition PodGroupScheduled.
"""

from koordsched.config.catalog import entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.gangscheduling.controller import PodGroupConditions
from koordsched.plugins.gangscheduling.plugin import GangScheduling

DECLARATION = Declaration(
    name=GangScheduling.name,
    factory=GangScheduling,
    entry=entry("preEnqueue permit"),
    controller=PodGroupConditions,
)
