"""JSON values as users write them: near to what a field should be, and far from it."""

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**20),
    st.floats(allow_nan=False),
    st.sampled_from(["", "a", "v1", "In", "NotIn", "Exists", "Gt", "metadata.name", "5", "100m", "-1", "a b", "é\0"]),
    st.text(max_size=3),
)


def values(*names):
    """JSON values; members of objects have these names, mostly."""
    members = st.sampled_from(names) | st.sampled_from(["a", "koordsched.dev/a", ""])
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=4),
        max_leaves=12,
    )


def nested(depth, innermost=None):
    """A list in a list in a list."""
    value = [] if innermost is None else innermost
    for _ in range(depth):
        value = [value]
    return value
