"""What owners of quotas are told."""

import asyncio

import pytest

from koordsched.plugins.elasticquota.controller import builtins
from koordsched.plugins.elasticquota.controller.builtins import built_in_objects, ensure_built_in
from koordsched.plugins.elasticquota.controller.validationevents import ValidationEvents
from tests.plugins.elasticquota.controller.books import Ledger, Reporter, Writes
from tests.virtualtime import run


def heard(*quotas, **more):
    """(object, part of the text) after these quotas came."""
    ledger, reporter = Ledger([{"cpu": "10"}]), Reporter()
    events = ValidationEvents(ledger.books, ledger.store, reporter)
    for arguments, labels in quotas:
        ledger.quota(*arguments, **labels)
    events.look()
    assert all(reason == "InvalidQuota" for _, reason, _ in reporter.events)
    return {name: text for name, _, text in reporter.events}


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ([(("q", {"cpu": 4}, {"cpu": 1}), {})], {}),
        ([(("q", {"cpu": "x"}), {})], {"q": "cpu"}),
        ([(("q", {"cpu": "-1"}), {})], {"q": "negative"}),
        ([(("q", {"cpu": 4}, {"cpu": 5}), {})], {"q": "min"}),
        ([(("q", {"cpu": 4}), {"parent": "nobody"})], {"q": "nobody"}),
        ([(("q", {"cpu": 4}), {"parent": "q"})], {"q": "q"}),
        (
            [(("a", {"cpu": 4}), {"parent": "b"}), (("b", {"cpu": 4}), {"parent": "a"})],
            {"a": "leads back to it", "b": "leads back to it"},
        ),
        (
            [(("q", {"cpu": 4}), {}), (("q", {"cpu": 5}), {"namespace": "other"})],
            {"q": "a quota of this name is in namespace default already"},
        ),
    ],
)
def test_what_is_wrong(quotas, expected):
    said = heard(*quotas)
    assert said.keys() == expected.keys()
    for name, part in expected.items():
        assert part in said[name]


def test_each_thing_once_and_again_when_it_comes_back():
    ledger, reporter = Ledger([{"cpu": "10"}]), Reporter()
    events = ValidationEvents(ledger.books, ledger.store, reporter)
    ledger.quota("q", {"cpu": 4}, parent="p")
    events.look()
    events.look()
    ledger.quota("other", {"cpu": 4})
    events.look()
    assert len(reporter.events) == 1
    ledger.quota("p", {"cpu": 4}, is_parent="true")
    events.look()
    assert len(reporter.events) == 1
    ledger.store.delete("default", "p")
    events.look()
    assert [name for name, _, _ in reporter.events] == ["q", "q"]


def test_deleted_while_in_use():
    ledger, reporter = Ledger([{"cpu": "10"}]), Reporter()
    events = ValidationEvents(ledger.books, ledger.store, reporter)
    for name in ("used", "idle"):
        ledger.quota(name, {"cpu": 4})
    ledger.pod("a", "used", {"cpu": 1})
    ledger.pod("b", "used", {"cpu": 1}, node="")
    events.look()
    for name in ("used", "idle"):
        ledger.store.delete("default", name)
    events.look()
    text = "deleted while 2 pods named it; they count in koordinator-default-quota now"
    assert reporter.events == [("used", "QuotaInUse", text)]
    assert ledger.books.quota("koordinator-default-quota").used == {"cpu": 10**9}


BOUNDS = {"cpu": "5", "memory": "5Gi"}


def test_built_in_quotas_are_made_where_they_are_missing():
    async def main():
        ledger, writes = Ledger(), Writes()
        ledger.quota("koordinator-system-quota", {"cpu": 1}, namespace="koordinator-system")
        objects = built_in_objects("koordinator-system", BOUNDS, {"cpu": "7"})
        await ensure_built_in(objects, ledger.store, writes)
        prefix = "quota.scheduling.koordinator.sh/"
        root = {prefix + "is-parent": "true", prefix + "allow-lent-resource": "false", prefix + "parent": ""}
        assert [thing for _, _, thing in writes.created] == [
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"namespace": "koordinator-system", "name": "koordinator-root-quota", "labels": root},
                "spec": {},
            },
            {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"namespace": "koordinator-system", "name": "koordinator-default-quota"},
                "spec": {"max": BOUNDS},
            },
        ]

    run(main())


def test_without_the_namespace_they_come_later():
    async def main():
        ledger, writes = Ledger(), Writes()
        writes.refused = {"koordinator-root-quota"}
        objects = built_in_objects("koordinator-system", BOUNDS, BOUNDS)
        task = asyncio.create_task(ensure_built_in(objects, ledger.store, writes))
        await asyncio.sleep(10 * builtins.LONGEST_PAUSE)
        assert writes.created == []
        writes.refused = set()
        await asyncio.sleep(builtins.LONGEST_PAUSE)
        assert task.done()
        names = [thing["metadata"]["name"] for _, _, thing in writes.created]
        assert names == ["koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"]

    run(main())
