"""Keeps the templates in step with their ConfigMap (deviceshare spec 2.4)."""

from __future__ import annotations

import logging

from koordsched.api.core import ConfigMap
from koordsched.cluster.builtinkinds import CONFIG_MAPS
from koordsched.cluster.events import ActionType, ClusterEvent, EventResource
from koordsched.cluster.state import ClusterState
from koordsched.framework.handle import WARNING, Handle
from koordsched.plugins.deviceshare.args import TemplatesConfig
from koordsched.plugins.deviceshare.templates import DATA_KEY, Templates, TemplatesError, parse
from koordsched.plugins.shared.devices.columns import DeviceColumns
from koordsched.plugins.shared.devices.nodes import DEVICES_CHANGED

TEMPLATES_CHANGED = ClusterEvent(EventResource("configmaps"), ActionType.UPDATE, "GPUSharedResourceTemplatesChanged")

_log = logging.getLogger(__name__)


class TemplateSource:
    """Reads the ConfigMap of one profile. A text that cannot be read leaves the templates as they were."""

    def __init__(
        self,
        cluster: ClusterState,
        handle: Handle,
        config: TemplatesConfig,
        templates: Templates,
        columns: DeviceColumns,
    ) -> None:
        self._cluster = cluster
        self._handle = handle
        self._config = config
        self._templates = templates
        self._columns = columns
        store = cluster.objects.of(CONFIG_MAPS)
        store.restrict(config.config_map_namespace, config.config_map_name)
        store.subscribe(self._changed)

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        changed = new or old
        assert changed is not None, "an event has an object"
        meta = changed.metadata
        if (meta.namespace, meta.name) != (self._config.config_map_namespace, self._config.config_map_name):
            return
        try:
            found = parse(new.data.get(DATA_KEY, "{}")) if new is not None else {}
        except TemplatesError as error:
            _log.warning("ConfigMap %s/%s is not used: %s", meta.namespace, meta.name, error)
            self._handle.events.event(
                CONFIG_MAPS, meta, WARNING, "InvalidGPUSharedResourceTemplates", str(error)[:1024]
            )
            return
        models = self._templates.replace(found)
        if not models:
            return
        table = self._cluster.table
        for row in table.row_of.values():
            table.touch(row, self._columns.facets)
        self._cluster.announce(TEMPLATES_CHANGED)
        if self._handle.numa_alignment is None:
            return
        # Pods that were refused because of alignment wait for changes of nodes.
        for row in list(table.row_of.values()):
            equipment = self._columns.inventory(row).equipment
            if f"{equipment.vendor}-{equipment.model}" in models:
                self._cluster.announce(DEVICES_CHANGED, None, row)
