"""What plugins read of a pod beyond its spec: declared once, kept compactly, parsed once.

Two kinds of facts:

* *Shape facts*: labels, annotations and the kind of the owner that a verdict depends on. They join the key of the
  pod's shape, so that pods that differ in them never share a verdict.
* *Pod facts*: what a scheduler wrote on a pod that has a node, its allocation (GPUs, CPUs). Accountants count by them.

Plugins declare both in their constructors, before the first pod is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

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


class PodFact(Generic[T]):
    """A fact of pods that have a node, read from an annotation when the pod is read.

    Equal values are one object. A value must be hashable and immutable; its size is what a pod costs beyond eight
    bytes.
    """

    __slots__ = ("_index", "_parse", "_values", "annotation", "text")

    def __init__(self, annotation: str, index: int, parse: Callable[[str], T | None], text: Callable[[T], str]) -> None:
        self.annotation = annotation
        self.text = text
        """The annotation of a value."""
        self._index = index
        self._parse = parse
        self._values: dict[T, T] = {}

    def of(self, pod: Pod) -> T | None:
        """The pod's value; None if it has none."""
        facts = pod.facts
        found: T | None = facts[self._index] if facts else None  # type: ignore[assignment]  # PodFacts puts T there
        return found

    def parse(self, text: str) -> T | None:
        """The value of an annotation. Raises whatever the parser does."""
        return self.shared(self._parse(text))

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
        changed[self._index] = self.shared(value)
        return tuple(changed) if any(fact is not None for fact in changed) else ()


OnMalformed = Callable[[ObjectMeta, str], None]
"""(metadata of the pod, what is wrong with which annotation)."""


def _ignore(meta: ObjectMeta, problem: str) -> None:
    pass


class PodFacts:
    """All declared facts of pods. Pods without any of them keep none."""

    __slots__ = ("_facts", "_read", "_tuples", "on_malformed")

    def __init__(self, read: set[str]) -> None:
        """`read`: the keys of all annotations that plugins read, of whatever objects."""
        self._read = read
        self._facts: list[PodFact[Any]] = []
        self._tuples: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.on_malformed: OnMalformed = _ignore

    def declare(self, annotation: str, parse: Callable[[str], T | None], text: Callable[[T], str]) -> PodFact[T]:
        """A plugin reads this annotation of pods that have a node; `text` is the opposite of `parse`.

        `parse` may raise for malformed text: `on_malformed` is called, and the pod counts as without the fact.
        """
        fact = PodFact(annotation, len(self._facts), parse, text)
        self._facts.append(fact)
        self._read.add(annotation)
        return fact

    def annotations(self, pod: Pod) -> dict[str, str]:
        """The facts of a pod as annotations."""
        found = {fact.annotation: (fact.text, fact.of(pod)) for fact in self._facts} if pod.facts else {}
        return {key: text(value) for key, (text, value) in found.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self._facts)

    def __iter__(self) -> Iterator[PodFact[Any]]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def of(self, meta: ObjectMeta) -> tuple[object, ...]:
        """The facts of a pod that has a node, in the order of their declaration; empty if it has none."""
        annotations = meta.annotations
        if not annotations or not any(fact.annotation in annotations for fact in self._facts):
            return ()
        found: list[object] = []
        for fact in self._facts:
            text = annotations.get(fact.annotation)
            value = None
            if text is not None:
                try:
                    value = fact.parse(text)
                except Exception as error:  # users write annotations: whatever a parser trips over harms this pod alone
                    self.on_malformed(meta, f"annotation {fact.annotation}: {error}")
            found.append(value)
        return self.shared(tuple(found)) if any(value is not None for value in found) else ()

    def shared(self, facts: tuple[object, ...]) -> tuple[object, ...]:
        """The one tuple of these facts."""
        if len(self._tuples) >= _VALUES_KEPT:
            self._tuples.clear()
        return self._tuples.setdefault(facts, facts)
