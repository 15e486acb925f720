"""Requests and usage on their way up a tree (elasticquota spec 3.3, 3.8).

Every function leaves all numbers of the tree as a computation from scratch would have them, and marks stale what
quotas may use where that may have changed. The cost is the depth of the tree, not its size.
"""

from __future__ import annotations

from collections.abc import Iterable

from koordsched.plugins.elasticquota.amounts import Amounts, add_to, difference, larger, take_from, to_units
from koordsched.plugins.elasticquota.tree import Definition, Quota, QuotaTree


def add_request(quota: Quota, amounts: Amounts, *, non_preemptible: bool = False) -> None:
    """Pods of this quota request more."""
    add_to(quota.self_request, amounts)
    if non_preemptible:
        add_to(quota.self_non_preemptible_request, amounts)
        for level in _upwards(quota):
            add_to(level.non_preemptible_request, amounts)
    _requests_changed(quota, amounts)


def remove_request(quota: Quota, amounts: Amounts, *, non_preemptible: bool = False) -> None:
    """Pods of this quota request less; undoes `add_request`."""
    take_from(quota.self_request, amounts)
    if non_preemptible:
        take_from(quota.self_non_preemptible_request, amounts)
        for level in _upwards(quota):
            take_from(level.non_preemptible_request, amounts)
    _requests_changed(quota, {name: -amount for name, amount in amounts.items()})


def add_used(quota: Quota, amounts: Amounts, *, non_preemptible: bool = False) -> None:
    """Pods of this quota have a node now."""
    add_to(quota.self_used, amounts)
    for level in _upwards(quota):
        add_to(level.used, amounts)
    if non_preemptible:
        add_to(quota.self_non_preemptible_used, amounts)
        for level in _upwards(quota):
            add_to(level.non_preemptible_used, amounts)
    if quota.tree.guarantees:
        _allocation_changed(quota, amounts)


def remove_used(quota: Quota, amounts: Amounts, *, non_preemptible: bool = False) -> None:
    """Pods of this quota have a node no more; undoes `add_used`."""
    take_from(quota.self_used, amounts)
    for level in _upwards(quota):
        take_from(level.used, amounts)
    if non_preemptible:
        take_from(quota.self_non_preemptible_used, amounts)
        for level in _upwards(quota):
            take_from(level.non_preemptible_used, amounts)
    if quota.tree.guarantees:
        _allocation_changed(quota, {name: -amount for name, amount in amounts.items()})


def declare(quota: Quota, definition: Definition) -> None:
    """Takes over what is declared of a quota, its place and the amounts of its pods excepted."""
    tree = quota.tree
    if quota.takes_part and quota.max.keys() != definition.max.keys():
        tree.resources.subtract(quota.max.keys())
        tree.resources.update(definition.max.keys())
        _drop_zeros(tree)
        _all_stale(tree.root)
    parent = quota.parent
    if parent is not None:
        _all_stale(parent)
        _withdraw_want(quota, parent)
    for child in quota.children.values():
        child.mark_stale()
    before = dict(quota.limited)
    guaranteed_before = quota.guaranteed
    quota.max, quota.min, quota.weight = definition.max, definition.min, definition.weight
    quota.max_names = frozenset(definition.max)
    quota.lent = definition.lent and not tree.guarantees
    quota.is_parent, quota.is_tree_root, quota.binary = definition.is_parent, definition.is_root, definition.binary
    _limit(quota, {**quota._requested, **quota.min, **quota.limited})
    if tree.guarantees and quota.takes_part:
        _guarantee(quota)
    if parent is not None:
        _register_want(quota, parent)
        _requests_changed(parent, difference(quota.limited, before))
        if tree.guarantees and quota.takes_part:
            _allocation_changed(parent, difference(quota.guaranteed, guaranteed_before))


def attach(quota: Quota, parent: Quota) -> None:
    """Puts a quota, with all below it, under a parent. It must be in no tree, the parent not below it."""
    quota.parent = parent
    parent.children[quota.name] = quota
    parent.forget_order()
    quota.mark_stale()
    _all_stale(parent)
    _register_want(quota, parent)
    for level in _upwards(parent):
        add_to(level.used, quota.used)
        add_to(level.non_preemptible_used, quota.non_preemptible_used)
        add_to(level.non_preemptible_request, quota.non_preemptible_request)
    _requests_changed(parent, quota.limited)
    if quota.tree.guarantees and quota.takes_part:
        _allocation_changed(parent, quota.guaranteed)


def detach(quota: Quota) -> None:
    """Takes a quota, with all below it, out of its tree. Nothing happens if it is in none."""
    parent = quota.parent
    if parent is None:
        return
    _all_stale(parent)
    _withdraw_want(quota, parent)
    quota.parent = None
    del parent.children[quota.name]
    parent.forget_order()
    for level in _upwards(parent):
        take_from(level.used, quota.used)
        take_from(level.non_preemptible_used, quota.non_preemptible_used)
        take_from(level.non_preemptible_request, quota.non_preemptible_request)
    _requests_changed(parent, {name: -amount for name, amount in quota.limited.items()})
    if quota.tree.guarantees and quota.takes_part:
        _allocation_changed(parent, {name: -amount for name, amount in quota.guaranteed.items()})


