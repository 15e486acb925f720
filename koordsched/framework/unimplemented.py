"""Plugins that a configuration may name and that are not implemented: pods that need one of them wait.

Without the plugin they would be placed wrongly: for example, one pod of a gang alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from koordsched.api.meta import ObjectMeta
from koordsched.cluster.pod import Pod
from koordsched.framework.interface import BeforePreFilter, CycleState
from koordsched.framework.status import SUCCESS, Code, Status

_GANG_LABELS = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
_GANG_ANNOTATION = "gang.scheduling.koordinator.sh/name"
Need = Callable[[ObjectMeta], str]
"""What in the pod's metadata needs the plugin; "" if nothing."""


def _gang(meta: ObjectMeta) -> str:
    names = (*map(meta.labels.get, _GANG_LABELS), meta.annotations.get(_GANG_ANNOTATION))
    name = next(filter(None, names), "")
    return f"it belongs to gang {name}" if name else ""


NEEDS: Mapping[str, Need] = {"Coscheduling": _gang}
"""By plugin."""


class Unimplemented(BeforePreFilter):
    """Stands in for plugins of a profile that are not implemented."""

    name = "Unimplemented"

    def __init__(self, plugins: Iterable[str]) -> None:
        self._needs = [(name, NEEDS[name]) for name in plugins if name in NEEDS]

    def before_pre_filter(self, cycle: CycleState, pod: Pod) -> Status:
        """UNRESOLVABLE for pods that need one of the plugins."""
        if pod.wire is None:
            return SUCCESS
        for name, need in self._needs:
            if why := need(pod.wire.metadata):
                reason = f"pod needs plugin {name}, which this scheduler does not implement: {why}"
                return Status(Code.UNRESOLVABLE, (reason,))
        return SUCCESS
