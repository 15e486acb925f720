"""`python -m bench.engine.numa` as a whole, on small clusters."""

import pytest
from click.testing import CliRunner

from bench.engine.numa import CASES, main


@pytest.mark.slow
def test_all_cases_are_placed_and_compared():
    ran = CliRunner().invoke(main, ["--nodes", "5", "--pods", "4", "--turns", "1"], catch_exceptions=False)
    assert ran.exit_code == 0
    rows = [line.split("│")[1:-1] for line in ran.stdout.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows] == [case.name for case in CASES]
    assert rows[0][2].strip() == "1.00"
    assert [bool(row[3].strip()) for row in rows] == [case.spec is not None for case in CASES]
