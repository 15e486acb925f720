"""Requests and usage on their way up a tree (elasticquota spec 3.3, 3.8).

Every function leaves all numbers of the tree, once it is settled, as a computation from scratch would have them, and
takes away what was worked out (`Quota.fresh`) where it may not hold any more. A pod is a number in a tally first; the
cost of settling is the depth of the tree per tally, not its size, and not the number of pods.
"""

from __future__ import annotations

from koordsched.plugins.elasticquota.arithmetic.amounts import Amounts, add_to, difference, larger, take_from, unit
from koordsched.plugins.elasticquota.arithmetic.quota import Definition, Quota
from koordsched.plugins.elasticquota.arithmetic.tally import Tally
from koordsched.plugins.elasticquota.arithmetic.timing import ENTER_REQUESTS, ENTER_USAGE
from koordsched.plugins.elasticquota.arithmetic.tree import QuotaTree

# --- pods ---------------------------------------------------------------------------------------------


def ask(tally: Tally, count: int) -> None:
    """So many pods more (fewer, if negative) request what the tally says."""
    tally.asked += count
    tree = tally.quota.tree
    tree.unsettled[tally] = None
    if not tree.waits:
        tree.settle()
    elif count > 0:
        arrived = tree.arrived
        for name, amount in tally.amounts.items():
            arrived[name] = arrived.get(name, 0) + amount * count


def place(tally: Tally, count: int) -> None:
    """So many of them more (fewer, if negative) have a node now."""
    tally.placed += count
    quota = tally.quota
    tree = quota.tree
    tree.unsettled[tally] = None
    if not tree.waits:
        tree.settle()
    elif count > 0 and not quota.takes_part:
        # What the default and the system quota use, others are not offered.
        arrived = tree.arrived
        for name, amount in tally.amounts.items():
            arrived[name] = arrived.get(name, 0) + amount * count


def enter(tally: Tally) -> None:
    """Takes what the quotas do not know yet of a tally to its quota, and to those above."""
    asked, placed = tally.asked - tally.counted_asked, tally.placed - tally.counted_placed
    tally.counted_asked, tally.counted_placed = tally.asked, tally.placed
    tree = tally.quota.tree
    if asked:
        with tree.timed(ENTER_REQUESTS):
            _request(tally.quota, _times(tally.amounts, asked), tally.non_preemptible)
    if placed:
        with tree.timed(ENTER_USAGE):
            _use(tally.quota, _times(tally.amounts, placed), tally.non_preemptible)


def _request(quota: Quota, delta: Amounts, non_preemptible: bool) -> None:
    if quota._requested is not quota._self_request:
        add_to(quota._self_request, delta)
    _pass_up(quota, delta)
    if non_preemptible:
        add_to(quota._self_non_preemptible_request, delta)
        for level in quota.lineage:
            add_to(level._non_preemptible_request, delta)


def _use(quota: Quota, delta: Amounts, non_preemptible: bool) -> None:
    if quota._used is not quota._self_used:
        add_to(quota._self_used, delta)
    for level in quota.lineage:
        add_to(level._used, delta)
        if quota.tree.unvetted:
            _look_for_overdraft(level)
    if non_preemptible:
        add_to(quota._self_non_preemptible_used, delta)
        for level in quota.lineage:
            add_to(level._non_preemptible_used, delta)
    if quota.tree.guarantees:
        _allocate(quota, delta)


# --- quotas -------------------------------------------------------------------------------------------


def declare(quota: Quota, definition: Definition) -> None:
    """Takes over what is declared of a quota, its place and the amounts of its pods excepted."""
    tree = quota.tree
    _reshaped(tree)
    if quota.takes_part and quota.max.keys() != definition.max.keys():
        _names_less(tree, quota)
        tree.resources.update(definition.max.keys())
    limited, guaranteed = quota.limited, quota._guaranteed
    quota.max, quota.min, quota.weight = definition.max, definition.min, definition.weight
    quota.max_names = frozenset(definition.max)
    quota.lent = definition.lent and not tree.guarantees
    quota.is_parent, quota.is_tree_root, quota.binary = definition.is_parent, definition.is_root, definition.binary
    if quota.takes_part and _is_irregular(quota):
        tree.irregular = True
    _count_over(quota)
    _look_for_overdraft(quota)
    if tree.guarantees and quota.takes_part:
        quota._guaranteed = larger(quota._allocated, quota.min)
    parent = quota.parent
    if parent is not None:
        _pass_up(parent, difference(quota.limited, limited), quota)
        if tree.guarantees and quota.takes_part:
            _allocate(parent, difference(quota._guaranteed, guaranteed))


