"""Publishes ResourceSlices: what the drivers on hollow nodes do, and those of pools that are attached to no node.

A driver that starts, or whose devices have changed, publishes its pool under a higher generation, slice by slice. The
slices of a node are owned by it and so deleted with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.hollow.agentreports import owner_of
from koordsched.fakecluster.hollow.batchedtimers import BatchedTimers
from koordsched.fakecluster.hollow.complaints import invalid_annotation
from koordsched.fakecluster.hollow.driverlayout import DRIVERS, read_drivers
from koordsched.fakecluster.hollow.hollownode import Health, HollowNode
from koordsched.fakecluster.hollow.resourcepools import Object, Pool, PoolId, node_pools, slice_name, slice_specs
from koordsched.fakecluster.registry import ChangeView, Registry

_NO_NODE = ""
"""Publishes the pools that are attached to no node."""
_REPAIR_SECONDS = 1.0
"""Until a slice that was deleted is published again."""

_log = logging.getLogger(__name__)


class _Publisher:
    """The pools of one node."""

    __slots__ = ("names", "node", "pools", "text")

    def __init__(self, node: HollowNode | None, text: str | None) -> None:
        self.node = node
        self.text = text
        """The annotation that the pools were read from."""
        self.pools: list[Pool] = []
        self.names: set[str] = set()
        """Of the slices that it has published."""


class SlicePublisher:
    """The pools that are published, by driver and name."""

    def __init__(self, registry: Registry, timers: BatchedTimers, attached: Iterable[Pool] = ()) -> None:
        """`attached`: the pools that are attached to no node."""
        self._registry = registry
        self._timers = timers
        self._attached = list(attached)
        self._slices = registry.find("resource.k8s.io", "v1", "resourceslices")
        self._nodes = registry.resource("", "v1", "nodes")
        self._publishers: dict[str, _Publisher] = {}
        self._left: dict[str, set[str]] = {}
        """The slices of earlier processes, by the uid of the node."""
        self._writing = False
        self.pools: dict[PoolId, tuple[str, Pool]] = {}
        """With the names of their nodes, which are empty for pools that are attached to none."""

    def start(self) -> Callable[[], None]:
        """Publishes what is attached to no node, and repairs what is deleted; returns what ends it.

        To be called before the first node is followed.
        """
        if self._slices is None:
            return lambda: None
        for record in self._registry.scan(self._slices):
            for owner in record.obj()["metadata"].get("ownerReferences") or ():
                self._left.setdefault(owner.get("uid") or "", set()).add(record.name)
        publisher = self._publishers[_NO_NODE] = _Publisher(None, None)
        self._set_pools(publisher, self._attached)
        self._timers.after(0.0, self._publish, publisher)
        return self._registry.subscribe_changes(self._slices, self._slice_changed, replay=False)

    def follow(self, node: HollowNode, obj: Object) -> None:
        """The node is there or has changed: reads which drivers it has."""
        text = (obj["metadata"].get("annotations") or {}).get(DRIVERS)
        known = self._publishers.get(node.name)
        mine = known is not None and known.node is node
        if self._slices is None or (known is not None and mine and known.text == text) or (not mine and text is None):
            return
        publisher = known if known is not None and mine else _Publisher(node, text)
        publisher.text = text
        self._publishers[node.name] = publisher
        publisher.names |= self._left.pop(node.uid, set())
        try:
            pools = node_pools(read_drivers(text), node.name) if text is not None else []
            self._check_owners(node, pools)
        except ValueError as error:
            message = f"{DRIVERS} is ignored: {error}"
            self._timers.after(0.0, invalid_annotation, self._registry, obj, node.name, message)
            pools = []
        self._set_pools(publisher, pools)
        self._timers.after(0.0, self._publish, publisher)

    def remove(self, node: HollowNode) -> None:
        """The node was deleted."""
        publisher = self._publishers.get(node.name)
        if publisher is not None and publisher.node is node:
            self._set_pools(publisher, [])
            del self._publishers[node.name]

    def resume(self, node: HollowNode) -> None:
        """The node works again after a silence: its drivers have been started again."""
        publisher = self._publishers.get(node.name)
        if publisher is not None and publisher.node is node:
            self._timers.after(0.0, self._publish, publisher)

    def _check_owners(self, node: HollowNode, pools: list[Pool]) -> None:
        for pool in pools:
            owner = self.pools.get(pool.id)
            if owner is not None and owner[0] != node.name:
                where = f"by node {owner[0]}" if owner[0] else "for all nodes"
                raise ValueError(f"pool {'/'.join(pool.id)} is published {where}")

    def _set_pools(self, publisher: _Publisher, pools: list[Pool]) -> None:
        for pool in publisher.pools:
            self.pools.pop(pool.id, None)
        publisher.pools = pools
        name = publisher.node.name if publisher.node is not None else _NO_NODE
        self.pools |= {pool.id: (name, pool) for pool in pools}

    def _slice_changed(self, change: ChangeView) -> None:
        if change.type != "DELETED" or self._writing:
            return
        spec = change.new.get("spec") or {}
        found = self.pools.get((spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""))
        publisher = self._publishers.get(found[0]) if found is not None else None
        if publisher is not None and change.record.name in publisher.names:
            self._timers.after(_REPAIR_SECONDS, self._publish, publisher)

    def _publish(self, publisher: _Publisher) -> None:
        """Writes all pools under their next generations, and deletes the slices of what there was before."""
        node = publisher.node
        if self._publishers.get(node.name if node is not None else _NO_NODE) is not publisher:
            return
        if node is not None and node.health is Health.SILENT:
            # It publishes when it comes back.
            return
        if node is not None and self._registry.peek(self._nodes, None, node.name) is None:
            return
        wanted: set[str] = set()
        self._writing = True
        try:
            for pool in publisher.pools:
                wanted |= self._publish_pool(pool, node)
            for name in publisher.names - wanted:
                self._delete(name)
        finally:
            self._writing = False
        publisher.names = wanted

    def _publish_pool(self, pool: Pool, node: HollowNode | None) -> set[str]:
        assert self._slices is not None, "there are no publishers without the kind"
        count = len(slice_specs(pool, 0))
        known = [self._registry.peek(self._slices, None, slice_name(pool, number)) for number in range(count)]
        number = count
        surplus = []
        while (record := self._registry.peek(self._slices, None, slice_name(pool, number))) is not None:
            known.append(record)
            surplus.append(slice_name(pool, number))
            number += 1
        generation = 1 + max(
            (int(old["spec"]["pool"].get("generation") or 0) for old in known if old is not None), default=0
        )
        wanted: set[str] = set()
        for number, spec in enumerate(slice_specs(pool, generation)):
            name = slice_name(pool, number)
            try:
                self._write(name, spec, known[number], node)
            except ApiStatusError as error:
                _log.warning("ResourceSlice %s: %s", name, error)
            wanted.add(name)
        for name in surplus:
            self._delete(name)
        return wanted

    def _write(self, name: str, spec: Object, known: Object | None, node: HollowNode | None) -> None:
        assert self._slices is not None, "there are no publishers without the kind"
        owners = {"ownerReferences": [owner_of(node)]} if node is not None else {}
        if known is not None:
            same = [owner["uid"] for owner in known["metadata"].get("ownerReferences") or ()]
            if same == [owner["uid"] for owner in owners.get("ownerReferences", ())]:

                def make(current: Object) -> Object:
                    return {**current, "spec": spec}

                self._registry.update_record(self._slices, None, name, make)
                return
            # Of a node that had the name before.
            self._delete(name)
        self._registry.create_record(self._slices, None, {"metadata": {"name": name, **owners}, "spec": spec})

    def _delete(self, name: str) -> None:
        assert self._slices is not None, "there are no publishers without the kind"
        try:
            self._registry.delete_record(self._slices, None, name)
        except ApiStatusError as error:
            if error.code != 404:
                raise
