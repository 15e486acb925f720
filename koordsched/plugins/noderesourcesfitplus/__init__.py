"""NodeResourcesFitPlus: packs pods by some resources and spreads them by others (loadaware spec A)."""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.noderesourcesfitplus.args import NodeResourcesFitPlusArgs, advise, validate
from koordsched.plugins.noderesourcesfitplus.plugin import NodeResourcesFitPlus

DECLARATION = Declaration(
    name=NodeResourcesFitPlus.name,
    factory=NodeResourcesFitPlus,
    entry=entry(
        "preScore score",
        ArgsKind(NodeResourcesFitPlusArgs, validate=validate, by_constructor=True, advise=advise),
        needs_pre_score=NodeResourcesFitPlus.needs_pre_score,
    ),
)