def attach(quota: Quota, parent: Quota) -> None:
    """Puts a quota, with all below it, under a parent. It must be in no tree, the parent not below it."""
    tree = quota.tree
    _reshaped(tree)
    if not parent.children and not parent.is_root:
        parent._requested = dict(parent._self_request)
        parent._used = dict(parent._self_used)
    quota.parent = parent
    parent.children[quota.name] = quota
    parent.forget_order()
    quota.moved()
    for level in parent.lineage:
        add_to(level._used, quota._used)
        add_to(level._non_preemptible_used, quota._non_preemptible_used)
        add_to(level._non_preemptible_request, quota._non_preemptible_request)
    _pass_up(parent, quota.limited, quota)
    if tree.guarantees and quota.takes_part:
        _allocate(parent, quota._guaranteed)


def detach(quota: Quota) -> None:
    """Takes a quota, with all below it, out of its tree. Nothing happens if it is in none."""
    parent = quota.parent
    if parent is None:
        return
    tree = quota.tree
    _reshaped(tree)
    quota.mark_stale()
    _pass_up(parent, _negative(quota.limited), quota)
    if tree.guarantees and quota.takes_part:
        _allocate(parent, _negative(quota._guaranteed))
    for level in parent.lineage:
        take_from(level._used, quota._used)
        take_from(level._non_preemptible_used, quota._non_preemptible_used)
        take_from(level._non_preemptible_request, quota._non_preemptible_request)
    quota.parent = None
    del parent.children[quota.name]
    parent.forget_order()
    quota.moved()
    if not parent.children and not parent.is_root:
        parent._requested = parent._self_request
        parent._used = parent._self_used


def join(quota: Quota, tree: QuotaTree) -> None:
    """Makes a detached quota one of another tree; those below it are not taken along."""
    leave(quota)
    tree.irregular = tree.irregular or quota.tree.irregular  # what is counted in it may be the reason
    tree.overdrawn = tree.overdrawn or quota.tree.overdrawn
    quota.tree = tree
    _reshaped(tree)
    if quota.takes_part:
        tree.resources.update(quota.max.keys())
    tree.capped += quota.over > 0


def leave(quota: Quota) -> None:
    """A detached quota is none of its tree any more."""
    tree = quota.tree
    _reshaped(tree)
    if quota.takes_part:
        _names_less(tree, quota)
    tree.capped -= quota.over > 0


