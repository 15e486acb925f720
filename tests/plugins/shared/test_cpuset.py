"""Texts of CPU lists: everything there and back, nothing but lists in."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordsched.plugins.shared import cpuset
from tests.depth import examples

IDS = st.sets(st.integers(0, cpuset.MAX_CPUS - 1), max_size=300)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("0", [0]),
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("8,0-3", [0, 1, 2, 3, 8]),
        ("1-3,2-5,4", [1, 2, 3, 4, 5]),
        ("7-7", [7]),
        ("007", [7]),
        ("4095", [4095]),
        ("0-4095", list(range(4096))),
    ],
)
def test_lists_are_read(text, ids):
    assert cpuset.ids(cpuset.parse(text)) == ids


@pytest.mark.parametrize(
    ("ids", "text"),
    [([], ""), ([5], "5"), ([0, 1], "0-1"), ([9, 0, 2, 1, 7], "0-2,7,9"), ([63, 64, 65, 127, 128], "63-65,127-128")],
)
def test_lists_are_written_as_ranges(ids, text):
    assert cpuset.text(cpuset.of(ids)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4096", "cpuset '4096': CPU '4096' is above 4095"),
        ("0-4096", "cpuset '0-4096': CPU '4096' is above 4095"),
        ("0000000004096", "cpuset '0000000004096': CPU '0000000004096' is above 4095"),
        ("3-1", "cpuset '3-1': the range '3-1' ends before it starts"),
        ("a", "cpuset 'a': 'a' is neither a CPU nor a range of CPUs"),
        ("0,,1", "cpuset '0,,1': '' is neither a CPU nor a range of CPUs"),
        ("1.5", "cpuset '1.5': '1.5' is neither a CPU nor a range of CPUs"),
        ("9" * 5000, f"cpuset '{'9' * 57}...': CPU '{'9' * 57}...' is above 4095"),
    ],
)
def test_messages_say_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cpuset.parse(text)


MALFORMED = [
    ",",
    "0,",
    ",0",
    "-",
    "-1",
    "1-",
    "1-2-3",
    "--1",
    "+1",
    "1e3",
    "1.0",
    "0x1",
    "1_0",
    "0-7:2/4",
    "0;1",
    "٣",
    "²",
    "１",
    "0–3",
    "0-٣",
    "nan",
    "null",
    "[0]",
    '"0"',
]


@pytest.mark.parametrize("text", [*MALFORMED, " ", " 0", "0 ", "0-3\n", "0, 1", "\0"])
def test_nothing_but_a_list_is_read(text):
    with pytest.raises(ValueError, match="is neither a CPU nor a range of CPUs"):
        cpuset.parse(text)


@settings(max_examples=examples(300))
@given(IDS)
def test_there_and_back(ids):
    cpus = cpuset.of(ids)
    assert cpuset.ids(cpus) == sorted(ids)
    assert cpuset.parse(cpuset.text(cpus)) == cpus


@settings(max_examples=examples(300))
@given(IDS)
def test_ranges_are_as_long_as_they_can_be(ids):
    ranges = [part.split("-") for part in cpuset.text(cpuset.of(ids)).split(",") if part]
    ends = [(int(part[0]), int(part[-1])) for part in ranges]
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ends))
    assert all(len(part) == 1 or int(part[0]) < int(part[1]) for part in ranges)


@settings(max_examples=examples(500))
@given(st.text(alphabet="0123456789-, a٣", max_size=12) | st.text(max_size=20))
def test_any_text_is_a_list_or_an_error(text):
    try:
        cpus = cpuset.parse(text)
    except ValueError:
        return
    assert cpuset.parse(cpuset.text(cpus)) == cpus
