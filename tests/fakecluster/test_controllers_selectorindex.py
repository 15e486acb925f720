from hypothesis import given
from hypothesis import strategies as st

from koordsched.fakecluster.controllers.selectorindex import LabelIndex, SelectorIndex, parse_selector

KEYS, VALUES, NAMESPACES = st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from(["n", "m"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(VALUES, min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
SELECTORS = st.fixed_dictionaries({"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)})
STEPS = st.lists(st.tuples(st.integers(0, 5), NAMESPACES, st.one_of(st.none(), SELECTORS)), max_size=20)
LABEL_STEPS = st.lists(st.tuples(st.integers(0, 5), NAMESPACES, st.one_of(st.none(), LABELS)), max_size=20)


@given(STEPS, NAMESPACES, LABELS)
def test_selectors_found_by_labels(steps, namespace, labels):
    index, naive = SelectorIndex(), {}
    for item, where, raw in steps:
        selector = parse_selector(raw)
        # An item keeps its namespace, as objects do.
        where = naive[item][0] if item in naive else where
        index.put(item, where, selector)
        naive.pop(item, None)
        if selector is not None:
            naive[item] = where, selector
    expected = [
        item for item, (where, selector) in sorted(naive.items()) if where == namespace and selector.matches(labels)
    ]
    assert index.matching(namespace, labels) == expected


@given(LABEL_STEPS, NAMESPACES, SELECTORS)
def test_labels_found_by_selector(steps, namespace, raw):
    index, naive = LabelIndex(), {}
    for item, where, labels in steps:
        if labels is None:
            index.discard(item)
            naive.pop(item, None)
        else:
            index.put(item, where, labels)
            naive[item] = where, labels
    selector = parse_selector(raw)
    expected = {item for item, (where, labels) in naive.items() if where == namespace and selector.matches(labels)}
    found = list(index.matching(namespace, selector))
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_what_is_no_selector_matches_nothing():
    assert parse_selector(None) is None
    assert parse_selector({"matchExpressions": [{"key": "a", "operator": "Near"}]}) is None
    assert parse_selector({"matchLabels": {"a": 3}}) is None
    assert parse_selector({}).empty
