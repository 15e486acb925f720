"""The points of the scheduling framework at which plugins run, by their names in the configuration file."""

from enum import StrEnum


class ExtensionPoint(StrEnum):
    """An extension point. The order is the one in which upstream fills them, hence in which errors are found.

    Source: `pkg/scheduler/framework/runtime/framework.go`, getExtensionPoints.
    """

    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    RESERVE = "reserve"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
    PERMIT = "permit"
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"

    @property
    def attribute(self) -> str:
        """Its name in the structs of this package: `pre_filter`."""
        return self.name.lower()

    @property
    def interface(self) -> str:
        """The name of upstream's interface, used in messages: `PreFilterPlugin`."""
        return self.value[0].upper() + self.value[1:] + "Plugin"
