"""WorkloadQuarantine: holds back a workload whose pods bring down the nodes they are placed on.

`DECLARATION`, at the end, is what the rest of the program reads.

* `args` the plugin's arguments; `record` the annotation of namespaces that a quarantine is kept in.
* `falls` knows which nodes went down and which workloads had been placed there; `placements` counts placements;
  `chance` is the test.
* `quarantines` decides; `plugin` is the plugin; `controller` writes the annotations while the scheduler leads.
* `reports` has the pages of the HTTP server, the command `koordsched quarantine workloads`, and the table of a refusal.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs, validate
from koordsched.plugins.workloadquarantine.controller import QuarantineController
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from koordsched.plugins.workloadquarantine.reports import PAGES, VIEW, refusal_table

DECLARATION = Declaration(
    name=WorkloadQuarantine.name,
    factory=WorkloadQuarantine,
    entry=entry("preFilter", ArgsKind(WorkloadQuarantineArgs, validate=validate)),
    controller=QuarantineController,
    pages=PAGES,
    views=(VIEW,),
    show_refusal=refusal_table,
)
