"""From files to a cluster state on which the scheduler's evaluation runs: what `simulate` and `explain` start from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import orjson

from koordsched import config
from koordsched.cli.admission import Admission
from koordsched.cli.dumptime import DumpClock, taken_at, time_text
from koordsched.cli.objectfiles import InputError, Object, Sourced
from koordsched.cli.podclaims import make_claims, notes_on_claims
from koordsched.cli.target import Target, node_of, phase_over, without_node
from koordsched.cli.workloads import WORKLOADS, TooManyPods, expand, owners_with_pods
from koordsched.client.clock import SystemClock
from koordsched.config.defaults import DEFAULT_SCHEDULER_NAME
from koordsched.config.wire import API_VERSION, KIND
from koordsched.fakecluster.hollow.devicedescription import device_of
from koordsched.fakecluster.hollow.devicelayout import DEVICES
from koordsched.fakecluster.hollow.deviceresources import offered
from koordsched.fakecluster.hollow.driverlayout import read_drivers
from koordsched.fakecluster.hollow.nodeobjects import PlannedNode, node_object, placeholders, plan_nodes
from koordsched.fakecluster.hollow.resourcepools import node_pools, slice_objects
from koordsched.fakecluster.hollow.templates import TemplateError, drivers_text, load_pools, load_templates
from koordsched.framework.handle import Clock
from koordsched.framework.profile import ProfileError
from koordsched.plugins import CATALOG, IN_TREE
from koordsched.plugins.dynamicresources.groups import GATES
from koordsched.scheduling.offline import BadObject, OfflineScheduler


def as_if_pending(target: Target, node: str) -> str:
    """A note on something that has a node."""
    what = "the pod" if target.is_pod else target.title
    return f"{what} is on node {node}; explained as if it were pending and not there"


_LONG_AGO = 60.0
"""Seconds after which a note says that a dump is old."""


_HEAD = {"apiVersion": API_VERSION, "kind": KIND}


@dataclass(frozen=True, slots=True)
class Offline:
    """The scheduler on the given state. `notes`: what was added, left out or not decoded, for the user."""

    scheduler: OfflineScheduler
    notes: list[str]


def load_config(
    path: str | None,
    *,
    gates: config.FeatureGates | None = None,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
    plugin: str = "",
) -> tuple[config.Resolved, list[str]]:
    """The configuration file, or the default, and what in it has no effect. Raises InputError.

    The default is one profile of this name, with this plugin besides the default ones. `gates`: None for the defaults.
    """
    gates = gates or config.FeatureGates.defaults()
    try:
        if path is None:
            plugins = {"multiPoint": {"enabled": [{"name": plugin}] if plugin else []}}
            profile = {"schedulerName": scheduler_name, "plugins": plugins}
            source = config.load(orjson.dumps({**_HEAD, "profiles": [profile]}), catalog=CATALOG, gates=gates)
        else:
            source = config.load(config.loading.read_file(path), catalog=CATALOG, gates=gates)
        resolved = config.resolve(source, catalog=CATALOG, gates=gates)
    except config.ConfigError as error:
        raise InputError(f"{path or 'configuration'}: {error}") from error
    return resolved, config.warnings(resolved, CATALOG, IN_TREE.keys())


def template_nodes(template: str | None, count: int | None) -> list[Sourced]:
    """Nodes made from a template file, as the embedded cluster makes them, with their devices. Raises InputError."""
    if template is None and count is None:
        return []
    try:
        planned = plan_nodes(load_templates(template), count)
        pools = load_pools(template)
    except TemplateError as error:
        raise InputError(str(error)) from error
    where = template or "the default node template"
    attached = [Sourced(f"{where}: pool {pool.id[1]}", each) for pool in pools for each in slice_objects(pool)]
    return attached + [
        each for number, node in enumerate(planned, start=1) for each in objects_of(node, f"{where}: node {number}")
    ]


def objects_of(planned: PlannedNode, where: str) -> list[Sourced]:
    """The node, after its ResourceSlices, and its Device, if it has devices. Raises InputError."""
    now = SystemClock().wall()
    node = node_object(planned, now)
    try:
        device = device_of(node, now)
    except ValueError as error:
        raise InputError(f"{where}: {DEVICES}: {error}") from error
    slices = [Sourced(f"{where}: its {each['kind']}", each) for each in _slices_of(planned, where)]
    if device is None:
        return [*slices, Sourced(where, node)]
    return [*slices, Sourced(f"{where}: its Device", device), Sourced(where, offered(device).applied_to(node))]


def _slices_of(planned: PlannedNode, where: str) -> list[Object]:
    """What the drivers of the node publish. Raises InputError."""
    if not planned.template.drivers:
        return []
    try:
        pools = node_pools(read_drivers(drivers_text(planned.template, placeholders(planned))), planned.name)
    except ValueError as error:
        raise InputError(f"{where}: drivers: {error}") from error
    return [each for pool in pools for each in slice_objects(pool)]


def empty_scheduler(resolved: config.Resolved, seed: int = 0, clock: Clock | None = None) -> OfflineScheduler:
    """The profiles, on a cluster without anything. Raises InputError if they cannot be built."""
    try:
        return OfflineScheduler(resolved, IN_TREE, (), clock=clock or SystemClock(), rng=Random(seed))
    except ProfileError as error:
        raise InputError(str(error)) from error


def prepare(
    objects: Sequence[Sourced], resolved: config.Resolved, *, seed: int = 0, lifted: Target | None = None
) -> Offline:
    """Adds the objects; creates the pods of workloads that have none.

    `lifted`: what is to be pending even if it has a node. Raises InputError.
    """
    admission = Admission(seed)
    served = {id(each) for each in objects if each.meta.get("uid")}
    stored = admission.admit_all(objects)
    notes = [f"{count} of kind {kind} ignored" for kind, count in sorted(admission.strangers.items())]
    made = _pods_of_workloads(stored, admission, notes)
    new = (each for each in (*stored, *made) if each.kind == "Pod" and id(each) not in served)
    claims = make_claims(new, stored, admission, for_groups=resolved.features >= GATES)
    notes += notes_on_claims(claims)
    now = SystemClock().wall()
    then = taken_at(objects, now)
    if now - then > _LONG_AGO:
        notes.append(f"the age of reports is as of {time_text(then)}, the newest time in the input")
    scheduler = empty_scheduler(resolved, seed, DumpClock(then))
    for sourced in (*claims, *stored, *made):
        try:
            _add(scheduler, sourced, lifted, notes)
        except BadObject as error:
            raise InputError(f"{sourced.where}: {error}") from error
    return Offline(scheduler, [*notes, *notes_on(scheduler)])


def notes_on(scheduler: OfflineScheduler) -> list[str]:
    """What is wrong with nodes, and how many pending pods belong to other schedulers."""
    table = scheduler.cluster.table
    foreign = Counter(pod.shape.scheduler_name for pod in scheduler.others.values())
    return [
        *(f"{count} pending pods left to another scheduler: {name}" for name, count in sorted(foreign.items())),
        *(
            f"node {table.names[row]}: {problem} (counts as zero)"
            for row, problems in enumerate(table.problems)
            for problem in problems
        ),
    ]


def _add(scheduler: OfflineScheduler, sourced: Sourced, lifted: Target | None, notes: list[str]) -> None:
    """Raises BadObject."""
    if lifted is None or (sourced.kind, sourced.name) != (lifted.kind.name, lifted.name):
        scheduler.add(sourced.obj)
        return
    thing = scheduler.decoded(lifted.kind, sourced.obj)
    if lifted.is_object(thing):
        if node := node_of(thing):
            notes.append(as_if_pending(lifted, node))
        if node or phase_over(thing):
            thing = without_node(thing)
    scheduler.add_object(lifted.kind, thing)


def _pods_of_workloads(stored: Iterable[Sourced], admission: Admission, notes: list[str]) -> list[Sourced]:
    by_kind: dict[str, list[Sourced]] = {}
    for sourced in stored:
        by_kind.setdefault(sourced.kind, []).append(sourced)
    nodes = [sourced.obj for sourced in by_kind.get("Node", ())]
    served = owners_with_pods(sourced.obj for kind in ("Pod", "ReplicaSet") for sourced in by_kind.get(kind, ()))
    found: list[Sourced] = []
    for sourced in stored:
        group = sourced.api_version.rpartition("/")[0]
        if (group, sourced.kind) not in WORKLOADS or (sourced.namespace, sourced.kind, sourced.name) in served:
            continue
        try:
            parts = expand(sourced.obj, nodes)
        except TooManyPods as error:
            raise InputError(f"{sourced.where}: {sourced.kind} {sourced.name}: {error}") from error
        made = [
            Sourced(sourced.where, obj) if obj["metadata"].get("uid") else admission.admit(Sourced(sourced.where, obj))
            for obj in parts
        ]
        pods = sum(one.kind == "Pod" for one in made)
        if pods:
            notes.append(
                f"{sourced.kind} {sourced.namespace}/{sourced.name}: has no pods in the input, {pods} made from it"
            )
        found += made
    return found
