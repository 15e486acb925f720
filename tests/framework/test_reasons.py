"""Reasons as numbers: one for each text, as many as there are texts in use."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from koordsched.framework.status import NO_NODE, Code, Reason, ReasonTable
from tests.plugins.harness import scheduler
from tests.plugins.objects import container, node, pod


def test_a_reason_has_one_number_however_it_is_asked_for():
    table = ReasonTable()
    held = table.hold("A", Code.UNSCHEDULABLE, "x")
    assert table.hold("A", Code.UNSCHEDULABLE, "x") is held
    assert table.intern("A", Code.UNSCHEDULABLE, "x") == held.number
    others = {table.intern("B", Code.UNSCHEDULABLE, "x"), table.intern("A", Code.UNRESOLVABLE, "x")}
    assert len(others | {held.number}) == 3
    assert min(others) > NO_NODE
    number = held.number
    del held
    assert table.intern("A", Code.UNSCHEDULABLE, "x") == number, "interned reasons stay"
    assert table[number] == Reason("A", Code.UNSCHEDULABLE, ("x",))


@given(st.lists(st.tuples(st.sampled_from(["hold", "drop", "intern"]), st.integers(0, 5))))
def test_who_holds_a_reason_finds_it_under_its_number(steps):
    table, held, interned = ReasonTable(), {}, {}
    for what, i in steps:
        if what == "hold":
            held[i] = table.hold("A", Code.UNSCHEDULABLE, str(i))
        elif what == "intern":
            interned[i] = table.intern("A", Code.UNSCHEDULABLE, str(i))
        else:
            held.pop(i, None)
        numbers = {**{k: h.number for k, h in held.items()}, **interned}
        assert len(set(numbers.values())) == len(numbers)
        for k, number in numbers.items():
            assert table[number].texts == (str(k),)
    assert len(table.reasons) <= 2 + 6


def test_texts_of_users_leave_nothing_behind():
    """A name that never was before in every pod: a resource, or a claim that does not exist."""
    offline = scheduler([node("alder", cpu="4"), node("birch", cpu="4")])
    offline.profiles["default-scheduler"].filtering._evaluations._kept.budget = 0  # one shape's verdicts are kept
    lengths = []
    for i in range(400):
        wanted = {f"example.com/r{i}": "1"}
        greedy = pod("greedy", container(cpu="1"))
        greedy["spec"]["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
        claim = {"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{i}"}}
        for item, text in (
            (greedy, f"2 Insufficient example.com/r{i}"),
            (pod("lost", container(cpu="1"), volumes=[claim]), f'persistentvolumeclaim "claim-{i}" not found'),
        ):
            item["metadata"]["uid"] = f"{item['metadata']['name']}-{i}"
            offline.add(item)
            key = f"default/{item['metadata']['name']}"
            assert text in offline.explain(key).message
            del offline.pending[key]
        if i % 100 == 99:
            gc.collect()
            lengths.append(len(offline.profiles["default-scheduler"].handle.reasons.reasons))
    assert max(lengths) < 100, lengths  # of 800
