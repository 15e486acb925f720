"""The recorded decisions of koord-scheduler about quotas: pods, Events, every number of every quota, and objects."""

import json

import pytest

from tests.parity.koord import load, names
from tests.parity.koordquota import QuotaReplay
from tests.parity.quotacorrections import OTHERWISE, corrected
from tests.parity.quotaretries import RETRIES
from tests.virtualtime import run


def replayed(name):
    """The replay of a record, at its end."""
    record = corrected(load(name))

    async def main():
        return await QuotaReplay(record).play()

    return run(main())


@pytest.mark.parametrize("name", names("quota-"))
def test_record_replays_as_recorded(name):
    found = replayed(name).differences()
    assert not found, "\n".join(found)


def test_exceptions_are_about_records():
    assert {*RETRIES, *OTHERWISE} <= set(names("quota-"))


ALONE = ("expected", "checkpoints", "alone")
WRONG = {
    "quota-revoke-nonpreemptible": [
        ((*ALONE, "pods", "works/a-1", "node"), "hall-2"),
        ((*ALONE, "pods", "works/a-1", "condition"), {"reason": "Unschedulable", "message": "never said"}),
        ((*ALONE, "pods", "works/a-9"), {"node": "hall-1"}),
        ((*ALONE, "objects", "ElasticQuota/quota-zone/a", "status", "used", "cpu"), "1"),
        ((*ALONE, "objects", "ElasticQuota/quota-zone/z"), {}),
        ((*ALONE, "summaries", "a", "used", "cpu"), "1"),
        (
            (
                "expected",
                "objects",
                "ElasticQuota/quota-zone/a",
                "annotations",
                "quota.scheduling.koordinator.sh/request",
            ),
            "{}",
        ),
        (("expected", "summaries", "a", "used", "cpu"), "1"),
        (("expected", "boundPodsChanged"), {}),
        (("expected", "boundPodsChanged", "works/a-2"), {"gone": True}),
        (("expected", "events"), [{"regarding": "Pod/works/a-2", "reason": "Preempted", "note": "never said"}]),
    ],
    "quota-preempt-one-victim": [
        (("expected", "events"), []),
        (("expected", "events", 0, "note"), "never said"),
        (("expected", "works/top", "bound"), "hall-1"),
        (("expected", "works/top", "condition", "message"), "never said"),
        (("expected", "works/top", "nominatedNode"), None),
        (("expected", "works/top", "annotations"), {"never": "written"}),
        (("expected", "boundPodsChanged", "works/v-2", "terminating"), False),
        (("expected", "boundPodsChanged", "works/v-2", "disruption", "message"), "never said"),
        (("expected", "boundPodsChanged"), {}),
    ],
}
"""Record -> paths in it, and what is not there in truth."""


@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_value_is_seen(name):
    replay = replayed(name)
    record = replay.record
    assert not replay.differences()
    for (*path, last), value in WRONG[name]:
        replay.record = json.loads(json.dumps(record))
        at = replay.record
        for key in path:
            at = at[key]
        at[last] = value
        assert replay.differences(), (*path, last)


def test_a_pod_that_is_tried_again_needs_it(monkeypatch):
    name = "quota-parent-check-off"
    (pod,) = [key for key in load(name)["expected"] if "/" in key]
    monkeypatch.setitem(RETRIES, name, {pod: "no reason"})
    assert replayed(name).differences() == [f"{pod} was tried again without need"]
