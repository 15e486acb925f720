"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/v1`, `apis/config/validation`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from koordsched.api.quantity import parse
from koordsched.config.decoding import Quantities
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs

UNBOUNDED = "1844674407370955161"
"""A fifth of the largest int64: what the default and the system quota may use unless the file says otherwise."""


class HookPluginConf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A hook of the quota plugin: its name, and how it is made."""

    key: str = ""
    factory_key: str = ""
    factory_args: str = ""


class ElasticQuotaArgs(PluginArgs, frozen=True, kw_only=True):
    """Elasticquota spec 2.4."""

    of_cluster: ClassVar[tuple[str, ...]] = (
        "delay_evict_time",
        "revoke_pod_interval",
        "default_quota_group_max",
        "system_quota_group_max",
        "quota_group_namespace",
        "monitor_all_quotas",
        "enable_min_quota_scale",
    )

    delay_evict_time: Duration = Duration.of(120)
    revoke_pod_interval: Duration = Duration.of(1)
    default_quota_group_max: Quantities = msgspec.field(default_factory=Quantities)
    system_quota_group_max: Quantities = msgspec.field(default_factory=Quantities)
    quota_group_namespace: str = "koordinator-system"
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False
    quota_snapshot_update_interval: Duration = Duration.of(120)
    hook_plugins: tuple[HookPluginConf, ...] = ()


def with_defaults(given: ElasticQuotaArgs, gates: FeatureGates) -> ElasticQuotaArgs:
    """The built-in quotas are practically unbounded unless the file bounds them."""
    unbounded = Quantities({"cpu": UNBOUNDED, "memory": UNBOUNDED})
    return msgspec.structs.replace(
        given,
        default_quota_group_max=given.default_quota_group_max or unbounded,
        system_quota_group_max=given.system_quota_group_max or unbounded,
    )


def validate(given: ElasticQuotaArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor, and stops at the first error."""
    for field, bounds in (
        ("defaultQuotaGroupMax", given.default_quota_group_max),
        ("systemQuotaGroupMax", given.system_quota_group_max),
    ):
        for name, quantity in sorted(bounds.items()):
            if parse(quantity) < 0:
                should = f"{field} should be a positive value, resourceName:{name}, got {quantity}"
                return [f"elasticQuotaArgs error, {should}"]
    if given.delay_evict_time < 0:
        return ["elasticQuotaArgs error, DelayEvictTime should be a positive value"]
    if given.revoke_pod_interval < 0:
        return ["elasticQuotaArgs error, RevokePodCycle should be a positive value"]
    for hook in given.hook_plugins:
        if not hook.key or not hook.factory_key:
            return ["elasticQuotaArgs error, hookPlugins need a key and a factoryKey"]
        return [f"elasticQuotaArgs error, hook plugin {hook.key}: there is no factory {hook.factory_key}"]
    return []
