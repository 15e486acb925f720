"""Parts that one evaluation looks at."""

import pytest

from koordsched.plugins.dynamicresources.cel.errors import CostExceeded
from koordsched.plugins.dynamicresources.cel.work import MOST_WORK, Work


def test_an_evaluation_may_look_at_so_many_parts_and_no_more():
    work = Work()
    work.spend(MOST_WORK)
    with pytest.raises(CostExceeded):
        work.spend(1)
