"""NodeCircuitBreaker: keeps pods away from machines on which pods of several workloads fail to start.

A broken machine looks empty and attracts every retry. `DECLARATION`, at the end, is what the rest of the program reads.

* `args` the plugin's arguments; `record` the annotation of nodes that the state is kept in.
* `signs` reads failures from a pod's status that may be the node's; `evidence` counts them, by node and workload.
* `probes` are pods that are tried; `zones` says how many nodes of a zone may be restricted.
* `breakers` decides; `plugin` is the plugin; `controller` writes the annotations while the scheduler leads.
* `reports` has the pages of the HTTP server and the command `koordsched breaker nodes`.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.nodecircuitbreaker.args import NodeCircuitBreakerArgs, validate
from koordsched.plugins.nodecircuitbreaker.controller import CircuitBreakerController
from koordsched.plugins.nodecircuitbreaker.plugin import NodeCircuitBreaker
from koordsched.plugins.nodecircuitbreaker.reports import PAGES, VIEW

DECLARATION = Declaration(
    name=NodeCircuitBreaker.name,
    factory=NodeCircuitBreaker,
    entry=entry("filter reserve", ArgsKind(NodeCircuitBreakerArgs, validate=validate)),
    controller=CircuitBreakerController,
    pages=PAGES,
    views=(VIEW,),
)
