"""Coscheduling: gangs, which are placed as a whole or not at all (coscheduling spec).

* `args` the plugin's arguments; `kinds` the PodGroup, labels and annotations.
* `options` says which gang a pod belongs to, and what a gang asks for; `podfacts` keeps that for pods on nodes.
* `gang` is a gang and the group of gangs that are placed together; `cache` has all of them.
* `plugin` is all of it at the extension points; `round` is one attempt to place a group; `messages` the texts.
* `topology` is where nodes are in the network; `planning` places a group there; `preemption` makes room for a group.
* `controller` keeps the status of PodGroups, `controllers` runs it; `reports` and `metrics` show gangs.
"""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.coscheduling.args import CoschedulingArgs, advise, validate
from koordsched.plugins.coscheduling.controllers import GangControllers
from koordsched.plugins.coscheduling.metrics import observe_gangs
from koordsched.plugins.coscheduling.plugin import Coscheduling
from koordsched.plugins.coscheduling.reports.pages import PAGES
from koordsched.plugins.coscheduling.reports.tables import VIEWS

DECLARATION = Declaration(
    name=Coscheduling.name,
    factory=Coscheduling,
    entry=entry(
        "preEnqueue queueSort preFilter postFilter preScore score reserve permit preBind postBind",
        ArgsKind(CoschedulingArgs, validate=validate, by_constructor=True, advise=advise),
    ),
    controller=GangControllers,
    observe=observe_gangs,
    pages=PAGES,
    views=VIEWS,
)
