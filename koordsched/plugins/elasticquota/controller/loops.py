"""All that runs for the plugin ElasticQuota while this scheduler leads."""

from __future__ import annotations

import asyncio

from koordsched.cluster.objects import Store
from koordsched.framework.controller import ControllerHandle
from koordsched.plugins.elasticquota.args import ElasticQuotaArgs
from koordsched.plugins.elasticquota.controller.builtins import built_in_objects, ensure_built_in
from koordsched.plugins.elasticquota.controller.metrics import TimedBooks, observe_quotas, observe_revocation
from koordsched.plugins.elasticquota.controller.profiles import ProfileController
from koordsched.plugins.elasticquota.controller.revocation import Revocation
from koordsched.plugins.elasticquota.controller.status import StatusWriter
from koordsched.plugins.elasticquota.controller.validationevents import ValidationEvents
from koordsched.plugins.elasticquota.kinds import ELASTIC_QUOTAS, ElasticQuota
from koordsched.plugins.elasticquota.plugin import ElasticQuota as QuotaPlugin


class ElasticQuotaController:
    """Built-in quotas, status, validation events, profiles; revocation where the arguments ask for it."""

    def __init__(self, plugin: QuotaPlugin, args: ElasticQuotaArgs, handle: ControllerHandle) -> None:
        books = plugin.books
        self._args = args
        self._writes = handle.writes
        self._store: Store[ElasticQuota] = handle.cluster.objects.of(ELASTIC_QUOTAS)
        handle.cluster.replace_observer(books, TimedBooks(handle.metrics, books, handle.clock.monotonic))
        timed = observe_quotas(handle.metrics, books, by_runtime=args.enable_runtime_quota)
        self._status = StatusWriter(
            books, self._store, handle.writes, handle.clock, timed, by_runtime=args.enable_runtime_quota
        )
        self._validation_events = ValidationEvents(books, self._store, handle.reporter)
        self._profiles = ProfileController(handle.cluster, handle.writes, handle.reporter)
        self._revocation: Revocation | None = None
        if args.monitor_all_quotas and args.enable_runtime_quota:
            self._revocation = Revocation(
                books,
                handle.writes,
                handle.reporter,
                handle.clock,
                handle.own_replicas,
                delay=args.delay_evict_time.seconds,
                interval=args.revoke_pod_interval.seconds,
            )
            observe_revocation(handle.metrics, books, self._revocation.revoked)

    async def run(self) -> None:
        """Works until cancelled."""
        args = self._args
        objects = built_in_objects(
            args.quota_group_namespace, args.default_quota_group_max, args.system_quota_group_max
        )
        async with asyncio.TaskGroup() as loops:
            loops.create_task(ensure_built_in(objects, self._store, self._writes), name="built-in quotas")
            loops.create_task(self._status.run(), name="quota status")
            loops.create_task(self._validation_events.run(), name="quota validation")
            loops.create_task(self._profiles.run(), name="quota profiles")
            if self._revocation is not None:
                loops.create_task(self._revocation.run(), name="quota revocation")
