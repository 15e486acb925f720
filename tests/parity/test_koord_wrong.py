"""Values that are not those of the real scheduler, planted in records: each comparison sees its own."""

import json

import pytest

from koordsched.fakecluster.errors import ApiStatusError
from tests.parity import test_koord_device, test_koord_load, test_koord_numa, test_koord_resv
from tests.parity.gangcorrections import corrected
from tests.parity.koord import load
from tests.parity.koordgang import GangReplay
from tests.virtualtime import run

QUOTA = "ElasticQuota/quota-zone/tight"
NEVER = [{"regarding": "Pod/never", "reason": "Preempted", "note": "never said"}]


def planted(record, path, value):
    """The record with another value there."""
    record = json.loads(json.dumps(record))
    *path, last = path
    at = record
    for key in path:
        at = at[key]
    at[last] = value
    return record


@pytest.mark.parametrize(
    "kind, name, path, value",
    [
        (test_koord_device, "device-47-device-deleted", ("expected", "events"), NEVER),
        (test_koord_device, "device-47-device-deleted", ("expected", "default/p1", "nominatedNode"), "gx1"),
        (test_koord_device, "device-65-adapter-metax", ("expected", "objects", 0, "annotations"), {}),
        (test_koord_device, "device-97-preempt-fraction", ("expected", "victims"), []),
        (test_koord_numa, "numa-97-preempt-numa", ("expected", "events"), NEVER),
        (test_koord_numa, "numa-01-full-seq", ("expected", "victims"), ["p0"]),
        (test_koord_load, "load-43-metric-update", ("expected", "events"), NEVER),
        (test_koord_load, "load-43-metric-update", ("expected", "default/web", "nominatedNode"), "oak"),
        (test_koord_resv, "resv-60-preempt-owner", ("expected", "events"), NEVER),
    ],
)
def test_wrong_value_is_seen(kind, name, path, value):
    async def main():
        return await kind.Play(planted(load(name), path, value)).play()

    assert run(main())


def test_a_deletion_of_what_cannot_be_deleted_is_no_deletion_of_what_is_gone():
    record = load("device-47-device-deleted")
    record["steps"][0] = {"delete": {"kind": "Unknown", "name": "gx1"}}

    async def main():
        await test_koord_device.Play(record).play()

    with pytest.raises(ApiStatusError, match="no matches for kind"):
        run(main())


@pytest.mark.parametrize(
    "name, wrong",
    [
        (
            "gang-with-quota",
            [
                (("expected", "objects", QUOTA, "status"), {"used": {"cpu": "1"}}),
                (("expected", "objects", QUOTA, "annotations"), {}),
                (("expected", "events"), []),
            ],
        ),
        ("gang-preempt-bare-pod", [(("expected", "boundPodsChanged"), {})]),
        ("gang-preempt-finish", [(("expected", "boundPodsChanged"), {}), (("expected", "boundCount", "works/job"), 1)]),
    ],
)
def test_wrong_value_about_gangs_is_seen(name, wrong):
    record = corrected(load(name))

    async def main():
        replay = await GangReplay(record).play()
        found = [replay.differences()]
        for path, value in wrong:
            replay.record = planted(record, path, value)
            found.append(replay.differences())
        return found

    right, *found = run(main())
    assert not right
    assert all(found)
