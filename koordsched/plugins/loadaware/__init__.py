"""LoadAwareScheduling: filters and scores nodes by what they really use (loadaware spec).

* `args` the plugin's arguments; `kinds` the custom resource NodeMetric, labels and annotations.
* `measurements` reads a report, `thresholds` what a node may use at most, `estimation` what a pod is expected to use,
  `placementtimes` when it was placed; `contribution` is what it adds to a measurement that cannot contain it.
* `nodeload` is what is known of a node, `reckoning` makes of it what counts; `loads` keeps this in step with the
  cluster, one per cluster state and set of arguments, in `columns`.
* `plugin` filters and scores by the columns.
* `explanation` has the numbers behind verdicts and scores.
* `reportstates` counts nodes by the state of their reports, for `metrics`.
* `reports` has the pages of the HTTP server and the command `koordsched load nodes`.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.loadaware.args import LoadAwareSchedulingArgs, advise, validate, with_defaults
from koordsched.plugins.loadaware.metrics import observe_reports
from koordsched.plugins.loadaware.plugin import LoadAwareScheduling
from koordsched.plugins.loadaware.reports.pages import PAGES
from koordsched.plugins.loadaware.reports.tables import VIEW

DECLARATION = Declaration(
    name=LoadAwareScheduling.name,
    factory=LoadAwareScheduling,
    entry=entry(
        "preFilter filter score reserve",
        ArgsKind(LoadAwareSchedulingArgs, with_defaults, validate, by_constructor=True, advise=advise),
    ),
    observe=observe_reports,
    pages=PAGES,
    views=(VIEW,),
)
