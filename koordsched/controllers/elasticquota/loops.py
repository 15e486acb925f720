"""All that runs for the plugin ElasticQuota while this scheduler leads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from koordsched.api.quota import ElasticQuota
from koordsched.cluster.objects import ELASTIC_QUOTAS, Store
from koordsched.controllers.controller import ControllerHandle
from koordsched.controllers.elasticquota.builtins import built_in_objects, ensure_built_in
from koordsched.controllers.elasticquota.complaints import Complaints
from koordsched.controllers.elasticquota.metrics import TimedBooks, observe_quotas
from koordsched.controllers.elasticquota.profiles import ProfileController
from koordsched.controllers.elasticquota.revocation import Revocation
from koordsched.controllers.elasticquota.status import StatusWriter
from koordsched.framework.interface import Plugin
from koordsched.plugins.elasticquota.plugin import ElasticQuota as QuotaPlugin


class Seconds(Protocol):
    """A length of time in the configuration."""

    @property
    def seconds(self) -> float: ...


class Args(Protocol):
    """ElasticQuotaArgs, as far as controllers read them."""

    @property
    def quota_group_namespace(self) -> str: ...
    @property
    def default_quota_group_max(self) -> Mapping[str, str]: ...
    @property
    def system_quota_group_max(self) -> Mapping[str, str]: ...
    @property
    def monitor_all_quotas(self) -> bool: ...
    @property
    def enable_runtime_quota(self) -> bool: ...
    @property
    def delay_evict_time(self) -> Seconds: ...
    @property
    def revoke_pod_interval(self) -> Seconds: ...


class ElasticQuotaController:
    """Built-in quotas, status, complaints, profiles; revocation where the arguments ask for it."""

    def __init__(self, plugin: Plugin, args: Args, handle: ControllerHandle) -> None:
        assert isinstance(plugin, QuotaPlugin), "registered for this plugin"
        books = plugin.books
        self._args = args
        self._writes = handle.writes
        self._store: Store[ElasticQuota] = handle.cluster.objects.of(ELASTIC_QUOTAS)
        handle.cluster.replace_observer(books, TimedBooks(handle.metrics, books, handle.clock.monotonic))
        timed = observe_quotas(handle.metrics, books, by_runtime=args.enable_runtime_quota)
        self._status = StatusWriter(
            books, self._store, handle.writes, handle.clock, timed, by_runtime=args.enable_runtime_quota
        )
        self._complaints = Complaints(books, self._store, handle.reporter)
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

    async def run(self) -> None:
        """Works until cancelled."""
        args = self._args
        objects = built_in_objects(
            args.quota_group_namespace, args.default_quota_group_max, args.system_quota_group_max
        )
        async with asyncio.TaskGroup() as loops:
            loops.create_task(ensure_built_in(objects, self._store, self._writes), name="built-in quotas")
            loops.create_task(self._status.run(), name="quota status")
            loops.create_task(self._complaints.run(), name="quota complaints")
            loops.create_task(self._profiles.run(), name="quota profiles")
            if self._revocation is not None:
                loops.create_task(self._revocation.run(), name="quota revocation")
