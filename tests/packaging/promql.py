"""PromQL: what an expression reads, which labels its result has, and whether both can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    UnaryExpr,
    VectorSelector,
)

Series = Mapping[str, list[dict[str, str]]]
"""Name -> the labels of each of its series."""

OF_THE_TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus adds when it scrapes."""
OF_LEADERS = "leader_election_master_status"
BY_PROMETHEUS = "up"
"""The one series that no target exposes."""


class Wrong(Exception):
    """An expression that cannot work."""


def labels_of(text: str, series: Series) -> frozenset[str]:
    """The labels that the result has. Raises Wrong for what does not parse, is not exposed, or has no such label."""
    try:
        return _labels(promql_parser.parse(text), series)
    except ValueError as error:
        raise Wrong(f"{text}: {error}") from error


def selectors(text: str) -> Iterator[tuple[str, str, str]]:
    """(metric, label, value) of every value that an expression asks for; alternatives of a pattern one by one."""
    for expression in _all(promql_parser.parse(text)):
        if isinstance(expression, VectorSelector):
            for matcher in expression.matchers.matchers:
                values = matcher.value.split("|") if matcher.op == MatchOp.Re else [matcher.value]
                yield from ((expression.name or "", matcher.name, value) for value in values)


def of_all_replicas(text: str) -> set[str]:
    """The metrics that are read of every replica, not only of those that do not say that another one leads."""
    return {expression.name for expression in _read_of_all(promql_parser.parse(text))}


def _read_of_all(expression: Any) -> Iterator[Any]:
    if isinstance(expression, VectorSelector):
        yield expression
    elif not isinstance(expression, BinaryExpr) or not _leaves_out_standbys(expression):
        for child in _children(expression):
            yield from _read_of_all(child)


def _leaves_out_standbys(expression: Any) -> bool:
    """Whether it is `... unless on (job, instance) (leader_election_master_status{...} == 0)`, of one job."""
    matching = expression.modifier.matching if expression.modifier is not None else None
    if str(expression.op) != "unless" or matching is None or set(matching.labels) != OF_THE_TARGET:
        return False
    if matching.type != LabelModifierType.Include or not isinstance(expression.rhs, ParenExpr):
        return False
    match expression.rhs.expr:
        case BinaryExpr(op=op, lhs=VectorSelector(name=name) as leaders, rhs=NumberLiteral(val=0.0)):
            jobs = {
                _job(selector) for selector in [leaders, *_all(expression.lhs)] if isinstance(selector, VectorSelector)
            }
            return str(op) == "==" and name == OF_LEADERS and len(jobs) == 1
    return False


def _job(selector: Any) -> str | None:
    return next((matcher.value for matcher in selector.matchers.matchers if matcher.name == "job"), None)


def _children(expression: Any) -> list[Any]:
    match expression:
        case MatrixSelector():
            return [expression.vector_selector]
        case BinaryExpr():
            return [expression.lhs, expression.rhs]
        case Call():
            return list(expression.args)
        case AggregateExpr() | ParenExpr() | UnaryExpr():
            return [expression.expr]
        case VectorSelector() | NumberLiteral() | StringLiteral():
            return []
    raise Wrong(f"nothing is known about {type(expression).__name__}")


def _all(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _children(expression):
        yield from _all(child)


def _labels(expression: Any, series: Series) -> frozenset[str]:
    inner = [_labels(child, series) for child in _children(expression)]
    match expression:
        case VectorSelector():
            return _of_selector(expression, series)
        case AggregateExpr():
            modifier = expression.modifier
            named = frozenset(modifier.labels) if modifier is not None else frozenset()
            if missing := named - inner[0]:
                raise Wrong(f"{expression.prettify()}: there is no label {', '.join(sorted(missing))}")
            if modifier is not None and modifier.type == AggModifierType.Without:
                return inner[0] - named
            # topk and bottomk keep whole series.
            return inner[0] if str(expression.op) in ("topk", "bottomk") else named
        case Call():
            return frozenset().union(*inner) - ({"le"} if expression.func.name == "histogram_quantile" else set())
        case BinaryExpr():
            left, right = inner
            matching = expression.modifier.matching if expression.modifier is not None else None
            if matching is not None and matching.type == LabelModifierType.Include:
                for missing in map(frozenset(matching.labels).difference, inner):
                    if missing:
                        raise Wrong(
                            f"{expression.prettify()}: there is no label {', '.join(sorted(missing))} on one side"
                        )
            if isinstance(expression.lhs, NumberLiteral):
                return right
            # A side without labels, such as vector(0), stands in for the other.
            return left if left else right if str(expression.op) == "or" else left
    return inner[0] if inner else frozenset()


def _of_selector(selector: Any, series: Series) -> frozenset[str]:
    if selector.name == BY_PROMETHEUS:
        return OF_THE_TARGET
    if selector.name not in series:
        raise Wrong(f"nobody exposes {selector.name}")
    known = OF_THE_TARGET.union(*series[selector.name])
    if missing := {matcher.name for matcher in selector.matchers.matchers} - known:
        raise Wrong(f"{selector.name} has no label {', '.join(sorted(missing))}")
    return known
