"""What plugins read of a pod beyond its spec: declared once, kept compactly, parsed once.

Two kinds of facts:

* *Shape facts*: labels, annotations and the kind of the owner that a verdict depends on. They join the key of the
  pod's shape, so that pods that differ in them never share a verdict.
* *Pod facts*: of a pod that has a node, what a scheduler wrote on it, its allocation (GPUs, CPUs), or what its status
  says: when it was placed, that a container does not start. Accountants and observers read them.

Plugins declare both in their constructors, before the first pod is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import orjson
from msgspec import to_builtins

from koordsched.api import core, podstates
from koordsched.api.decoding import convert
from koordsched.api.meta import ObjectMeta, OwnerReference, controller_of
from koordsched.cluster.kept import Kept
from koordsched.cluster.pod import Pod, References

T = TypeVar("T", bound=Hashable)

_BUDGET = 16 << 20
"""Bytes of distinct values of a fact that pods share; beyond, equal values may be kept twice, as large ones always are.
"""

_TUPLE_BYTES = 150
"""Bytes of a tuple of facts without these, as it is kept."""


class ShapeFacts:
    """The labels, annotations and owner facts that are part of a shape."""

    __slots__ = ("_annotations", "_conditional", "_labels", "_owner_kinds", "_read", "_sealed")

    def __init__(self, read: set[str]) -> None:
        """`read`: the keys of all annotations that plugins read, of whatever objects."""
        self._read = read
        self._labels: dict[str, None] = {}
        self._annotations: dict[str, None] = {}
        self._owner_kinds: frozenset[str] = frozenset()
        self._conditional: dict[str, Callable[[ObjectMeta], bool]] = {}
        self._sealed = False

    def declare_if(self, annotation: str, holds: Callable[[ObjectMeta], bool]) -> None:
        """A plugin reads this annotation of a pod through its shape, but only of pods for which `holds`.

        For an annotation whose value differs for nearly every pod, and is read for few pods.
        """
        self.declare(annotations=[annotation])
        self._conditional[annotation] = holds

    def declare(
        self, *, labels: Iterable[str] = (), annotations: Iterable[str] = (), owner_kinds: Iterable[str] = ()
    ) -> None:
        """A plugin reads these of a pod through its shape; of its owners, whether one is of these kinds.

        Raises RuntimeError for something new once a shape was interned: shapes made before would lack it.
        """
        wanted = self._labels | dict.fromkeys(labels), self._annotations | dict.fromkeys(annotations)
        owners = self._owner_kinds.union(owner_kinds)
        if self._sealed and (*wanted, owners) != (self._labels, self._annotations, self._owner_kinds):
            raise RuntimeError("shape facts must be declared before the first pod is read")
        self._labels, self._annotations = wanted
        self._owner_kinds = owners
        self._read.update(self._annotations)

    def of(self, meta: ObjectMeta) -> ShapeMeta:
        """The declared facts of a pod."""
        self._sealed = True
        if not (self._labels or self._annotations or self._owner_kinds):
            return NO_SHAPE_META
        annotations = {key: meta.annotations[key] for key in self._annotations if key in meta.annotations}
        for key, holds in self._conditional.items():
            if key in annotations and not holds(meta):
                del annotations[key]
        return ShapeMeta(
            {key: meta.labels[key] for key in self._labels if key in meta.labels},
            annotations,
            tuple(sorted(self._owner_kinds.intersection(owner.kind for owner in meta.owner_references)))
            if meta.owner_references
            else (),
        )


class ShapeMeta:
    """The declared facts of one shape: those labels and annotations that its pods carry, and those kinds of owners
    that they have."""

    __slots__ = ("annotations", "labels", "owner_kinds")

    def __init__(self, labels: dict[str, str], annotations: dict[str, str], owner_kinds: tuple[str, ...] = ()) -> None:
        self.labels = labels
        self.annotations = annotations
        self.owner_kinds = owner_kinds

    @property
    def key(self) -> tuple[object, ...]:
        """What joins the key of the shape; empty if the pods carry none of what is declared."""
        if not (self.labels or self.annotations or self.owner_kinds):
            return ()
        return (self.labels, self.annotations, self.owner_kinds)


NO_SHAPE_META = ShapeMeta({}, {})


class PodFact(Generic[T]):
    """A fact of pods that have a node, read from an annotation when the pod is read.

    Equal values are one object, unless they are large. A value must be hashable and immutable; its size is what a pod
    costs beyond eight bytes.
    """

    __slots__ = ("_parse", "annotation", "index", "less", "text", "values")

    def __init__(
        self,
        annotation: str,
        index: int,
        parse: Callable[[str], T | None],
        text: Callable[[T], str],
        less: Callable[[T, Iterable[T]], T | None] | None = None,
    ) -> None:
        self.annotation = annotation
        self.less = less
        """What is left of a value without what others have of it; None for facts of which nothing can be given away."""
        self.text = text
        """The annotation of a value."""
        self.index = index
        self._parse = parse
        self.values: Kept[T, T] = Kept(_BUDGET)

    def of(self, pod: Pod) -> T | None:
        """The pod's value; None if it has none."""
        facts = pod.facts
        found: T | None = facts[self.index] if facts else None  # type: ignore[assignment]  # PodFacts puts T there
        return found

    def among(self, facts: tuple[object, ...]) -> T | None:
        """The value among all facts of a pod."""
        found: T | None = facts[self.index] if facts else None  # type: ignore[assignment]  # PodFacts puts T there
        return found

    def parse(self, text: str) -> T | None:
        """The value of an annotation. Raises whatever the parser does."""
        return self.shared(self._parse(text))

    def shared(self, value: T | None) -> T | None:
        """The one object of this value."""
        if value is None:
            return None
        found = self.values.get(value)
        return found if found is not None else self.values.put(value, value)

    def put(self, facts: tuple[object, ...], value: T | None, count: int) -> tuple[object, ...]:
        """`facts` of a pod (there are `count` kinds of them) with this one replaced; empty if none is left."""
        changed = list(facts or (None,) * count)
        changed[self.index] = self.shared(value)
        return tuple(changed) if value is not None or any(fact is not None for fact in changed) else ()


