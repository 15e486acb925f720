"""What is written to quotas, and when (elasticquota spec 3.15, section 7 case 24)."""

import asyncio
import json

import pytest

from koordsched.framework.handle import WriteFailed
from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.controller import status
from koordsched.plugins.elasticquota.controller.status import Shown, StatusWriter, changes
from tests.plugins.elasticquota.controller.books import Ledger, Writes
from tests.virtualtime import VirtualClock, run

NODE = {"cpu": "10", "memory": "10Gi", "pods": "110"}


def annotations(patch):
    return {
        key.removeprefix(api.PREFIX): json.loads(text)
        for key, text in patch.get("metadata", {}).get("annotations", {}).items()
    }


def patch_of(ledger, name="q", namespace="default"):
    return changes(ledger.books.quota(name), Shown.on(ledger.store.get(namespace, name)))[0]


def test_everything_at_first():
    ledger = Ledger([NODE])
    ledger.quota("q", {"cpu": 4, "memory": "8Gi"}, {"cpu": 2})
    ledger.pod("a", "q", {"cpu": "500m", "memory": "1Gi"})
    ledger.pod("b", "q", {"cpu": "1500m", "memory": "0.5Gi"}, node="", labels={api.PREEMPTIBLE: "false"})
    patch = patch_of(ledger)
    assert annotations(patch) == {
        "runtime": {"cpu": "2", "memory": "1536Mi"},
        "request": {"cpu": "2", "memory": "1536Mi"},
        "child-request": {"cpu": "2", "memory": "1536Mi"},
        "non-preemptible-request": {"cpu": "1500m", "memory": "512Mi"},
    }
    assert patch["status"] == {"used": {"cpu": "500m", "memory": "1Gi"}}
    # The texts are compact and sorted.
    assert patch["metadata"]["annotations"][api.RUNTIME] == '{"cpu":"2","memory":"1536Mi"}'
    ledger.apply("default", "q", patch)
    assert patch_of(ledger) == {}


@pytest.mark.parametrize(
    ("shown", "used", "expected", "expected_used"),
    [
        # Absent and zero are the same; so are different texts of one number.
        ({}, {"cpu": "0"}, {}, None),
        ({"request": '{"cpu":"0","memory":"0"}'}, {}, {}, None),
        # Only what differs is written.
        ({"guaranteed": '{"cpu":"8"}'}, {}, {"guaranteed": {"cpu": "0"}}, None),
        ({"request": '{"cpu":"1"}', "allocated": '{"x":"1"}'}, {}, {"request": {"cpu": "0"}, "allocated": {}}, None),
        # What cannot be read is put right.
        ({"request": "{bad"}, {}, {"request": {}}, None),
        ({"request": '{"cpu":"many"}'}, {}, {"request": {}}, None),
        # Resources that max still names go to 0, others vanish.
        ({}, {"cpu": "1", "gpu": "2"}, {}, {"cpu": "0", "gpu": None}),
    ],
)
def test_of_an_idle_quota(shown, used, expected, expected_used):
    ledger = Ledger([NODE])
    ledger.quota("q", {"cpu": 4, "memory": "8Gi"}, annotations=shown, used=used)
    patch = patch_of(ledger)
    assert annotations(patch) == expected
    assert patch.get("status") == (None if expected_used is None else {"used": expected_used})


def test_elasticquota_case_24_only_what_differs():
    ledger = Ledger([NODE], guarantees=True)
    ledger.quota("q", {"cpu": 8}, {"cpu": 8})
    for name, keep in (("a", "true"), ("b", "false")):
        ledger.pod(name, "q", {"cpu": 2}, labels={api.PREEMPTIBLE: keep})
    ledger.apply("default", "q", patch_of(ledger))
    shown = ledger.store.get("default", "q").metadata.annotations
    assert set(shown) == {
        *(api.RUNTIME, api.REQUEST, api.CHILD_REQUEST, api.GUARANTEED),
        *(api.ALLOCATED, api.NON_PREEMPTIBLE_REQUEST, api.NON_PREEMPTIBLE_USED),
    }
    assert (shown[api.GUARANTEED], patch_of(ledger)) == ('{"cpu":"8"}', {})
    ledger.apply("default", "q", {"metadata": {"annotations": {api.GUARANTEED: '{"cpu":"66666666"}'}}})
    assert patch_of(ledger) == {"metadata": {"annotations": {api.GUARANTEED: '{"cpu":"8"}'}}}


def test_guaranteed_usage_is_written_with_its_gate():
    ledger = Ledger([NODE], guarantees=True)
    ledger.quota("q", {"cpu": 4}, {"cpu": 1})
    ledger.pod("a", "q", {"cpu": 3})
    shown = annotations(patch_of(ledger))
    assert (shown["allocated"], shown["guaranteed"]) == ({"cpu": "3"}, {"cpu": "3"})


