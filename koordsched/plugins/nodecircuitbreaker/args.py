"""The plugin's arguments: fields, defaults, rules."""

from __future__ import annotations

from typing import ClassVar

from koordsched.config.decoding import Int32
from koordsched.config.duration import Duration
from koordsched.config.errors import invalid
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs


class NodeCircuitBreakerArgs(PluginArgs, frozen=True, kw_only=True):
    """When a breaker opens, for how long, and what closes it. All profiles have the same breakers."""

    of_cluster: ClassVar[tuple[str, ...]] = (
        "window",
        "failures",
        "distinct_owners",
        "distinct_namespaces",
        "owner_nodes",
        "quick_crash",
        "sandbox_timeout",
        "cool_down",
        "max_cool_down",
        "probation",
        "probe_timeout",
        "max_open_percentage",
    )

    window: Duration = Duration.of(600)
    failures: Int32 = 3
    distinct_owners: Int32 = 2
    distinct_namespaces: Int32 = 1
    owner_nodes: Int32 = 3
    quick_crash: Duration = Duration.of(10)
    sandbox_timeout: Duration = Duration.of(300)
    cool_down: Duration = Duration.of(60)
    max_cool_down: Duration = Duration.of(3600)
    probation: Duration = Duration.of(60)
    probe_timeout: Duration = Duration.of(600)
    max_open_percentage: Int32 = 10


def validate(given: NodeCircuitBreakerArgs, path: str, gates: FeatureGates) -> list[str]:
    """What is wrong with the arguments; paths below `path`."""
    complaints = []
    for name, duration in (
        ("window", given.window),
        ("quickCrash", given.quick_crash),
        ("sandboxTimeout", given.sandbox_timeout),
        ("coolDown", given.cool_down),
        ("probation", given.probation),
        ("probeTimeout", given.probe_timeout),
    ):
        if duration < Duration.of(1):
            complaints.append(invalid(f"{path}.{name}", duration, "must be at least 1 second"))
    for name, number in (
        ("failures", given.failures),
        ("distinctOwners", given.distinct_owners),
        ("distinctNamespaces", given.distinct_namespaces),
        ("ownerNodes", given.owner_nodes),
    ):
        if number < 1:
            complaints.append(invalid(f"{path}.{name}", number, "must be greater than zero"))
    if given.failures < given.distinct_owners:
        text = "must not be less than distinctOwners, each of which has one at least"
        complaints.append(invalid(f"{path}.failures", given.failures, text))
    if given.distinct_owners < given.distinct_namespaces:
        text = "must not be less than distinctNamespaces, each of which has one at least"
        complaints.append(invalid(f"{path}.distinctOwners", given.distinct_owners, text))
    if given.max_cool_down < given.cool_down:
        complaints.append(invalid(f"{path}.maxCoolDown", given.max_cool_down, "must not be less than coolDown"))
    if not 1 <= given.max_open_percentage <= 100:
        complaints.append(
            invalid(f"{path}.maxOpenPercentage", given.max_open_percentage, "not in valid range [1, 100]")
        )
    return complaints
