"""What plugins read of a pod beyond its spec: declared once, kept compactly, parsed once.

Three kinds of facts:

* *Shape facts*: labels, annotations and the kind of the owner that a verdict depends on. They join the key of the
  pod's shape, so that pods that differ in them never share a verdict.
* *Pod facts*: what a scheduler wrote on a pod that has a node, its allocation (GPUs, CPUs). Accountants count by them.
* *Status facts*: what a kubelet reports of a pod that has a node: a container that does not start. Observers read them.

Plugins declare them in their constructors, before the first pod is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from koordsched.api import core, podstates
from koordsched.api.meta import ObjectMeta, controller_of
from koordsched.cluster.pod import Pod

T = TypeVar("T", bound=Hashable)

_VALUES_KEPT = 1 << 16
"""Distinct values of a fact that pods share; beyond, equal values may be kept twice."""


class ShapeFacts:
    """The labels, annotations and owner facts that are part of a shape."""

    __slots__ = ("_annotations", "_labels", "_owner", "_read", "_sealed")

    def __init__(self, read: set[str]) -> None:
        """`read`: the keys of all annotations that plugins read, of whatever objects."""
        self._read = read
        self._labels: dict[str, None] = {}
        self._annotations: dict[str, None] = {}
        self._owner = False
        self._sealed = False

    def declare(self, *, labels: Iterable[str] = (), annotations: Iterable[str] = (), owner_kind: bool = False) -> None:
        """A plugin reads these of a pod through its shape.

        Raises RuntimeError for something new once a shape was interned: shapes made before would lack it.
        """
        wanted = self._labels | dict.fromkeys(labels), self._annotations | dict.fromkeys(annotations)
        owner = self._owner or owner_kind
        if self._sealed and (*wanted, owner) != (self._labels, self._annotations, self._owner):
            raise RuntimeError("shape facts must be declared before the first pod is read")
        self._labels, self._annotations = wanted
        self._owner = owner
        self._read.update(self._annotations)

    def of(self, meta: ObjectMeta) -> ShapeMeta:
        """The declared facts of a pod."""
        self._sealed = True
        if not (self._labels or self._annotations or self._owner):
            return NO_SHAPE_META
        owner = controller_of(meta) if self._owner else None
        return ShapeMeta(
            {key: meta.labels[key] for key in self._labels if key in meta.labels},
            {key: meta.annotations[key] for key in self._annotations if key in meta.annotations},
            owner.kind if owner is not None else "",
        )


class ShapeMeta:
    """The declared facts of one shape: those labels and annotations that its pods carry, and their controller's
    kind."""

    __slots__ = ("annotations", "labels", "owner_kind")

    def __init__(self, labels: dict[str, str], annotations: dict[str, str], owner_kind: str = "") -> None:
        self.labels = labels
        self.annotations = annotations
        self.owner_kind = owner_kind

    @property
    def key(self) -> tuple[object, ...]:
        """What joins the key of the shape; empty if the pods carry none of what is declared."""
        if not (self.labels or self.annotations or self.owner_kind):
            return ()
        return (self.labels, self.annotations, self.owner_kind)


NO_SHAPE_META = ShapeMeta({}, {})


class _Fact(Generic[T]):
    """A fact of pods that have a node, kept in the pod.

    Equal values are one object. A value must be hashable and immutable; its size is what a pod costs beyond eight
    bytes.
    """

    __slots__ = ("_values", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self._values: dict[T, T] = {}

    def of(self, pod: Pod) -> T | None:
        """The pod's value; None if it has none."""
        facts = pod.facts
        found: T | None = facts[self.index] if facts else None  # type: ignore[assignment]  # PodFacts puts T there
        return found

    def shared(self, value: T | None) -> T | None:
        """The one object of this value."""
        if value is None:
            return None
        if len(self._values) >= _VALUES_KEPT:
            self._values.clear()
        return self._values.setdefault(value, value)

    def put(self, facts: tuple[object, ...], value: T | None, count: int) -> tuple[object, ...]:
        """`facts` of a pod (there are `count` kinds of them) with this one replaced; empty if none is left."""
        changed = list(facts or (None,) * count)
        changed[self.index] = self.shared(value)
        return tuple(changed) if any(fact is not None for fact in changed) else ()


