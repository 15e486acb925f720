"""Selectors as requests carry them: label selectors as text or object, field selectors as text, over stored records.

Syntax: apimachinery `pkg/labels/selector.go`, `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from koordsched.api.selectors import SelectorError, ValueTest, is_label_key, is_label_value, value_test
from koordsched.fakecluster.errors import ApiStatusError, bad_request
from koordsched.fakecluster.resources import Resource
from koordsched.fakecluster.store import Record

LabelTest = Callable[[Mapping[str, str]], bool]
RecordTest = Callable[[Record], bool]

_SET_TERM = re.compile(r"(?P<key>[^\s,!=()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s,!=()<>]+)\s*(?P<op>==|!=|=|>|<)\s*(?P<value>[^\s,()]*)")
_EXISTS = re.compile(r"(?P<not>!\s*)?(?P<key>[^\s,!=()]+)")
_SEPARATOR = re.compile(r"\s*(,\s*|$)")
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> tuple[str, ValueTest]:
    if not is_label_key(key):
        raise SelectorError(f"{key[:64]!r} is not a valid label key")
    if operator in ("In", "NotIn"):
        for value in values:
            if not is_label_value(value):
                raise SelectorError(f"{value[:64]!r} is not a valid label value")
    return key, value_test(operator, values)


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> tuple[tuple[str, ValueTest], ...]:
    """The ANDed requirements of `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises SelectorError."""
    found: list[tuple[str, ValueTest]] = []
    at, text = 0, text.strip()
    while at < len(text):
        if matched := _SET_TERM.match(text, at):
            values = tuple(v.strip() for v in matched["values"].split(","))
            found.append(_requirement(matched["key"], _OPERATORS[matched["op"]], values))
        elif matched := _EQUALITY.match(text, at):
            found.append(_requirement(matched["key"], _OPERATORS[matched["op"]], (matched["value"],)))
        elif matched := _EXISTS.match(text, at):
            found.append(_requirement(matched["key"], "DoesNotExist" if matched["not"] else "Exists", ()))
        else:
            raise SelectorError(f"unable to parse requirement at {text[at : at + 64]!r}")
        separator = _SEPARATOR.match(text, matched.end())
        if separator is None:
            raise SelectorError(f"unable to parse requirement at {text[matched.end() : matched.end() + 64]!r}")
        at = separator.end()
    return tuple(found)


def label_test(selector: Any) -> LabelTest | None:
    """The test of a LabelSelector object; None for one that is absent, which selects nothing. Raises SelectorError."""
    if selector is None:
        return None
    requirements = [(k, value_test("In", (v,))) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = str(expression.get("operator"))
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise SelectorError(f"{operator[:64]!r} is not a valid label selector operator")
        requirements.append((str(expression.get("key")), value_test(operator, tuple(expression.get("values") or ()))))
    return lambda labels: all(test(labels.get(key)) for key, test in requirements)


def _field_terms(text: str) -> list[tuple[str, bool, str]]:
    terms = []
    for part in text.split(","):
        if not part.strip():
            continue
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            key, found, value = part.partition(operator)
            if found:
                terms.append((key.strip(), equal, value.strip()))
                break
        else:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    return terms


def compile_selectors(resource: Resource, labels: str, fields: str) -> RecordTest | None:
    """The test that a list or watch puts to records; None = everything. 400 for what cannot be parsed."""
    tests: list[RecordTest] = []
    if labels.strip():
        try:
            requirements = parse_label_selector(labels)
        except SelectorError as problem:
            raise ApiStatusError(400, "BadRequest", f"unable to parse label selector: {problem}") from None
        tests.append(lambda record: all(test(record.labels.get(key)) for key, test in requirements))
    positions = {name: i for i, (name, _) in enumerate(resource.fields)}
    for key, equal, value in _field_terms(fields):
        if key in ("metadata.name", "name"):
            tests.append(_key_test(1, equal, value))
        elif key == "metadata.namespace" and resource.namespaced:
            tests.append(_key_test(0, equal, value))
        elif (place := positions.get(_field_alias(resource, key))) is not None:
            tests.append(_field_test(place, equal, value))
        else:
            raise bad_request(f'field label not supported: "{key}"')
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda record: all(test(record) for test in tests)


def _field_alias(resource: Resource, key: str) -> str:
    """events.k8s.io names the fields of the shared Event storage differently."""
    if resource.group != "events.k8s.io":
        return key
    if key == "reportingController":
        return "reportingComponent"
    return "involvedObject." + key.removeprefix("regarding.") if key.startswith("regarding.") else key


def _key_test(part: int, equal: bool, value: str) -> RecordTest:
    if equal:
        return lambda record: record.key[part] == value
    return lambda record: record.key[part] != value


def _field_test(place: int, equal: bool, value: str) -> RecordTest:
    if equal:
        return lambda record: record.fields[place] == value
    return lambda record: record.fields[place] != value
