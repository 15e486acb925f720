"""Node selectors in the configuration: what does not parse, with paths and texts of component-helpers `nodeaffinity`.

Empty terms, and preferences of weight 0, are not looked at, as upstream.
"""

import re
from collections.abc import Sequence

from koordsched.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm
from koordsched.config.errors import invalid, unsupported
from koordsched.config.qualified_names import label_value_errors, qualified_name_errors

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)


def node_selector_errors(selector: NodeSelector, path: str) -> list[str]:
    terms = enumerate(selector.node_selector_terms)
    return [complaint for i, term in terms for complaint in _term(term, f"{path}.nodeSelectorTerms[{i}]")]


def preferred_terms_errors(terms: Sequence[PreferredSchedulingTerm], path: str) -> list[str]:
    counted = [(i, term.preference) for i, term in enumerate(terms) if term.weight]
    return [complaint for i, term in counted for complaint in _term(term, f"{path}[{i}]")]


def _term(term: NodeSelectorTerm, path: str) -> list[str]:
    complaints = []
    for i, requirement in enumerate(term.match_expressions):
        complaints += _expression(requirement, f"{path}.matchExpressions[{i}]")
    for i, requirement in enumerate(term.match_fields):
        complaints += _field(requirement, f"{path}.matchFields[{i}]")
    return complaints


def _expression(requirement: NodeSelectorRequirement, path: str) -> list[str]:
    operator, values = requirement.operator, requirement.values
    if operator not in _OPERATORS:
        return [unsupported(f"{path}.operator", operator, _OPERATORS)]
    complaints = []
    if key_errors := qualified_name_errors(requirement.key):
        complaints.append(invalid(f"{path}.key", requirement.key, "; ".join(key_errors)))
    place = f"{path}.values"
    if operator in ("In", "NotIn") and not values:
        complaints.append(invalid(place, values or None, "for 'in', 'notin' operators, values set can't be empty"))
    elif operator in ("Exists", "DoesNotExist") and values:
        complaints.append(invalid(place, values, "values set must be empty for exists and does not exist"))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "for 'Gt', 'Lt' operators, exactly one value is required"
            complaints.append(invalid(place, values or None, detail))
        for i, value in enumerate(values):
            if not _is_int64(value):
                detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                complaints.append(invalid(f"{place}[{i}]", value, detail))
    for i, value in enumerate(values):
        if value_errors := label_value_errors(value):
            complaints.append(invalid(f"{place}[{i}]", value, "; ".join(value_errors)))
    return complaints


def _field(requirement: NodeSelectorRequirement, path: str) -> list[str]:
    if requirement.operator not in _FIELD_OPERATORS:
        return [unsupported(f"{path}.operator", requirement.operator, _FIELD_OPERATORS)]
    if len(requirement.values) != 1:
        return [invalid(f"{path}.values", requirement.values or None, "must have one element")]
    return []


def _is_int64(text: str) -> bool:
    return len(text) < 100 and bool(_INTEGER.fullmatch(text)) and -(1 << 63) <= int(text) < 1 << 63
