"""SchedulingHint: an annotation that says where to schedule a pod (loadaware spec D)."""

from koordsched.config.catalog import ArgsKind, entry
from koordsched.framework.declaration import Declaration
from koordsched.plugins.schedulinghint.args import SchedulingHintArgs, validate
from koordsched.plugins.schedulinghint.plugin import SchedulingHint

DECLARATION = Declaration(
    name=SchedulingHint.name,
    factory=SchedulingHint,
    entry=entry("preFilter", ArgsKind(SchedulingHintArgs, validate=validate, by_constructor=True)),
)
