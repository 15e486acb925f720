"""ElasticQuota objects as quotas can be computed from them, and what is wrong with them.

Source: elasticquota spec 2.1 to 2.3. Nothing in an object makes it unusable: an amount that cannot be read counts as
zero, a weight or list of namespaces that cannot be read as absent.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, is_binary, parse, renamed, text
from koordsched.plugins.elasticquota.arithmetic.quota import Definition


@dataclass(frozen=True, slots=True)
class Reading:
    """What an object says: the definition, the namespaces whose pods belong to it, and validation errors."""

    definition: Definition
    namespaces: frozenset[str]
    problems: tuple[str, ...]


def read(obj: api.ElasticQuota, *, multiple_trees: bool) -> Reading:
    """Reads an object; without `multiple_trees` (gate MultiQuotaTree) everything is in the default tree."""
    labels = obj.metadata.labels
    problems: list[str] = []
    most = _amounts(obj.spec.max, "spec.max", problems)
    least = _amounts(obj.spec.min, "spec.min", problems)
    for name in sorted(least):
        if name not in most:
            problems.append(f"spec.min: {name} is not in spec.max")
        elif least[name] > most[name]:
            shown, bound = text(name, least[name]), text(name, most[name])
            problems.append(f"spec.min: {name} {shown} is more than max {bound}, and counts as that")
            least[name] = most[name]
    weight = _annotated(obj, api.SHARED_WEIGHT, problems)
    if weight is None or not any(weight.values()):
        weight = most
    total = _annotated(obj, api.TOTAL_RESOURCE, problems) if multiple_trees else None
    definition = Definition(
        name=obj.metadata.name,
        max=most,
        min=least,
        weight=weight,
        parent=labels.get(api.PARENT, ""),
        tree_id=labels.get(api.TREE_ID, "") if multiple_trees else "",
        is_parent=labels.get(api.IS_PARENT) == "true",
        lent=labels.get(api.ALLOW_LENT_RESOURCE) != "false",
        is_root=multiple_trees and labels.get(api.IS_ROOT) == "true",
        total=total,
        ignore_default_tree=labels.get(api.IGNORE_DEFAULT_TREE) == "true",
        binary=frozenset(name for name, quantity in renamed_texts(obj).items() if is_binary(quantity)),
    )
    namespaces = _namespaces(obj, problems)
    if obj.metadata.name == api.ROOT_QUOTA and namespaces:
        problems.append(f"annotation {api.NAMESPACES} is ignored: no pods can be in {api.ROOT_QUOTA}")
        namespaces = frozenset()
    return Reading(definition, namespaces, tuple(problems))


def renamed_texts(obj: api.ElasticQuota) -> dict[str, object]:
    """spec.max as written, under the names that count."""
    names = renamed({name: index for index, name in enumerate(obj.spec.max)})
    written = list(obj.spec.max.values())
    return {name: written[index] for name, index in names.items()}


def _amounts(quantities: dict[str, str | int | float], where: str, problems: list[str]) -> Amounts:
    amounts, wrong = parse(quantities)
    problems.extend(f"{where}: {problem}, and counts as 0" for problem in wrong)
    return renamed(amounts)


def _annotated(obj: api.ElasticQuota, key: str, problems: list[str]) -> Amounts | None:
    """A JSON object of quantities in an annotation; None if there is none that can be read."""
    written = obj.metadata.annotations.get(key)
    if not written:
        return None
    try:
        value = orjson.loads(written)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        problems.append(f"annotation {key} cannot be read and is ignored: {error}")
        return None
    amounts, wrong = parse(value)
    if wrong:
        problems.append(f"annotation {key} cannot be read and is ignored: {'; '.join(wrong)}")
        return None
    return renamed(amounts)


def _namespaces(obj: api.ElasticQuota, problems: list[str]) -> frozenset[str]:
    written = obj.metadata.annotations.get(api.NAMESPACES)
    if not written:
        return frozenset()
    try:
        value = orjson.loads(written)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("not a JSON array of strings")
    except ValueError as error:
        problems.append(f"annotation {api.NAMESPACES} cannot be read and is ignored: {error}")
        return frozenset()
    return frozenset(value)
