"""ScarceResourceAvoidance: leaves nodes with scarce resources to the pods that need them (loadaware spec B)."""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.scarceresourceavoidance.args import ScarceResourceAvoidanceArgs
from koordsched.plugins.scarceresourceavoidance.plugin import ScarceResourceAvoidance

DECLARATION = Declaration(
    name=ScarceResourceAvoidance.name,
    factory=ScarceResourceAvoidance,
    entry=entry(
        "preScore score",
        ArgsKind(ScarceResourceAvoidanceArgs),
        needs_pre_score=ScarceResourceAvoidance.needs_pre_score,
    ),
)
