"""What a journal says about its process, and the configuration for a replay from that."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

import koordsched
from koordsched import config
from koordsched.config.feature_gates import changed
from koordsched.config.secrets import without_secrets
from koordsched.config.wire import Extender, KubeSchedulerConfiguration
from koordsched.framework.handle import Clock
from koordsched.journal.records import Header
from koordsched.queue.timers import MAX_UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scheduler runs with. `max_unschedulable` in seconds; `own_pod`: namespace and name."""

    resolved: config.Resolved
    max_unschedulable: float = MAX_UNSCHEDULABLE
    fair_namespaces: bool = False
    own_pod: tuple[str, str] = ("", "")


def software() -> dict[str, str]:
    """Versions of what decisions may depend on."""
    return {
        "koordsched": koordsched.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def header_maker(setting: Setting, run: str, clock: Clock) -> Callable[[int, int], Header]:
    """Makes the header of a segment of this number, before which there are this many records.

    Segments from 1 on continue the one before.
    """
    resolved = setting.resolved
    configuration = config.dump(without_credentials(resolved.source))
    gates = changed(resolved.features)
    versions = software()

    def make(segment: int, records: int) -> Header:
        return Header(
            run=run,
            segment=segment,
            continues=segment > 0,
            software=versions,
            configuration=configuration,
            gates=gates,
            extended=bool(resolved.extenders),
            max_unschedulable=setting.max_unschedulable,
            fair_namespaces=setting.fair_namespaces,
            own_pod=setting.own_pod,
            wall=clock.wall(),
            monotonic=clock.monotonic(),
            records=records,
        )

    return make


def without_credentials(configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """The configuration without certificates, keys and passwords, and without the paths to those."""
    return replace(
        configuration,
        client_connection=replace(configuration.client_connection, kubeconfig=""),
        extenders=tuple(_without_credentials(extender) for extender in configuration.extenders),
    )


def _without_credentials(extender: Extender) -> Extender:
    return replace(extender, url_prefix=without_secrets(extender.url_prefix), tls_config=None)


def setting_of(header: Header, catalog: config.PluginCatalog) -> Setting:
    """What to replay with. Raises ConfigError."""
    gates = config.FeatureGates.parse(header.gates)
    source = config.load(header.configuration, catalog=catalog, gates=gates)
    resolved = config.resolve(source, catalog=catalog, gates=gates)
    return Setting(resolved, header.max_unschedulable, header.fair_namespaces, header.own_pod)
