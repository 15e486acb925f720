"""What pods that stay pending are told about Reservations."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordsched.plugins.reservation.messages import NodeCounts, event_text, reasons
from tests.depth import examples
from tests.parity.koord import GOLDEN


def test_reservation_case_16_post_filter_reasons():
    nodes = [
        NodeCounts(
            3,
            affinity_unmatched=1,
            reasons=(
                "Reservation(s) Insufficient nvidia.com/gpu",
                "Reservation(s) Insufficient koordinator.sh/gpu-mem-ratio",
            ),
        ),
        NodeCounts(3, unschedulable=1, reasons=("Reservation(s) Insufficient cpu", "Insufficient memory")),
    ]
    assert reasons(nodes, required=False) == (
        "1 Reservation(s) didn't match affinity rules",
        "1 Reservation(s) is unschedulable",
        "1 Reservation(s) for node reason that Insufficient memory",
        "6 Reservation(s) matched owner total",
    )


def test_reservation_case_17_a_pod_that_owns_none():
    assert reasons([], required=True) == ("0 Reservation(s) matched owner total",)
    assert reasons([], required=False) == ()
    assert reasons([NodeCounts(0, reasons=("Insufficient cpu",))], required=False) == ()


def test_all_reasons_in_their_order():
    nodes = [
        NodeCounts(
            9,
            name_matched=1,
            name_unmatched=2,
            affinity_unmatched=1,
            unschedulable=1,
            not_exact=1,
            taints={"{b: 1}": 1, "{a: }": 1},
            reasons=("z", "a", "z"),
        ),
        NodeCounts(2, name_matched=1, taints={"{a: }": 1}, reasons=("z",)),
    ]
    assert reasons(nodes, required=True) == (
        "2 Reservation(s) exactly matches the requested reservation name",
        "2 Reservation(s) didn't match the requested reservation name",
        "1 Reservation(s) didn't match affinity rules",
        "1 Reservation(s) is unschedulable",
        "1 Reservation(s) is not exact matched",
        "2 Reservation(s) had untolerated taint {a: }",
        "1 Reservation(s) had untolerated taint {b: 1}",
        "2 Reservation(s) for node reason that a",
        "5 Reservation(s) for node reason that z",
        "11 Reservation(s) matched owner total",
    )


@pytest.mark.parametrize(
    "counts, refused",
    [
        (NodeCounts(2, reasons=("x",)), 2),
        (NodeCounts(2, unschedulable=2, reasons=("x",)), 0),
        (NodeCounts(2, taints={"{a: b}": 1}, reasons=("x", "Reservation(s) y")), 0),
        (NodeCounts(1, reasons=("Reservation(s) y", "Reservation(s) y")), 0),
        (NodeCounts(3, name_matched=1, name_unmatched=2, reasons=("x",)), 1),
    ],
)
def test_how_many_the_node_refused(counts, refused):
    assert counts.refused_by_node == refused


START = "0/21 nodes are available: "


def test_reservation_case_18_event():
    error = (
        f"{START}1 Insufficient nvidia.com/gpu by node, 4 Reservation(s) Insufficient nvidia.com/gpu. "
        "1 Reservation(s) is unschedulable, 5 Reservation(s) matched owner total"
    )
    assert event_text(error) == (
        "0/5 reservations are available: 4 Reservation(s) Insufficient nvidia.com/gpu, "
        "1 Reservation(s) is unschedulable."
    )
    assert event_text("0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.") == ""


@pytest.mark.parametrize(
    "details, text",
    [
        ("1 Reservation(s) matched owner total.", "0/1 reservations are available: ."),
        (
            "3 node(s) x,3 Reservation(s) for node reason that node(s) x,2 Reservation(s) Insufficient cpu. "
            "1 Reservation(s) exactly matches the requested reservation name, 8 Reservation(s) matched owner total.",
            "0/8 reservations are available: 1 Reservation(s) exactly matches the requested reservation name, "
            "2 Reservation(s) Insufficient cpu, 3 Reservation(s) for node reason that node(s) x.",
        ),
        (
            "1 Reservation(s) Insufficient cpu, requested: 4000, used: 0, capacity: 6. "
            '1 Reservation(s) matched owner total, Gang "a/b" gets rejected due to pod is unschedulable.',
            "0/1 reservations are available: 1 Reservation(s) Insufficient cpu.",
        ),
        ("0 Reservation(s) matched owner total", "0/0 reservations are available: ."),
        ("1 Reservation(s) Insufficient cpu", ""),
        ("x 1 Reservation(s) matched owner total", ""),
    ],
)
def test_event(details, text):
    assert event_text(START + details) == text
    assert event_text(f" {START}{details}\n") == text
    assert event_text(f"all nodes: {START}{details}") == ""


def _events():
    """(record, what was said about a pod, the notes of its events) of all recorded pods with events of their own."""
    for path in sorted(GOLDEN.glob("resv-*.json")):
        events = json.loads(path.read_text())["expected"].get("events", [])
        for pod in sorted({event["regarding"] for event in events}):
            own = [event for event in events if event["regarding"] == pod]
            notes = {event["note"] for event in own if event["reason"] == "FailedScheduling-Reservation"}
            said = [event["note"] for event in own if event["reason"] == "FailedScheduling"]
            if notes:
                yield pytest.param(said, notes, id=f"{path.stem}-{pod}")


@pytest.mark.parametrize("said, notes", [*_events()])
def test_recorded_events(said, notes):
    assert {event_text(error) for error in said} == notes


REASONS = st.sampled_from(["Insufficient cpu", "Reservation(s) Insufficient cpu", "node(s) x", "Reservation(s) y"])
FEW = st.integers(0, 3)
COUNTS = st.builds(
    NodeCounts,
    owner_matched=FEW,
    name_matched=FEW,
    name_unmatched=FEW,
    affinity_unmatched=FEW,
    unschedulable=FEW,
    not_exact=FEW,
    taints=st.dictionaries(st.sampled_from(["{a: b}", "{c: }"]), st.integers(1, 3)),
    reasons=st.lists(REASONS, max_size=4),
)


@given(st.lists(COUNTS, max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_the_event_has_what_post_filter_says(nodes):
    texts = reasons(nodes, required=True)
    *others, total = texts
    note = event_text(START + ", ".join(texts))
    assert note.startswith(f"0/{total.split()[0]} reservations are available: ")
    assert sorted(filter(None, note.partition(": ")[2].removesuffix(".").split(", "))) == sorted(others)


@given(st.text(max_size=30).map(START.__add__) | st.text(max_size=60))
@example(START + "9" * 5000 + " Reservation(s) matched owner total")
@settings(max_examples=examples(300), deadline=None)
def test_any_text_gives_a_note_or_none(error):
    assert event_text(error) == "" or event_text(error).startswith("0/")