def join(quota: Quota, tree: QuotaTree) -> None:
    """Makes a detached quota one of a tree; those below it are not taken along."""
    if quota.takes_part:
        quota.tree.resources.subtract(quota.max.keys())
        _drop_zeros(quota.tree)
        _all_stale(quota.tree.root)
        tree.resources.update(quota.max.keys())
        _all_stale(tree.root)
    quota.tree = tree


def leave(quota: Quota) -> None:
    """A detached quota without children is no more."""
    quota.tree.resources.subtract(quota.max.keys())
    _drop_zeros(quota.tree)
    _all_stale(quota.tree.root)


def offer(tree: QuotaTree, available: Amounts) -> None:
    """What the root has to give from now on; may be negative."""
    units = {name: to_units(name, amount) for name, amount in available.items()}
    root = tree.root
    if units == root.runtime_units:
        return
    # Without want in either state nobody notices.
    affected = root.contended or _any_short(root, root.wanted)
    root.runtime_units = units
    if affected or _any_short(root, root.wanted):
        _all_stale(root)


# --- on the way up -----------------------------------------------------------------------------------


def _upwards(quota: Quota | None) -> Iterable[Quota]:
    """The quota and everything above it, the root included."""
    while quota is not None:
        yield quota
        quota = quota.parent


def _requests_changed(quota: Quota | None, delta: Amounts) -> None:
    """`delta` came to the requests below a quota: each level passes on what its max lets through."""
    while quota is not None and delta:
        requested = quota._requested
        add_to(requested, delta)
        if quota.is_root:
            return
        delta = _limit(quota, delta)
        if quota.parent is None:
            return  # in no tree for the moment: what it passes on counts when it is attached
        _want_changed(quota, delta)
        quota = quota.parent


def _limit(quota: Quota, names: Iterable[str]) -> Amounts:
    """Brings `limited` up to date in some resources; returns by how much it changed."""
    requested, limited = quota._requested, quota.limited
    passed: Amounts = {}
    for name in names:
        amount = requested.get(name, 0)
        if not quota.lent and quota.takes_part:
            amount = max(amount, quota.min.get(name, 0))
        cap = quota.max.get(name)
        if cap is not None and amount > cap:
            amount = cap
        before = limited.get(name, 0)
        if amount != before:
            passed[name] = amount - before
            if amount:
                limited[name] = amount
            else:
                del limited[name]
    return passed


def _allocation_changed(quota: Quota | None, delta: Amounts) -> None:
    """`delta` came to what is allocated of a quota: each level passes on what that adds to its guarantee."""
    while quota is not None and quota.takes_part and delta:
        add_to(quota.allocated, delta)
        delta = _guarantee(quota)
        if quota.parent is None:
            return
        _want_changed(quota, delta)
        quota = quota.parent


def _guarantee(quota: Quota) -> Amounts:
    """Brings `guaranteed` up to date; returns by how much it changed."""
    before = quota.guaranteed
    quota.guaranteed = larger(quota.allocated, quota.min)
    return difference(quota.guaranteed, before)


# --- what children want of their parent ---------------------------------------------------------------


def _want_of(quota: Quota, name: str) -> int:
    want = to_units(name, quota.limited.get(name, 0))
    if quota.tree.guarantees:
        want = max(want, to_units(name, quota.guaranteed.get(name, 0)))
    return want


def _want_changed(quota: Quota, names: Iterable[str]) -> None:
    """What a quota wants of its parent may have changed in these resources; marks stale what depends on it."""
    if not quota.takes_part:
        return
    parent = quota.parent
    assert parent is not None, "only asked of quotas in a tree"
    changed: list[str] = []
    for name in names:
        want = _want_of(quota, name)
        before = quota.want.get(name, 0)
        if want != before:
            _set_want(quota, parent, name, before, want)
            changed.append(name)
    if quota.tree.guarantees and names:
        _all_stale(parent)  # a floor may have moved although the want did not
    if not changed:
        return
    quota.mark_stale()
    if not parent.fresh or parent.contended or _any_short(parent, changed):
        _all_stale(parent)


def _set_want(quota: Quota, parent: Quota, name: str, before: int, want: int) -> None:
    if want:
        quota.want[name] = want
    else:
        del quota.want[name]
    parent.wanted[name] += want - before
    if quota.weight.get(name, 0) <= 0:
        parent.starved[name] += (want > 0) - (before > 0)


def _register_want(quota: Quota, parent: Quota) -> None:
    if quota.takes_part:
        for name in {**quota.limited, **quota.guaranteed}:
            if want := _want_of(quota, name):
                _set_want(quota, parent, name, 0, want)


def _withdraw_want(quota: Quota, parent: Quota) -> None:
    """To be called before the weight changes: it decides what was registered."""
    for name, want in list(quota.want.items()):
        _set_want(quota, parent, name, want, 0)


def _any_short(parent: Quota, names: Iterable[str]) -> bool:
    return any(parent.is_short_of(name) for name in names)


def _all_stale(parent: Quota) -> None:
    """The children may get something else now, more for some."""
    parent.tree.shifted = True
    for child in parent.children.values():
        child.mark_stale()


def _drop_zeros(tree: QuotaTree) -> None:
    for name in [name for name, count in tree.resources.items() if count <= 0]:
        del tree.resources[name]
