"""Groups of equal nodes that can be made larger and smaller, as a file describes them (docs/explain.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koordsched.cli.addednodes import NodeModel, daemons_on
from koordsched.cli.admission import Admission
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import objects_of
from koordsched.fakecluster.hollow.nodeobjects import plan_nodes
from koordsched.fakecluster.hollow.templates import NodeTemplate, TemplateError, load_templates
from koordsched.plugins import KINDS
from koordsched.scheduling.offline import OfflineScheduler


class NodeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group. Its nodes are those with all labels of `selector`, or else of the template.

    New ones are made from `template` (as in node templates; `allocatable` alone is enough), or are `like` a node, or,
    without either, like the first node of the group. `min`, `max`: how many nodes there may be, None for no limit;
    `cost`: of one node, in any unit.
    """

    name: str
    template: dict[str, Any] | None = None
    like: str = ""
    selector: dict[str, str] = {}
    min: int = 0
    max: int | None = None
    cost: float | None = None


def read_groups(path: str) -> list[NodeGroup]:
    """Reads and checks a file. Raises InputError."""
    try:
        groups = msgspec.convert(yaml.safe_load(Path(path).read_text(encoding="utf-8")), list[NodeGroup])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from error
    names = [group.name for group in groups]
    if not groups:
        raise InputError(f"{path}: at least one group is needed")
    for group in groups:
        where = f"{path}: group {group.name!r}"
        if not group.name or names.count(group.name) > 1:
            raise InputError(f"{where}: each group needs a name of its own")
        if group.template is not None and group.like:
            raise InputError(f"{where}: template and like exclude each other")
        if group.template is None and not group.like and not group.selector:
            raise InputError(f"{where}: template, like or selector is needed")
        if group.min < 0 or (group.max is not None and group.max < group.min) or (group.cost or 0) < 0:
            raise InputError(f"{where}: 0 <= min <= max and cost >= 0 are needed")
        if group.template is not None:
            template_of(group, where)
    return groups


def template_of(group: NodeGroup, where: str) -> NodeTemplate:
    """The template of a group that has one. Raises InputError."""
    given: Mapping[str, Any] = {"nodeName": f"{group.name}-${{index}}", **(group.template or {})}
    if "capacity" not in given and "allocatable" in given:
        given = {**given, "capacity": given["allocatable"]}
    try:
        (template,) = load_templates({"templates": [given]})
    except TemplateError as error:
        raise InputError(f"{where}: {str(error).removeprefix('node template: ')}") from error
    return template


class GroupNodes:
    """The nodes of a group in a cluster: those that there are, and those added and taken away again."""

    def __init__(self, scheduler: OfflineScheduler, group: NodeGroup, seed: int) -> None:
        """Raises InputError if it cannot be said what new nodes are like."""
        self.group = group
        self._scheduler = scheduler
        self.members = self._find()
        self._models = self._make_models(seed)
        self._taken = 0
        self.added: list[str] = []

    @property
    def name(self) -> str:
        """The group's."""
        return self.group.name

    @property
    def room(self) -> int | None:
        """How many more nodes there may be; None: any number."""
        if self.group.max is None:
            return None
        return max(self.group.max - len(self.members) - len(self.added), 0)

    @property
    def full(self) -> bool:
        """Whether there may be no more."""
        return self.room == 0

    def grow(self) -> str:
        """Adds a node; returns its name."""
        number = len(self.added) + 1
        row_of = self._scheduler.cluster.table.row_of
        while (name := f"{self.name}-new-{number}") in row_of:
            number += 1
        self._models[len(self.added) % len(self._models)].add(self._scheduler, name)
        self.added.append(name)
        return name

    def shrink(self) -> None:
        """Takes the node away that was added last. No pod may be on it but those that came with it."""
        name = self.added.pop()
        self._models[len(self.added) % len(self._models)].remove(self._scheduler, name)

    def resize(self, count: int) -> None:
        """Has so many nodes added in all."""
        while len(self.added) < count:
            self.grow()
        while len(self.added) > count:
            self.shrink()

    def _find(self) -> list[str]:
        labels = self.group.selector or (self.group.template or {}).get("labels") or {}
        table = self._scheduler.cluster.table
        nodes = ((name, table.nodes[row]) for name, row in table.row_of.items())
        return sorted(
            name
            for name, node in nodes
            if labels and node is not None and labels.items() <= node.metadata.labels.items()
        )

    def _make_models(self, seed: int) -> list[NodeModel]:
        scheduler, group = self._scheduler, self.group
        if group.template is None:
            model = group.like or next(iter(self.members), "")
            if model not in scheduler.cluster.table.row_of:
                missing = f"there is no node {group.like}" if group.like else "no node has the labels of its selector"
                raise InputError(f"node group {group.name}: {missing}")
            return [NodeModel.like(scheduler, model)]
        daemons = max((daemons_on(scheduler, name) for name in self.members), key=len, default=[])
        where = f"node group {group.name}"
        template = template_of(group, where)
        models = []
        for planned in plan_nodes([template], len(template.zones) or 1):
            admitted = Admission(seed).admit_all(objects_of(planned, where))
            objects = [(KINDS[each.api_version, each.kind], each.obj) for each in admitted]
            models.append(NodeModel(objects, daemons))
        return models
