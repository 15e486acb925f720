"""One module per plugin, and the registry.

A plugin is a class constructed with its arguments (JSON). It may have:
`pre_filter(pod, world)` -> None, SKIP, a Status, or a set of node names;
`filter(pod, node, world)` -> None or a Status; `pre_score(pod, world, nodes)` -> None or SKIP;
`score(pod, node, world, nodes)` -> int, `nodes` being the feasible ones;
`normalize(pod, scores, world)` -> {node name: 0..100} from {node name: raw};
`post_filter(pod, world, profile, outcome, nominated, now)` -> PostFiltered.
"""

from tests.reference.plugins.defaultpreemption import DefaultPreemption
from tests.reference.plugins.dynamicresources import DynamicResources
from tests.reference.plugins.imagelocality import ImageLocality
from tests.reference.plugins.interpodaffinity import InterPodAffinity
from tests.reference.plugins.loadawarescheduling import LoadAwareScheduling
from tests.reference.plugins.nodeaffinity import NodeAffinity
from tests.reference.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from tests.reference.plugins.nodename import NodeName
from tests.reference.plugins.nodeports import NodePorts
from tests.reference.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from tests.reference.plugins.noderesourcesfit import NodeResourcesFit
from tests.reference.plugins.noderesourcesfitplus import NodeResourcesFitPlus
from tests.reference.plugins.nodeunschedulable import NodeUnschedulable
from tests.reference.plugins.nodevolumelimits import NodeVolumeLimits
from tests.reference.plugins.podtopologyspread import PodTopologySpread
from tests.reference.plugins.scarceresourceavoidance import ScarceResourceAvoidance
from tests.reference.plugins.tainttoleration import TaintToleration
from tests.reference.plugins.volumebinding import VolumeBinding
from tests.reference.plugins.volumerestrictions import VolumeRestrictions
from tests.reference.plugins.volumezone import VolumeZone

REGISTRY = {
    plugin.__name__: plugin
    for plugin in (
        NodeUnschedulable,
        NodeName,
        TaintToleration,
        NodeAffinity,
        NodePorts,
        NodeResourcesFit,
        VolumeRestrictions,
        NodeVolumeLimits,
        VolumeBinding,
        VolumeZone,
        PodTopologySpread,
        InterPodAffinity,
        DynamicResources,
        DefaultPreemption,
        NodeResourcesBalancedAllocation,
        ImageLocality,
        NodeDeclaredFeatures,
        LoadAwareScheduling,
        NodeResourcesFitPlus,
        ScarceResourceAvoidance,
    )
}
