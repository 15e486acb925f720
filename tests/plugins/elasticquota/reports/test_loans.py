"""Who borrows from whom."""

import pytest

from koordsched.plugins.elasticquota.reports.loans import UNCLAIMED, Loan, Position, loans


@pytest.mark.parametrize(
    ("positions", "available", "expected"),
    [
        # Nobody uses more than its min.
        ({"a": (10, 10), "b": (10, 0)}, 20, []),
        # What is guaranteed to nobody is used up first.
        ({"a": (10, 15), "b": (10, 0)}, 25, [("a", UNCLAIMED, 5)]),
        ({"a": (10, 18), "b": (10, 0)}, 25, [("a", UNCLAIMED, 5), ("a", "b", 3)]),
        ({"a": (10, 18), "b": (10, 0)}, 20, [("a", "b", 8)]),
        # In proportion to what is taken and to what is left.
        (
            {"a": (0, 30), "b": (0, 10), "c": (30, 0), "d": (20, 10)},
            50,
            [("a", "c", 22), ("a", "d", 7), ("b", "c", 7), ("b", "d", 2)],
        ),
        # More in use than there is: nobody lends what it does not have.
        ({"a": (0, 30), "b": (10, 10)}, 10, []),
        ({"a": (0, 30), "b": (10, 4)}, 10, [("a", "b", 6)]),
    ],
)
def test_loans(positions, available, expected):
    found = loans({name: Position(*position) for name, position in positions.items()}, available)
    assert found == [Loan(*loan) for loan in expected]
