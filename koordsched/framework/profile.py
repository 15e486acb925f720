"""A profile: the plugins that one schedulerName runs, by extension point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from koordsched.cluster.pod import Pod
from koordsched.framework.evaluation import Evaluations
from koordsched.framework.filtering import Filtering
from koordsched.framework.handle import Handle
from koordsched.framework.interface import (
    AfterPostFilter,
    BeforePreFilter,
    Bind,
    CycleState,
    FindOneNode,
    Permit,
    Plugin,
    PodFilter,
    PodScore,
    PostBind,
    PostFilter,
    PostFilterResult,
    PreBind,
    PreEnqueue,
    PreFilter,
    QueueSort,
    Reserve,
    SettlesOffline,
    ShapeFilter,
    ShapePreFilter,
    ShapeScore,
)
from koordsched.framework.jobs import GroupJob, Job, JobScheduling
from koordsched.framework.placements import Placement, PlacementGenerate, PlacementScore
from koordsched.framework.plan import Chains
from koordsched.framework.status import SUCCESS, Code, Codes, Status
from koordsched.framework.turns import at_once

PluginFactory = Callable[[Any, Handle], Plugin]
"""Builds a plugin from its arguments (None if it has none). May raise ValueError with a clear message."""

P = TypeVar("P", bound=Plugin)

_log = logging.getLogger(__name__)


class ProfileError(ValueError):
    """The profile cannot be built; the message is ready for the user."""


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A profile of the configuration, fully expanded.

    `points`: extension point (`preEnqueue`, `filter`, …) -> plugin names in order. `weights`: of the score
    plugins. `args`: plugin name -> its arguments.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    args: Mapping[str, Any] = field(default_factory=dict)
    placement_weights: Mapping[str, int] = field(default_factory=dict)


class Profile:
    """The runtime of one profile: its plugins, and the steps that run them."""

    def __init__(
        self,
        spec: ProfileSpec,
        registry: Mapping[str, PluginFactory],
        handle: Handle,
    ) -> None:
        """Raises ProfileError if a plugin refuses its arguments or does not implement a point it is listed at."""
        self.name = spec.name
        self.handle = handle
        self.plugins: dict[str, Plugin] = {}
        for name in dict.fromkeys(name for names in spec.points.values() for name in names):
            factory = registry.get(name)
            if factory is None:
                continue
            try:
                self.plugins[name] = factory(spec.args.get(name), handle)
            except ValueError as error:
                raise ProfileError(
                    "initializing profiles: creating profile for scheduler name "
                    f'{spec.name}: initializing plugin "{name}": {error}'
                ) from error
        self.pre_enqueue = self._at(spec, "preEnqueue", PreEnqueue)
        self.queue_sort = self._at(spec, "queueSort", QueueSort)
        self.post_filters = self._at(spec, "postFilter", PostFilter)
        self.reserve_plugins = self._at(spec, "reserve", Reserve)
        self.permit_plugins = self._at(spec, "permit", Permit)
        self.pre_bind_plugins = self._at(spec, "preBind", PreBind)
        self.bind_plugins = self._at(spec, "bind", Bind)
        for point, built, purpose in (
            ("queueSort", self.queue_sort, "orders the queue"),
            ("bind", self.bind_plugins, "binds pods"),
        ):
            if not built and (named := spec.points.get(point)):
                raise ProfileError(
                    "initializing profiles: creating profile for scheduler name "
                    f'{spec.name}: {point} plugin "{named[0]}" is not implemented, and nothing else {purpose}'
                )
        self.post_bind_plugins = self._at(spec, "postBind", PostBind)
        jobs = [plugin for plugin in self.permit_plugins if isinstance(plugin, JobScheduling)]
        self.job_plugins: tuple[JobScheduling, ...] = tuple(sorted(jobs, key=lambda plugin: not plugin.group_jobs))
        self.job_plugin_names = frozenset(plugin.name for plugin in jobs)
        self.makes_room_for_groups = any(plugin.allows_for_groups for plugin in self.post_filters)
        self.placement_generators = self._at(spec, "placementGenerate", PlacementGenerate)
        self.placement_scorers = tuple(
            (plugin, spec.placement_weights.get(plugin.name, 1))
            for plugin in self._at(spec, "placementScore", PlacementScore)
        )
        self.chains = Chains(
            pre_filters=self._any_of(spec, "preFilter", (PreFilter, ShapePreFilter)),
            filters=self._any_of(spec, "filter", (PodFilter, ShapeFilter)),
            scores=tuple(
                (plugin, spec.weights.get(plugin.name, 1))
                for plugin in self._any_of(spec, "score", (PodScore, ShapeScore))
            ),
            pre_scores=spec.points.get("preScore", ()),
        )
        self.before_pre_filter_plugins = tuple(p for p in self.plugins.values() if isinstance(p, BeforePreFilter))
        self.after_post_filter_plugins = tuple(p for p in self.plugins.values() if isinstance(p, AfterPostFilter))
        self.settling = tuple(p for p in self.plugins.values() if isinstance(p, SettlesOffline))
        self.evaluations = Evaluations(self.chains, handle.cluster.table, handle.reasons)
        self.filtering = Filtering(
            self.chains,
            self.evaluations,
            handle.cluster,
            handle.nominations,
            handle.reasons,
            self.before_pre_filter_plugins,
            tuple(plugin for plugin in self.plugins.values() if isinstance(plugin, FindOneNode)),
        )
        handle.filtering = self.filtering

    def _any_of(self, spec: ProfileSpec, point: str, kinds: tuple[type[Plugin], ...]) -> tuple[Plugin, ...]:
        found = []
        for name in spec.points.get(point, ()):
            plugin = self.plugins.get(name)
            if plugin is None:
                continue
            if not isinstance(plugin, kinds):
                raise ProfileError(
                    f"initializing profiles: creating profile for scheduler name {spec.name}: "
                    f'plugin "{name}" does not extend {point[0].upper()}{point[1:]}Plugin plugin'
                )
            found.append(plugin)
        return tuple(found)

    def _at(self, spec: ProfileSpec, point: str, kind: type[P]) -> tuple[P, ...]:
        return tuple(plugin for plugin in self._any_of(spec, point, (kind,)) if isinstance(plugin, kind))

    def post_filter(
        self, cycle: CycleState, codes: Codes
    ) -> Generator[PostFilterResult | None, PostFilterResult | None, PostFilterResult]:
        """Runs the PostFilter plugins until one succeeds, gives up or fails; the texts of the others are joined.

        Yields what each plugin answers, and goes on with what it is sent instead, if it is sent anything; and None
        between the steps of a long search (`framework.turns`). The plugin that ends the chain
        decides on the nomination, otherwise the last one that decides on it. What those before it do when the decision
        is carried out is done, too. Without plugins there is nothing that a nomination could wait for.
        AfterPostFilter plugins see the end. The table reads as the pod has it read only while a plugin is asked.
        Source: core spec 3.6, step 8.
        """
        texts: list[str] = []
        refused_by: frozenset[str] = frozenset()
        nominated: str | None = None if self.post_filters else ""
        acts: list[Callable[[], None]] = []
        for plugin in self.post_filters:
            with nullcontext() if plugin.on_plain_table else self.filtering.overlaid(cycle):
                answer = yield from plugin.post_filter_in_turns(cycle, cycle.pod, codes)
            result = (yield answer) or answer
            if result.status.code is not Code.UNSCHEDULABLE:
                break
            if result.nominated_node is not None:
                nominated = result.nominated_node
            texts.extend(result.status.reasons)
            refused_by |= result.refused_by
            if result.actuate is not None:
                acts.append(result.actuate)
        else:
            result = PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(texts)), nominated, refused_by=refused_by)
        for act in acts:
            result.also(act)
        for after in self.after_post_filter_plugins:
            after.after_post_filter(cycle, cycle.pod, codes, result)
        return result

    def run_post_filter(self, cycle: CycleState, codes: Codes) -> PostFilterResult:
        """The same, with every plugin's answer as it is."""
        return at_once(self.post_filter(cycle, codes))

    def begin_job(self, pod: Pod) -> tuple[JobScheduling, Job | GroupJob] | None:
        """The job to attempt with this pod, and its plugin; None if the pod is placed by itself."""
        for plugin in self.job_plugins:
            if (job := plugin.begin_job(pod)) is not None:
                return plugin, job
        return None

    def placements(self, group: GroupJob) -> Sequence[Placement] | Status | None:
        """The candidates of the first plugin that knows any; None if a group may be placed anywhere."""
        for plugin in self.placement_generators:
            if (found := plugin.placements(group)) is not None:
                return found
        return None

    # --- the steps after a node was chosen ---------------------------------------------------------

    def run_reserve(self, cycle: CycleState, pod: Pod, row: int) -> Status:
        """Reserve, in order, until one fails. The caller undoes them with `run_unreserve`."""
        for plugin in self.reserve_plugins:
            status = plugin.reserve(cycle, pod, row)
            if not status.ok:
                return status.of(plugin.name, f'running Reserve plugin "{plugin.name}"')
        return SUCCESS

    def run_unreserve(self, cycle: CycleState, pod: Pod, row: int) -> None:
        """Unreserve for all, in reverse order; if one fails, the others still run and the pod still leaves the node."""
        for plugin in reversed(self.reserve_plugins):
            try:
                plugin.unreserve(cycle, pod, row)
            except Exception:
                _log.exception("Unreserve of %s failed for pod %s", plugin.name, pod.title)

    def run_permit(self, cycle: CycleState, pod: Pod, row: int) -> tuple[Status, dict[str, float]]:
        """SUCCESS, WAIT with the plugins to wait for (name -> seconds), or the first rejection or error."""
        waits: dict[str, float] = {}
        for plugin in self.permit_plugins:
            status, timeout = plugin.permit(cycle, pod, row)
            if status.code is Code.WAIT:
                waits[plugin.name] = timeout
            elif not status.ok:
                return status.of(plugin.name, f'running Permit plugin "{plugin.name}"'), {}
        return (Status(Code.WAIT), waits) if waits else (SUCCESS, waits)

    def run_post_bind(self, cycle: CycleState, pod: Pod, node: str) -> None:
        """PostBind, in order; if one fails, the others still run."""
        for plugin in self.post_bind_plugins:
            try:
                plugin.post_bind(cycle, pod, node)
            except Exception:
                _log.exception("PostBind of %s failed for pod %s", plugin.name, pod.title)
