"""Label selectors and node selectors (default-plugins spec 3.1)."""

import re

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def _integer(text):
    return int(text) if text is not None and re.fullmatch(r"[+-]?[0-9]+", text) else None


def requirement_matches(requirement, labels):
    """One matchExpressions entry against labels; None if it cannot be parsed."""
    operator, values = requirement["operator"], requirement.get("values") or []
    value = labels.get(requirement["key"])
    if any(not LABEL_VALUE.fullmatch(v) or len(v) > 63 for v in values):
        return None
    if operator in ("In", "NotIn"):
        if not values:
            return None
        return (value in values) == (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return None if values else (value is not None) == (operator == "Exists")
    if operator in ("Gt", "Lt"):
        bound = _integer(values[0]) if len(values) == 1 else None
        if bound is None:
            return None
        number = _integer(value)
        if number is None:
            return False
        return number > bound if operator == "Gt" else number < bound
    return None


def label_selector_matches(selector, labels):
    """metav1.LabelSelector: `{}` matches everything, None nothing."""
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items()) and all(
        requirement_matches(requirement, labels) for requirement in selector.get("matchExpressions") or []
    )


def node_term_matches(term, node):
    """A node selector term: requirements ANDed; empty, or one that fails to parse, matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    return all(requirement_matches(e, labels) for e in expressions) and all(_field(f, node) for f in fields)


def _field(field, node):
    values = field.get("values") or []
    if field["key"] != "metadata.name" or field["operator"] not in ("In", "NotIn") or len(values) != 1:
        return False
    return (node["metadata"]["name"] == values[0]) == (field["operator"] == "In")


def node_selector_matches(selector, node):
    """Terms ORed; an empty list matches nothing."""
    return any(node_term_matches(term, node) for term in selector.get("nodeSelectorTerms") or [])


def required_node_affinity_matches(pod, node):
    """nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    required = node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selector_matches(required, node)


def node_affinity(pod):
    """spec.affinity.nodeAffinity, {} if there is none."""
    return ((pod["spec"].get("affinity") or {}).get("nodeAffinity")) or {}
