"""The quota trees as a value: what each quota may use, requests and uses, and the loans between quotas.

Amounts are texts as Kubernetes prints them. The schema is stable; it is documented in docs/elastic-quota.md.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from koordsched.framework.declaration import finished
from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, take_from, text, texts, to_units, unit
from koordsched.plugins.elasticquota.arithmetic.tree import Quota, QuotaTree
from koordsched.plugins.elasticquota.books import QuotaBooks
from koordsched.plugins.elasticquota.reports.loans import Position, loans

T = TypeVar("T")

UNBOUNDED = 10**15 * 10**9
"""A max of this many units or more counts as no bound."""


class LoanReport(msgspec.Struct, rename="camel"):
    """So much of a resource is another quota's min; `quota` is "" for what belongs to no quota's min."""

    quota: str
    amount: str


class ResourceReport(msgspec.Struct, rename="camel"):
    """One resource of a quota.

    `max` is "" if it is as good as unbounded; `runtime` is "" for quotas that have none (root, default, system).
    `borrows`: what is used beyond min, up to max, and whose it is; `lends`: what of min others use. In proportion,
    rounded down. `above_max`: what is used beyond max, "" if nothing: max was lowered, or quotas below got their min.
    """

    resource: str
    min: str
    max: str
    runtime: str
    request: str
    used: str
    borrows: list[LoanReport]
    lends: list[LoanReport]
    above_max: str = ""


class QuotaReport(msgspec.Struct, rename="camel"):
    """One quota and those below it, by name. `pods`: its own; `running`: those of them that have a node."""

    name: str
    namespace: str
    is_parent: bool
    lent: bool
    pods: int
    running: int
    resources: list[ResourceReport]
    problems: list[str]
    children: list[QuotaReport]


class TreeReport(msgspec.Struct, rename="camel"):
    """One tree; the default one has the id "". `total`: what it distributes, default and system quota taken off."""

    id: str
    total: dict[str, str]
    quotas: list[QuotaReport]


class Report(msgspec.Struct, rename="camel"):
    """All trees. `unused`: objects that are in none of them, with what is wrong with them. `unknown`: names that pods
    carry and no quota has, with the number of pods."""

    trees: list[TreeReport]
    unused: dict[str, list[str]]
    unknown: dict[str, int]


def report(books: QuotaBooks) -> Report:
    """All of it, as it is now."""
    return finished(reporting(books))


Steps = Generator[None, None, T]
"""Work that may be interrupted at every yield, and its result."""


def reporting(books: QuotaBooks) -> Steps[Report]:
    """The report in steps, so that other tasks run; what is reported last may be newer than what came first."""
    problems = books.validation_errors()
    trees = []
    for _, tree in sorted(books.trees.trees.items()):
        one = yield from _tree(books, tree, problems)
        trees.append(one)
    shown = {(quota.namespace, quota.name) for tree in trees for quota in _all(tree.quotas)}
    unused = {f"{key[0]}/{key[1]}": list(texts) for key, texts in sorted(problems.items()) if key not in shown}
    return Report(trees, unused, dict(sorted(books.unknown_names().items())))


Problems = dict[tuple[str, str], tuple[str, ...]]


def _tree(books: QuotaBooks, tree: QuotaTree, problems: Problems) -> Steps[TreeReport]:
    quotas = yield from _children(books, tree.root, problems)
    return TreeReport(tree.id, texts(_distributed(tree)), quotas)


def _distributed(tree: QuotaTree) -> Amounts:
    """What the topmost quotas share: the total without what default and system quota use (elasticquota spec 3.4)."""
    available = dict(tree.total)
    for quota in tree.root.children.values():
        if not quota.takes_part:
            take_from(available, quota.used)
    return available


def _children(books: QuotaBooks, parent: Quota, problems: Problems) -> Steps[list[QuotaReport]]:
    children = [child for _, child in sorted(parent.children.items())]
    resources: dict[str, list[ResourceReport]] = {child.name: [] for child in children}
    for name in sorted({name for child in children for name in child.max}):
        for child, line in _lines(parent, [child for child in children if name in child.max], name):
            resources[child.name].append(line)
        yield
    found = []
    for child in children:
        one = yield from _quota(books, child, resources[child.name], problems)
        found.append(one)
    return found


def _quota(books: QuotaBooks, quota: Quota, resources: list[ResourceReport], problems: Problems) -> Steps[QuotaReport]:
    objects = books.objects(quota.name)
    namespace = objects[0].metadata.namespace if objects else ""
    pods = running = 0
    for member in books.members(quota):
        pods += 1
        running += member.assigned
    yield
    return QuotaReport(
        quota.name,
        namespace,
        quota.is_parent,
        quota.lent,
        pods,
        running,
        resources,
        list(problems.get((namespace, quota.name), ())),
        (yield from _children(books, quota, problems)),
    )


def _lines(parent: Quota, children: list[Quota], name: str) -> list[tuple[Quota, ResourceReport]]:
    sharing = [child for child in children if child.takes_part]
    runtimes = {child.name: child.runtime.get(name) for child in sharing}
    positions = {
        child.name: Position(
            to_units(name, child.min.get(name, 0)), to_units(name, min(child.used.get(name, 0), child.max[name]))
        )
        for child in sharing
    }
    shared = _distributed(parent.tree) if parent.is_root else parent.runtime
    lent = loans(positions, shared.get(name, 0) // unit(name))

    def shown(amount: int) -> str:
        return text(name, amount)

    lines = []
    for child in children:
        runtime = runtimes.get(child.name)
        lines.append(
            (
                child,
                ResourceReport(
                    name,
                    min=shown(child.min.get(name, 0)),
                    max=shown(child.max[name]) if child.max[name] < UNBOUNDED else "",
                    runtime="" if runtime is None else shown(runtime),
                    request=shown(child.request.get(name, 0)),
                    used=shown(child.used.get(name, 0)),
                    borrows=[
                        LoanReport(loan.lender, shown(loan.amount * unit(name)))
                        for loan in lent
                        if loan.borrower == child.name
                    ],
                    lends=[
                        LoanReport(loan.borrower, shown(loan.amount * unit(name)))
                        for loan in lent
                        if loan.lender == child.name
                    ],
                    above_max=shown(excess) if (excess := child.used.get(name, 0) - child.max[name]) > 0 else "",
                ),
            )
        )
    return lines


def _all(quotas: list[QuotaReport]) -> list[QuotaReport]:
    return [one for quota in quotas for one in (quota, *_all(quota.children))]
