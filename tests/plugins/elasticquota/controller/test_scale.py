"""A thousand quotas and fifty thousand pods: controllers neither hold up the loop nor flood the API."""

import asyncio
import runpy
import time

import pytest

from koordsched.api.decoding import convert
from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.controller.status import WRITES_PER_LOOK, StatusWriter
from koordsched.plugins.elasticquota.reports.report import reporting
from tests.plugins.elasticquota.controller.books import Ledger, Writes
from tests.plugins.elasticquota.controller.cluster import EXAMPLES

PODS = 50_000


class Clock:
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


@pytest.fixture(scope="module")
def found():
    """The quotas of the example, with pods in those of the lowest level, nine of ten on a node."""
    found = Ledger([{"cpu": "100", "memory": "400Gi", "pods": "1000"}] * 100)
    example = runpy.run_path(str(EXAMPLES / "5-scale" / "quotas.py"))
    quotas = list(example["quotas"]())
    assert len(quotas) == 1000
    for number, thing in enumerate(quotas):
        thing["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(number + 1)}
        found.store.upsert(convert(thing, api.ElasticQuota))
    for number in range(PODS):
        node = f"n{number % 100}" if number % 10 else ""
        found.pod(f"p{number}", f"level-4-{number % 750}", {"cpu": "200m", "memory": "512Mi"}, node=node)
    return found


class Counting(Writes):
    """Writes in flight at most."""

    def __init__(self):
        super().__init__()
        self.in_flight = self.most = 0

    async def merge(self, kind, meta, changes):
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        await super().merge(kind, meta, changes)


def test_status_is_written_in_turns_and_coalesced(found):
    assert found.books.validation_errors() == {}

    async def main():
        writes = Counting()
        writer = StatusWriter(found.books, found.store, writes, Clock, lambda seconds: None)
        looks = []
        while True:
            writes.merges.clear()
            written, failed = await writer.look()
            assert failed == 0
            looks.append(written)
            if not written:
                break
            for _, name, patch in writes.merges:
                found.apply("default", name, patch)
        assert max(looks) <= WRITES_PER_LOOK
        assert sum(looks) == 1000
        assert writes.most <= 8

        # A hundred more pods in a leaf are one write for it and one for each quota above, and its siblings' shares.
        for number in range(100):
            found.pod(f"more-{number}", "level-4-0", {"cpu": "100m"})
        writes.merges.clear()
        await writer.look()
        names = [name for _, name, _ in writes.merges]
        assert len(names) == len(set(names)) == 5

    asyncio.run(main())


def test_a_report_gives_way_at_every_quota(found):
    assert sum(1 for _ in reporting(found.books)) > 1000
