"""ElasticQuota objects as the webhooks see them: exact amounts, negative ones included, and parents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from koordsched.api.core import Quantities
from koordsched.api.quantity import QuantityError, nano_value
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, is_binary, text
from koordsched.plugins.elasticquota.kinds import (
    ALLOW_FORCE_UPDATE,
    GUARANTEED,
    IS_PARENT,
    IS_ROOT,
    NAMESPACES,
    PARENT,
    ROOT_QUOTA,
    TREE_ID,
    ElasticQuota,
)


class Refused(ValueError):
    """The request is to be denied with HTTP code 400 and this text."""


def amounts_of(quantities: Quantities, what: str) -> Amounts:
    """Nano-units by resource. Raises Refused, naming `what`, for a text that is not a quantity."""
    amounts: Amounts = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = nano_value(quantity)
        except QuantityError as error:
            raise Refused(f"{what}: {name}: {error}") from error
    return amounts


def amounts_in(annotation: str | None) -> Amounts:
    """The amounts in a JSON annotation; nothing if it is missing or cannot be read."""
    try:
        return amounts_of(msgspec.json.decode(annotation or "{}", type=Quantities | None) or {}, "annotation")
    except (msgspec.MsgspecError, Refused):
        return {}


def canonical(quantities: Quantities) -> dict[str, str]:
    """The quantities as Kubernetes prints them, sorted by name; each keeps its kind of suffix. Raises Refused."""
    amounts = amounts_of(quantities, "quantity")
    return {name: text(name, amounts[name], binary=is_binary(quantities[name])) for name in sorted(amounts)}


def quantity_text(name: str, quantities: Quantities) -> str:
    """One quantity as Kubernetes prints it."""
    return canonical({name: quantities[name]})[name]


def names_in(annotation: str | None) -> tuple[str, ...]:
    """The texts in a JSON array; nothing if it is missing or is something else."""
    try:
        return tuple(msgspec.json.decode(annotation or "[]", type=list[str] | None) or ())
    except msgspec.MsgspecError:
        return ()


@dataclass(frozen=True, slots=True)
class Declared:
    """A quota as it is declared. `parent` is the root quota's name where none is given."""

    name: str
    parent: str
    is_parent: bool
    is_root: bool
    forced: bool
    tree_id: str
    max: Amounts
    min: Amounts
    guaranteed: Amounts
    namespaces: tuple[str, ...]

    @classmethod
    def of(cls, quota: ElasticQuota) -> Declared:
        """Reads an object. Raises Refused for quantities that are none."""
        meta, labels = quota.metadata, quota.metadata.labels
        return cls(
            name=meta.name,
            parent=labels.get(PARENT) or ROOT_QUOTA,
            is_parent=labels.get(IS_PARENT) == "true",
            is_root=labels.get(IS_ROOT) == "true",
            forced=labels.get(ALLOW_FORCE_UPDATE) == "true",
            tree_id=labels.get(TREE_ID, ""),
            max=amounts_of(quota.spec.max, f"{meta.name} quota.Spec.Max"),
            min=amounts_of(quota.spec.min, f"{meta.name} quota.Spec.Min"),
            guaranteed=amounts_in(meta.annotations.get(GUARANTEED)),
            namespaces=names_in(meta.annotations.get(NAMESPACES)),
        )


class DeclaredQuotas:
    """All quotas there are, by name. Of several objects with one name the first counts; unreadable ones do not."""

    def __init__(self, objects: Iterable[ElasticQuota] = ()) -> None:
        self.by_name: dict[str, Declared] = {}
        self.objects: dict[str, ElasticQuota] = {}
        self._children: dict[str, dict[str, Declared]] = {}
        self._namespaces: dict[str, str] = {}
        for quota in objects:
            self._add(quota)

    def _add(self, quota: ElasticQuota) -> None:
        if quota.metadata.name in self.by_name:
            return
        try:
            declared = Declared.of(quota)
        except Refused:
            return
        self.by_name[declared.name] = declared
        self.objects[declared.name] = quota
        if declared.name != ROOT_QUOTA:
            self._children.setdefault(declared.parent, {})[declared.name] = declared
        for namespace in declared.namespaces:
            self._namespaces.setdefault(namespace, declared.name)

    def children(self, name: str) -> Mapping[str, Declared]:
        """The quotas whose parent has this name."""
        return self._children.get(name, {})

    def bound_to(self, namespace: str) -> str | None:
        """The quota that lists the namespace in its annotation."""
        return self._namespaces.get(namespace)

    def of_pod(self, namespace: str, labelled: str) -> Declared | None:
        """The quota of a pod with this quota label ("" for none): by label, by name of the namespace, by annotation."""
        if labelled:
            return self.by_name.get(labelled)
        named = self.by_name.get(namespace)
        return named if named is not None else self.by_name.get(self._namespaces.get(namespace, ""))