class StatusFact(PodFact[T]):
    """A fact that the status of a pod says, or annotations beside it. Its name stands where others have theirs."""

    __slots__ = ("annotated", "read", "shown")

    def __init__(
        self,
        name: str,
        index: int,
        read: Callable[[core.Pod], T | None],
        shown: Callable[[T], Mapping[str, Any]],
        annotated: Callable[[T], Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(name, index, self._read, lambda value: orjson.dumps(shown(value)).decode())
        self.read = read
        self.shown = shown
        self.annotated = annotated

    def _read(self, text: str) -> T | None:
        return self.read(core.Pod(status=convert(orjson.loads(text), core.PodStatus)))


class SpecFact(StatusFact[str]):
    """A text of the spec, which the shape does not have. No status says it; `in_spec` is the opposite of `read`."""

    __slots__ = ("in_spec",)

    def __init__(
        self,
        name: str,
        index: int,
        read: Callable[[core.Pod], str | None],
        in_spec: Callable[[str], Mapping[str, Any]],
    ) -> None:
        super().__init__(name, index, read, lambda value: {})
        self.text = str
        self.in_spec = in_spec

    def _read(self, text: str) -> str | None:
        return text


class ReferencesFact(StatusFact[References]):
    """The owner references of pods that have more than that to their controller. No status says them."""

    __slots__ = ()

    def __init__(self, index: int) -> None:
        super().__init__("owner-references", index, _references, lambda value: {})
        self.text = lambda value: orjson.dumps(to_builtins(value)).decode()

    def _read(self, text: str) -> References | None:
        return References(convert(orjson.loads(text), tuple[OwnerReference, ...]))


def _references(wire: core.Pod) -> References | None:
    given = wire.metadata.owner_references
    if not given or (len(given) == 1 and controller_of(wire.metadata) is given[0]):
        return None
    return References(given)


OnMalformed = Callable[[ObjectMeta, str], None]
"""(metadata of the pod, what is wrong with which annotation)."""


def _ignore(meta: ObjectMeta, problem: str) -> None:
    pass


class PodFacts:
    """All declared facts of pods. Pods without any of them keep none."""

    __slots__ = (
        "_facts",
        "_forgotten",
        "_of_annotations",
        "_of_status",
        "_read",
        "_tuples",
        "on_malformed",
        "wire_type",
    )

    def __init__(self, read: set[str]) -> None:
        """`read`: the keys of all annotations that plugins read, of whatever objects."""
        self._read = read
        self._facts: list[PodFact[Any]] = []
        self._of_annotations: list[PodFact[Any]] = []
        self._of_status: list[StatusFact[Any]] = []
        self._tuples: Kept[tuple[object, ...], tuple[object, ...]] = Kept(_BUDGET)
        self._forgotten = 0
        self.on_malformed: OnMalformed = _ignore
        self.wire_type: type[core.Pod] = core.Pod
        """What pods are to be decoded as."""

    def declare(
        self,
        annotation: str,
        parse: Callable[[str], T | None],
        text: Callable[[T], str],
        less: Callable[[T, Iterable[T]], T | None] | None = None,
    ) -> PodFact[T]:
        """A plugin reads this annotation of pods that have a node; `text` is the opposite of `parse`.

        `parse` may raise for malformed text: `on_malformed` is called, and the pod counts as without the fact. `less`
        is for an allocation of which other pods may use parts (as owners do of a reservation's): what is left of it
        without what these have, None if nothing is.
        """
        fact = PodFact(annotation, len(self._facts), parse, text, less)
        self._facts.append(fact)
        self._of_annotations.append(fact)
        self._read.add(annotation)
        return fact

    def declare_status(
        self, name: str, read: Callable[[core.PodStatus], T | None], shown: Callable[[T], Mapping[str, Any]]
    ) -> PodFact[T]:
        """A plugin reads this of the status of pods that have a node.

        `read` gives None wherever it can, for that costs nothing; it may raise, as `parse`. `shown` is the opposite: a
        status, as JSON values, that reads like this.
        """
        return self._declare_status(name, lambda wire: read(wire.status), shown)

    def declare_status_of(
        self,
        name: str,
        read: Callable[[core.Pod], T | None],
        shown: Callable[[T], Mapping[str, Any]],
        annotated: Callable[[T], Mapping[str, str]] | None = None,
    ) -> PodFact[T]:
        """The same for a fact that only some pods have, by their metadata; annotations have to be declared as read.

        `annotated`: the annotations that, beside the status, read like this.
        """
        return self._declare_status(name, read, shown, annotated)

    def declare_states(self, name: str, read: Callable[[podstates.Pod], T | None]) -> PodFact[T]:
        """A plugin reads the states of containers of pods that have a node, as `declare_status`.

        States are decoded only if a plugin asks for them (`wire_type`); where pods come from files they are not.
        """
        self.wire_type = podstates.Pod
        return self._declare_status(
            name, lambda wire: read(wire) if isinstance(wire, podstates.Pod) else None, lambda value: {}
        )

    def declare_references(self) -> None:
        """A plugin reads all owner references of pods that have a node (`Pod.references`)."""
        if not any(isinstance(fact, ReferencesFact) for fact in self._facts):
            fact = ReferencesFact(len(self._facts))
            self._facts.append(fact)
            self._of_status.append(fact)

    def declare_spec(
        self, name: str, read: Callable[[core.Pod], str | None], shown: Callable[[str], Mapping[str, Any]]
    ) -> PodFact[str]:
        """A plugin reads a text of the spec of pods that have a node, which is no part of their shape.

        `read` gives None for pods without it; `shown` is the opposite: parts of a spec, as JSON values.
        """
        fact = SpecFact(name, len(self._facts), read, shown)
        self._facts.append(fact)
        self._of_status.append(fact)
        return fact

    def _declare_status(
        self,
        name: str,
        read: Callable[[core.Pod], T | None],
        shown: Callable[[T], Mapping[str, Any]],
        annotated: Callable[[T], Mapping[str, str]] | None = None,
    ) -> PodFact[T]:
        fact = StatusFact(name, len(self._facts), read, shown, annotated)
        self._facts.append(fact)
        self._of_status.append(fact)
        return fact

    def texts(self, pod: Pod) -> dict[str, str]:
        """The facts of a pod as texts, by annotation or name; their `parse` reads them."""
        return self._texts(pod, self._facts)

    def annotations(self, pod: Pod) -> dict[str, str]:
        """The facts of a pod that are annotations, and the annotations that others were read from."""
        found = self._texts(pod, self._of_annotations)
        for fact in self._of_status:
            if fact.annotated is not None and (value := fact.of(pod)) is not None:
                found.update(fact.annotated(value))
        return found

    @staticmethod
    def _texts(pod: Pod, facts: list[PodFact[Any]]) -> dict[str, str]:
        found = {fact.annotation: (fact.text, fact.of(pod)) for fact in facts} if pod.facts else {}
        return {key: text(value) for key, (text, value) in found.items() if value is not None}

    def status(self, pod: Pod) -> dict[str, Any]:
        """The facts of a pod that its status says, as a status of JSON values; lists are put together."""
        status: dict[str, Any] = {}
        for fact in self._of_status:
            value = fact.of(pod)
            for key, shown in (fact.shown(value) if value is not None else {}).items():
                status[key] = [*status.get(key, ()), *shown] if isinstance(shown, list) else shown
        return status

    def spec(self, pod: Pod) -> dict[str, Any]:
        """The facts of a pod that its spec says, as parts of a spec of JSON values."""
        spec: dict[str, Any] = {}
        for fact in self._of_status:
            if isinstance(fact, SpecFact) and (value := fact.of(pod)) is not None:
                spec.update(fact.in_spec(value))
        return spec

    def __bool__(self) -> bool:
        return bool(self._facts)

    def __iter__(self) -> Iterator[PodFact[Any]]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def of(self, wire: core.Pod) -> tuple[object, ...]:
        """The facts of a pod that has a node, in the order of their declaration; empty if it has none."""
        found = self._annotated(wire.metadata)
        for fact in self._of_status:
            try:
                value = fact.shared(fact.read(wire))
            except Exception as error:
                self.on_malformed(wire.metadata, f"status: {error}")
                continue
            if value is not None:
                found = found or [None] * len(self._facts)
                found[fact.index] = value
        return self.shared(tuple(found)) if any(value is not None for value in found) else ()

    def _annotated(self, meta: ObjectMeta) -> list[object]:
        """The facts that are annotations, None for the others; empty if there are none."""
        annotations = meta.annotations
        if not annotations or not any(fact.annotation in annotations for fact in self._of_annotations):
            return []
        found: list[object] = [None] * len(self._facts)
        for fact in self._of_annotations:
            text = annotations.get(fact.annotation)
            if text is not None:
                try:
                    found[fact.index] = fact.parse(text)
                except Exception as error:  # users write annotations: an error of a parser must only affect this pod
                    self.on_malformed(meta, f"annotation {fact.annotation}: {error}")
        return found

    def shared(self, facts: tuple[object, ...]) -> tuple[object, ...]:
        """The one tuple of these facts, which may be empty."""
        found = self._tuples.get(facts) if facts else facts
        if found is not None:
            return found
        # Values are not measured again: a tuple is kept only as long as all of its values are.
        forgotten = 0
        for fact, value in zip(self._facts, facts, strict=True):
            forgotten += fact.values.forgotten
            if value is not None and value not in fact.values:
                return facts
        if forgotten != self._forgotten:
            self._forgotten = forgotten
            self._tuples.clear()
        return self._tuples.put(facts, facts, _TUPLE_BYTES + 8 * len(facts))