class PodFact(_Fact[T]):
    """A fact that is read from an annotation when the pod is read."""

    __slots__ = ("_parse", "annotation", "text")

    def __init__(self, annotation: str, index: int, parse: Callable[[str], T | None], text: Callable[[T], str]) -> None:
        super().__init__(index)
        self.annotation = annotation
        self.text = text
        """The annotation of a value."""
        self._parse = parse

    def parse(self, text: str) -> T | None:
        """The value of an annotation. Raises whatever the parser does."""
        return self.shared(self._parse(text))


class StatusFact(_Fact[T]):
    """A fact that is read from the status when the pod is read."""

    __slots__ = ("_read",)

    def __init__(self, index: int, read: Callable[[podstates.Pod], T | None]) -> None:
        super().__init__(index)
        self._read = read

    def read(self, wire: podstates.Pod) -> T | None:
        """The value of a pod. Raises whatever the reader does."""
        return self.shared(self._read(wire))


OnMalformed = Callable[[ObjectMeta, str], None]
"""(metadata of the pod, what is wrong with which annotation)."""


def _ignore(meta: ObjectMeta, problem: str) -> None:
    pass


class PodFacts:
    """All declared facts of pods. Pods without any of them keep none."""

    __slots__ = ("_facts", "_read", "_statuses", "_tuples", "on_malformed")

    def __init__(self, read: set[str]) -> None:
        """`read`: the keys of all annotations that plugins read, of whatever objects."""
        self._read = read
        self._facts: list[PodFact[Any]] = []
        self._statuses: list[StatusFact[Any]] = []
        self._tuples: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.on_malformed: OnMalformed = _ignore

    def declare(self, annotation: str, parse: Callable[[str], T | None], text: Callable[[T], str]) -> PodFact[T]:
        """A plugin reads this annotation of pods that have a node; `text` is the opposite of `parse`.

        `parse` may raise for malformed text: `on_malformed` is called, and the pod counts as without the fact.
        """
        fact = PodFact(annotation, len(self), parse, text)
        self._facts.append(fact)
        self._read.add(annotation)
        return fact

    def declare_status(self, read: Callable[[podstates.Pod], T | None]) -> StatusFact[T]:
        """A plugin reads the states of containers of pods that have a node.

        `read` should return None wherever there is nothing unusual: such pods keep nothing. It may raise, as `parse`.
        States are decoded only if a plugin asks for them (`wire_type`); where pods come from files they are not.
        """
        fact = StatusFact(len(self), read)
        self._statuses.append(fact)
        return fact

    @property
    def wire_type(self) -> type[core.Pod]:
        """What pods are to be decoded as."""
        return podstates.Pod if self._statuses else core.Pod

    def annotations(self, pod: Pod) -> dict[str, str]:
        """The facts of a pod as annotations; what its status says is none."""
        found = {fact.annotation: (fact.text, fact.of(pod)) for fact in self._facts} if pod.facts else {}
        return {key: text(value) for key, (text, value) in found.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self._facts or self._statuses)

    def __iter__(self) -> Iterator[PodFact[Any]]:
        """Those that are annotations."""
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts) + len(self._statuses)

    def of(self, wire: core.Pod) -> tuple[object, ...]:
        """The facts of a pod that has a node, in the order of their declaration; empty if it has none."""
        found: list[object] | None = None
        meta = wire.metadata
        annotations = meta.annotations
        if annotations:
            for fact in self._facts:
                text = annotations.get(fact.annotation)
                if text is None:
                    continue
                try:
                    value = fact.parse(text)
                except Exception as error:  # users write annotations: whatever a parser trips over harms this pod alone
                    self.on_malformed(meta, f"annotation {fact.annotation}: {error}")
                    continue
                found = self._put(found, fact, value)
        if self._statuses and isinstance(wire, podstates.Pod):
            for status in self._statuses:
                try:
                    value = status.read(wire)
                except Exception as error:
                    self.on_malformed(meta, f"status: {error}")
                    continue
                found = self._put(found, status, value)
        return self.shared(tuple(found)) if found is not None else ()

    def _put(self, found: list[object] | None, fact: _Fact[Any], value: object) -> list[object] | None:
        if value is not None:
            found = found or [None] * len(self)
            found[fact.index] = value
        return found

    def shared(self, facts: tuple[object, ...]) -> tuple[object, ...]:
        """The one tuple of these facts."""
        if len(self._tuples) >= _VALUES_KEPT:
            self._tuples.clear()
        return self._tuples.setdefault(facts, facts)
