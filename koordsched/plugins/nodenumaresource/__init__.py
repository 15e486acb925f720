"""NodeNUMAResource: exclusive CPUs for pods, and resources aligned to NUMA nodes (nodenumaresource spec).

* `args` the plugin's arguments; `kinds` the custom resource NodeResourceTopology, labels and annotations.
* `topologyoptions` reads a report, `topology` knows which CPUs share cores (sets of CPUs: `plugins.shared.cpuset`).
* `podrequest` is what a pod asks for, `demand` what that means on nodes with policies of their own.
* `nodes` keeps the state of nodes in `columns`, where what pods were given (`allocation`) is counted, too.
* `supply` is what NUMA nodes have left and how a request is split among them, `hints` makes topology hints of it,
  `alignment` asks the topology manager; `scoring` rates NUMA nodes, `nodescores` whole nodes.
* `plugin` filters and scores many nodes at once; for the one that is chosen, `allocator` works out what the pod gets,
  with `cpupick` CPU by CPU.
* `explanation` has the numbers behind verdicts.
* `reportstates` says what is known of nodes; `metrics` counts them, and CPUs.
* `reports` has the pages of the HTTP server and the command `koordsched numa`.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.nodenumaresource.args import NodeNUMAResourceArgs, advise, validate, with_defaults
from koordsched.plugins.nodenumaresource.metrics import observe_numa
from koordsched.plugins.nodenumaresource.plugin import NodeNUMAResource
from koordsched.plugins.nodenumaresource.reports.pages import PAGES
from koordsched.plugins.nodenumaresource.reports.tables import VIEW

DECLARATION = Declaration(
    name=NodeNUMAResource.name,
    factory=NodeNUMAResource,
    entry=entry(
        "preFilter filter preScore score reserve preBind",
        ArgsKind(NodeNUMAResourceArgs, with_defaults, validate, by_constructor=True, advise=advise),
    ),
    observe=observe_numa,
    pages=PAGES,
    views=(VIEW,),
)