def offer(tree: QuotaTree, available: Amounts) -> None:
    """What the root has to give from now on; may be negative."""
    tree.settle()
    units = {name: -(-amount // unit(name)) for name, amount in available.items()}
    if units == tree._available:
        return
    tree.epoch += 1
    was_watched = tree.is_watched
    tree._available = units
    _tighten(tree, {**tree.root._requested, **units})
    if was_watched or tree.is_watched:
        tree.shifted = True
        if not tree.unmarked:
            tree.root.mark_children_stale()


# --- on the way up -----------------------------------------------------------------------------------


def _pass_up(start: Quota, delta: Amounts, child: Quota | None = None) -> None:
    """`delta` came to what is requested of a quota, from a child of it or from pods of its own.

    Each level passes on what its max lets through; most of the time that is all of it.
    """
    tree = start.tree
    root = tree.root
    marking = False
    if not (tree.tight or tree.irregular or tree.capped):
        tree.unmarked = True
    elif tree.unmarked:
        tree.shifted = True
    else:
        marking = True
    check: list[str] | None = None  # where what is left for the siblings of `child` may be different now
    for level in start.lineage:
        if not delta:
            return
        requested = level._requested
        if level is root:
            add_to(requested, delta)
            if child is not None and not child.takes_part:
                add_to(level.apart, delta)
            _tighten(tree, delta)
            if check:
                _recheck(level, check)
            return
        bounds = level.max
        unbounded = level.lent and not level.over
        for name, amount in delta.items():
            value = requested.get(name, 0) + amount
            if value:
                requested[name] = value
            else:
                requested.pop(name, None)
            bound = bounds.get(name)
            if bound is None:
                tree.irregular = True  # the siblings' sum is of more than what they share
            elif value > bound:
                unbounded = False
        if check:
            _recheck(level, check)
            check = None
        passed = delta if unbounded else _passed(level, delta)
        if marking:
            check = _unsettled_by(level, passed)
        delta, child = passed, level


def _passed(level: Quota, delta: Amounts) -> Amounts:
    """By how much `limited` of a quota changed when what is requested of it changed by `delta`."""
    was_over = level.over > 0
    bounds, requested = level.max, level._requested
    least = level.min if not level.lent and level.takes_part else None
    passed: Amounts = {}
    for name, amount in delta.items():
        after = requested.get(name, 0)
        before = after - amount
        bound = bounds.get(name)
        if bound is not None:
            level.over += (after > bound) - (before > bound)
        if least is not None:
            floor = least.get(name, 0)
            after, before = max(after, floor), max(before, floor)
        if bound is not None:
            after, before = min(after, bound), min(before, bound)
        if after != before:
            passed[name] = after - before
    level.tree.capped += (level.over > 0) - was_over
    return passed


def _unsettled_by(level: Quota, passed: Amounts) -> list[str]:
    """The resources in which a changed request may change the runtime of a quota.

    A quota whose runtime is below its request, before and after the change, changes no runtime.
    """
    if not level.takes_part:
        return []
    if not level.fresh:
        return list(passed)
    found: list[str] = []
    for name, amount in passed.items():
        after = level.limited_in(name)
        given = level.shares.get(name)
        if given is None or given * unit(name) >= min(after, after - amount):
            found.append(name)
    if found:
        level.mark_stale()
    return found


def _recheck(parent: Quota, names: list[str]) -> None:
    """Whether other children are affected when a child wants more or less than before and was or will be satisfied."""
    tree = parent.tree
    if not parent.fresh:
        tree.shifted = True
    elif parent.contended or any(tree.is_short(parent, name) for name in names):
        parent.mark_children_stale()


def _tighten(tree: QuotaTree, names: Amounts) -> None:
    root, available = tree.root, tree._available
    for name in names:
        if root.asked_by_children(name) > available.get(name, 0) * unit(name):
            tree.tight.add(name)
        else:
            tree.tight.discard(name)


def _allocate(quota: Quota, delta: Amounts) -> None:
    """`delta` came to what is allocated of a quota: each level passes on what that adds to its guarantee (spec 3.8)."""
    tree = quota.tree
    for level in quota.lineage:
        if not delta or not level.takes_part:
            break
        add_to(level._allocated, delta)
        before = level._guaranteed
        level._guaranteed = larger(level._allocated, level.min)
        delta = difference(level._guaranteed, before)
    _reshaped(tree)


# --- shapes -------------------------------------------------------------------------------------------


def _reshaped(tree: QuotaTree) -> None:
    """More than requests changed: no computed result is certain to hold."""
    tree.settle()
    tree.epoch += 1
    tree.unmarked = True
    tree.shifted = True


def _count_over(quota: Quota) -> None:
    was_over = quota.over > 0
    quota.over = sum(quota._requested.get(name, 0) > bound for name, bound in quota.max.items())
    quota.tree.capped += (quota.over > 0) - was_over


def _look_for_overdraft(quota: Quota) -> None:
    if any(quota._used.get(name, 0) > bound for name, bound in quota.max.items()):
        quota.tree.overdrawn = True


def _is_irregular(quota: Quota) -> bool:
    """Whether shares cannot be derived from sums of requests (`QuotaTree.irregular`) because of this quota.

    Then it may request something for which it has no weight, or it has a bound that is no whole number of steps. What
    it requests is mostly bounded by max; not so what its children do and, if it does not lend, its min.
    """
    most, weight = quota.max, quota.weight
    for name, bound in most.items():
        if bound % unit(name) or (bound and weight.get(name, 0) <= 0):
            return True
    for name, least in quota.min.items():
        if least % unit(name) or (least and not quota.lent and name not in most and weight.get(name, 0) <= 0):
            return True
    return any(name not in most for name in quota._requested)


def _names_less(tree: QuotaTree, quota: Quota) -> None:
    tree.resources.subtract(quota.max.keys())
    for name in [name for name, count in tree.resources.items() if count <= 0]:
        del tree.resources[name]


def _negative(amounts: Amounts) -> Amounts:
    return {name: -amount for name, amount in amounts.items()}


def _times(amounts: Amounts, count: int) -> Amounts:
    return {name: amount * count for name, amount in amounts.items()}