def test_objects_of_one_name_show_the_same():
    ledger = Ledger([NODE])
    ledger.quota("q", {"cpu": 4})
    ledger.quota("q", {"cpu": 1}, namespace="other")
    ledger.pod("a", "q", {"cpu": 3})
    assert patch_of(ledger, namespace="other") == patch_of(ledger)


class Round:
    """A writer on a ledger; patches come back only when `deliver` is called."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.writes = Writes()
        self.seconds = []
        clock = VirtualClock(asyncio.get_running_loop())
        self.writer = StatusWriter(ledger.books, ledger.store, self.writes, clock, self.seconds.append)

    async def look(self):
        self.writes.merges.clear()
        await self.writer.look()
        return sorted(name for _, name, _ in self.writes.merges)

    def deliver(self):
        for _, name, patch in self.writes.merges:
            self.ledger.apply("default", name, patch)


def test_quotas_that_are_gone_are_forgotten():
    async def scenario():
        ledger = Ledger([NODE])
        ledger.quota("stays", {"cpu": 8})
        ledger.pod("p", "stays", {"cpu": 1})
        round_ = Round(ledger)
        for number in range(60):
            ledger.quota(f"q{number}", {"cpu": 1})
            await round_.look()
            round_.deliver()
            ledger.store.delete("default", f"q{number}")
        ledger.pod("q", "stays", {"cpu": 1})
        assert await round_.look() == ["stays"]
        assert len(round_.writer._shown) < 30

    run(scenario())


def test_nothing_is_written_twice():
    async def main():
        ledger = Ledger([NODE])
        ledger.quota("q", {"cpu": 4})
        round_ = Round(ledger)
        assert await round_.look() == []
        ledger.pod("a", "q", {"cpu": 1})
        assert await round_.look() == ["q"]
        # The watch has not brought it back yet.
        assert await round_.look() == []
        ledger.pod("b", "q", {"cpu": 1})
        assert await round_.look() == ["q"]
        round_.deliver()
        assert await round_.look() == []
        assert len(round_.seconds) == 2

    run(main())


def test_what_others_write_is_put_right():
    async def main():
        ledger = Ledger([NODE])
        ledger.quota("q", {"cpu": 4})
        ledger.pod("a", "q", {"cpu": 1})
        round_ = Round(ledger)
        await round_.look()
        round_.deliver()
        ledger.apply("default", "q", {"status": {"used": {"cpu": "3"}}})
        assert await round_.look() == ["q"]
        assert round_.writes.merges[0][2] == {"status": {"used": {"cpu": "1"}}}

    run(main())


def test_what_failed_is_tried_again():
    async def main():
        ledger = Ledger([NODE])
        for name in "pq":
            ledger.quota(name, {"cpu": 4})
            ledger.pod(f"pod-{name}", name, {"cpu": 1})
        round_ = Round(ledger)
        round_.writes.refused = {"p"}
        assert await round_.look() == ["q"]
        round_.writes.refused = set()
        assert await round_.look() == ["p"]
        assert await round_.look() == []

    run(main())


def test_many_quotas_take_turns(monkeypatch):
    async def main():
        monkeypatch.setattr(status, "WRITES_PER_LOOK", 3)
        ledger = Ledger([NODE])
        names = [f"q{number}" for number in range(8)]
        for name in names:
            ledger.quota(name, {"cpu": 4})
            ledger.pod(f"pod-{name}", name, {"cpu": 1})
        round_ = Round(ledger)
        assert await round_.look() == names[:3]
        # The first ones change again, and still wait for the others.
        for name in names[:3]:
            ledger.pod(f"more-{name}", name, {"cpu": 1})
        assert await round_.look() == names[3:6]
        assert await round_.look() == ["q0", "q6", "q7"]
        assert await round_.look() == ["q1", "q2"]
        assert await round_.look() == []

    run(main())


def test_a_server_that_refuses_everything_is_asked_ever_less_often():
    async def main():
        ledger = Ledger([NODE])
        ledger.quota("q", {"cpu": 4})
        ledger.pod("a", "q", {"cpu": 1})
        round_ = Round(ledger)
        asked = []
        loop = asyncio.get_running_loop()
        start = loop.time()

        async def refuse(kind, meta, patch):
            asked.append(loop.time() - start)
            raise WriteFailed("no")

        round_.writes.merge = refuse
        task = asyncio.create_task(round_.writer.run())
        await asyncio.sleep(100)
        task.cancel()
        assert asked == pytest.approx([0, 2, 6, 14, 30, 60, 90])

    run(main())
