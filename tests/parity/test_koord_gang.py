"""The recorded decisions of koord-scheduler about gangs: pods, PodGroups, and every gang as its debug page shows it."""

import json

import pytest

from tests.parity.gangcorrections import ALSO_WRONG, RIGHT, WITHOUT_CONSEQUENCE, corrected
from tests.parity.koord import GATED, load, names
from tests.parity.koordgang import GangReplay
from tests.parity.matching import ABSENT, UNSTABLE, Names, differences
from tests.virtualtime import run


@pytest.mark.parametrize("name", names("gang-"))
def test_record_replays_as_recorded(name):
    record = corrected(load(name))

    async def main():
        replay = GangReplay(record)
        await replay.play()
        return replay.differences()

    found = run(main())
    assert not found, "\n".join(found)


def test_every_defect_is_corrected():
    defects = {name for name in names("gang-") if load(name).get("upstreamDefect")} | set(ALSO_WRONG)
    assert defects == RIGHT.keys() | set(WITHOUT_CONSEQUENCE)
    for name in defects:
        record = load(name)
        before = json.dumps(record)
        changed = corrected(record)
        assert json.dumps(record) == before
        assert (changed["expected"] | {"possible events": []} != record["expected"] | {"possible events": []}) == (
            name in RIGHT
        )


NAMES = Names({"ns/a": "uid-a", "ns/b-1": "uid-b"}, pending={"ns/a"})


@pytest.mark.parametrize(
    "ours, recorded",
    [
        ('Pod "ns/b-1" fails', 'Pod "<a member>" fails'),
        ('Pod "b-1" fails', 'Pod "<a member>" fails'),
        ("by pod uid-b on", "by pod <uid of ns/b-1> on"),
        ("by pod uid-a on", "by pod <uid of a member> on"),
        ("2026-01-01T00:00:00Z", "<time>"),
        ("ns/a", "<one of the pending>"),
        ({"a": 1}, {"a": {UNSTABLE: [2, 1]}}),
        ({}, {"a": {UNSTABLE: [ABSENT, 1]}}),
        ({"a": {}}, {"a": {UNSTABLE: [{}, ABSENT]}}),
        ([{"a": "x"}], [{"a": "x"}]),
        (GATED[0], "SchedulingGated"),
    ],
)
def test_placeholders_stand_for_what_they_say(ours, recorded):
    assert differences(ours, recorded, NAMES) == []


@pytest.mark.parametrize(
    "ours, recorded",
    [
        ('Pod "ns/c" fails', 'Pod "<a member>" fails'),
        ('Pod "ns/b-1" fails.', 'Pod "<a member>" fails'),
        ("by pod uid-a on", "by pod <uid of ns/b-1> on"),
        ("by pod uid-a on", "by pod <uid of ns/c> on"),
        ("now", "<time>"),
        ("ns/b-1", "<one of the pending>"),
        ("", "<one of the pending>"),
        ({"a": 3}, {"a": {UNSTABLE: [2, 1]}}),
        ({}, {"a": {UNSTABLE: [2, 1]}}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ([1], [1, 2]),
        ([1, 3], [1, 2]),
        (1, "1"),
        ("1.", "1,"),
    ],
)
def test_all_else_is_compared(ours, recorded):
    assert differences(ours, recorded, NAMES) != []
