"""The plugin's arguments: fields, defaults, rules.

Source: koordinator `pkg/scheduler/apis/config/{v1,validation}`; coscheduling spec 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from koordsched.config.decoding import Int64
from koordsched.config.duration import Duration
from koordsched.config.feature_gates import FeatureGates
from koordsched.config.plugin_args import PluginArgs
from koordsched.plugins.coscheduling.kinds import MATCH_POLICIES, ONCE_SATISFIED


class CoschedulingArgs(PluginArgs, frozen=True, kw_only=True):
    """Coscheduling spec 2.3. `controller_workers`: how many PodGroups are written at once.

    `skip_check_schedule_cycle` has no effect, as in upstream. `place_by_index` and
    `honor_disruption_budgets` are koordsched's own (docs/gangs.md).
    """

    of_cluster: ClassVar[tuple[str, ...]] = ("default_timeout", "controller_workers", "default_match_policy")

    default_timeout: Duration = Duration.of(600)
    controller_workers: Int64 = 1
    skip_check_schedule_cycle: bool = False
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: str = ONCE_SATISFIED
    place_by_index: bool = False
    honor_disruption_budgets: bool = False


def validate(given: CoschedulingArgs, path: str, gates: FeatureGates) -> list[str]:
    """Upstream asks this in the plugin's constructor, and stops at the first error."""
    if given.default_timeout < 0:
        return ["coeSchedulingArgs DefaultTimeoutSeconds invalid"]
    if given.controller_workers < 1:
        return ["coeSchedulingArgs ControllerWorkers invalid"]
    return []


def advise(given: CoschedulingArgs) -> Iterable[str]:
    """What is accepted, as upstream does, but hardly meant."""
    if given.skip_check_schedule_cycle:
        yield "skipCheckScheduleCycle has no effect"
    if given.default_match_policy not in MATCH_POLICIES:
        yield (
            f"defaultMatchPolicy {given.default_match_policy[:64]!r} is none of {', '.join(MATCH_POLICIES)}: "
            f"it admits what {ONCE_SATISFIED} admits, but members that come later wait until there are enough again"
        )
