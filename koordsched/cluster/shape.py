"""PodShape: everything of a pod that a node-by-node verdict depends on, once per distinct content.

Replicas of a workload differ in name, uid, labels and random volume names, none of which such a verdict depends on, so
they share one shape, and with it every compiled selector and every cached verdict. Labels and annotations are part of
it only as far as plugins declare that they read them (`cluster.facts`): plugins that compare pods with each other read
labels and namespace from the pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

from koordsched.api.core import PodSpec, PodStatus
from koordsched.api.podvolumes import Volume
from koordsched.cluster.claimedresources import Total
from koordsched.cluster.kept import Kept
from koordsched.cluster.resources import Requests, ResourceNames, demand_of

if TYPE_CHECKING:
    from koordsched.api.meta import ObjectMeta
    from koordsched.cluster.facts import ShapeFacts, ShapeMeta

T = TypeVar("T")

SHAPE_BYTES = 12 << 10
"""Bytes of a small shape: itself, its plan, what plugins have compiled from it (measured)."""

_SMALL, _BYTES_PER_BYTE = 2048, 10
"""A key up to so long is included in that; what each byte more takes: most of what is listed is compiled to objects."""

_FEW_RESOURCES, _BYTES_PER_RESOURCE, _BYTES_PER_TERM = 8, 900, 900
"""So many extended resources are included; what each one more takes beside its bytes; so does each term about other
pods.
"""

_RESIZED = object()
"""What `compiled` knows by it: (encoded status, what claims take) -> requests; gone with the last pod of the shape."""

_RESIZED_BUDGET = 64 << 10
"""Bytes per shape of what its pods' statuses say instead of its requests."""


class PodShape:
    """The placement-relevant content of a spec; compare by identity.

    `key` is the canonical encoding that was interned, `spec` a representative spec (its volume names may
    be those of another replica), `requests` and `scored` as in `cluster.resources.PodDemand`, `meta` the labels,
    annotations and owner facts that plugins declared. `nbytes`: what it takes with what plugins derive from it
    (measured): most pods are small, but need not be.
    """

    __slots__ = (
        "__weakref__",
        "_compiled",
        "key",
        "meta",
        "nbytes",
        "never_preempts",
        "priority",
        "requests",
        "scheduler_name",
        "scored",
        "spec",
    )

    def __init__(self, key: bytes, spec: PodSpec, requests: Requests, scored: dict[int, int], meta: ShapeMeta) -> None:
        self.key = key
        self.spec = spec
        self.meta = meta
        self.scheduler_name = spec.scheduler_name
        self.priority = spec.priority or 0
        self.never_preempts = spec.preemption_policy == "Never"
        self.requests = requests
        self.scored = scored
        self._compiled: dict[object, Any] = {}
        self.nbytes = (
            SHAPE_BYTES
            + _BYTES_PER_BYTE * max(len(self.key) - _SMALL, 0)
            + _BYTES_PER_RESOURCE * max(len(requests.names) - _FEW_RESOURCES, 0)
            + _BYTES_PER_TERM * _terms(spec)
        )

    def compiled(self, owner: object, build: Callable[[PodShape], T]) -> T:
        """What `owner` (a plugin) derived from this shape; built at the first request, then remembered."""
        found = self._compiled.get(owner)
        if found is None:
            found = self._compiled[owner] = build(self)
        return found


def _terms(spec: PodSpec) -> int:
    """How many terms about other pods a spec has."""
    affinity = spec.affinity
    if affinity is None:
        return 0
    found = (affinity.pod_affinity, affinity.pod_anti_affinity)
    return sum(len(each.required) + len(each.preferred) for each in found if each is not None)


def _anonymous(volume: Volume, names_matter: bool) -> Volume:
    return volume if names_matter else msgspec.structs.replace(volume, name="")


class PodShapes:
    """Interns shapes; one that no pod has any more disappears by itself."""

    __slots__ = ("_encode", "_shapes", "facts", "resource_names")

    def __init__(self, resource_names: ResourceNames, facts: ShapeFacts) -> None:
        self.resource_names = resource_names
        self.facts = facts
        self._encode = msgspec.json.Encoder().encode
        self._shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()

    def intern(self, spec: PodSpec, meta: ObjectMeta) -> PodShape:
        """The shape of a pod. Raises QuantityError if a request cannot be parsed."""
        declared = self.facts.of(meta)
        spec = self.resource_names.read_spec(spec)
        key = self._encode(
            (
                spec.scheduler_name,
                spec.priority or 0,
                spec.preemption_policy,
                spec.containers,
                spec.init_containers,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.overhead,
                spec.resources,
                # An ephemeral volume's claim is named after the volume; other volume names may be random.
                [_anonymous(v, v.ephemeral is not None) for v in spec.volumes if v.matters] if spec.volumes else None,
                spec.resource_claims,
                spec.host_network,
                spec.host_users,
                *declared.key,
            )
        )
        found = self._shapes.get(key)
        if found is None:
            if spec.scheduling_group is not None:
                # Pods of several groups share a shape, and this spec.
                spec = msgspec.structs.replace(spec, scheduling_group=None)
            demand = demand_of(spec, None, self.resource_names)
            found = self._shapes[key] = PodShape(key, spec, demand.requests, demand.scored, declared)
        return found

    def resized(self, shape: PodShape, spec: PodSpec, status: PodStatus, taken: Total = ()) -> Requests:
        """The requests of a running pod whose status reports resources, as all do on newer kubelets; and of a pod whose
        claims to devices take something of the node (`taken`).

        Raises QuantityError.
        """
        resize = status.condition("PodResizePending")
        reported = self._encode(
            (
                [(s.name, s.resources, s.allocated_resources) for s in status.container_statuses if s.resources],
                [(s.name, s.resources, s.allocated_resources) for s in status.init_container_statuses if s.resources],
                status.resources,
                status.allocated_resources,
                resize.reason if resize is not None else None,
            )
        )
        known: Kept[tuple[bytes, Total], Requests] = shape.compiled(_RESIZED, lambda shape: Kept(_RESIZED_BUDGET))
        key = (reported, taken)
        found = known.get(key)
        if found is None:
            names = self.resource_names
            requests = demand_of(names.read_spec(spec), status, names, dict(taken)).requests
            found = known.put(key, shape.requests if requests == shape.requests else requests)
        return found

    def __len__(self) -> int:
        return len(self._shapes)
