"""What runs while the scheduler leads: quarantines are written on the namespaces of their workloads."""

from __future__ import annotations

import asyncio
import logging

from koordsched.api.core import Namespace
from koordsched.cluster.builtinkinds import NAMESPACES
from koordsched.framework.controller import ControllerHandle
from koordsched.framework.handle import WriteFailed
from koordsched.plugins.workloadquarantine.args import WorkloadQuarantineArgs
from koordsched.plugins.workloadquarantine.plugin import WorkloadQuarantine
from koordsched.plugins.workloadquarantine.record import key_of

_log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between checks."""


class QuarantineController:
    """Writes annotations; has the metrics."""

    def __init__(self, plugin: WorkloadQuarantine, args: WorkloadQuarantineArgs, handle: ControllerHandle) -> None:
        self._quarantines = quarantines = plugin.quarantines
        self._writes = handle.writes
        handle.metrics.read(
            "koordsched_quarantined_workloads",
            "Workloads whose pods are held back.",
            lambda: float(len(quarantines.held)),
            of_leader=True,
        )
        handle.metrics.read(
            "koordsched_quarantines_total",
            "Workloads that were quarantined, and how their quarantine ended.",
            lambda: {to: float(count) for to, count in quarantines.ends.items()},
            ("to",),
        )

    async def run(self) -> None:
        """Checks and writes until cancelled."""
        self._quarantines.unwritten |= dict.fromkeys(self._quarantines.held)
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Writes what is not written yet; what fails is tried again at the next check."""
        quarantines = self._quarantines
        for workload in list(quarantines.unwritten):
            del quarantines.unwritten[workload]
            namespace = quarantines.namespaces.get("", workload.namespace)
            text = quarantines.annotation(workload)
            if namespace is None or text == quarantines.shown(workload):
                continue
            if not await self._written(namespace, key_of(workload), text):
                quarantines.unwritten[workload] = None
        for name, key in list(quarantines.senseless):
            del quarantines.senseless[name, key]
            namespace = quarantines.namespaces.get("", name)
            if namespace is None or not quarantines.says_nothing(name, key):
                continue
            if not await self._written(namespace, key, ""):
                quarantines.senseless[name, key] = None

    async def _written(self, namespace: Namespace, key: str, text: str) -> bool:
        """Whether the annotation could be written; "" takes it away."""
        try:
            await self._writes.merge(NAMESPACES, namespace.metadata, {"metadata": {"annotations": {key: text or None}}})
        except WriteFailed as error:
            _log.warning("namespace %s: annotation %s: not written: %s", namespace.metadata.name, key, error)
            return False
        return True
