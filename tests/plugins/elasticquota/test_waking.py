"""Pods refused by their quota, on the real scheduler over the embedded API server: tried again only when it helps."""

import asyncio
from random import Random

import pytest

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.elasticquota.objects import node, pod, quota
from tests.plugins.elasticquota.running import cluster, remove, replace, where
from tests.plugins.elasticquota.world import amounts, configuration
from tests.virtualtime import run

GATED = {"schedulingGates": [{"name": "wait"}]}

MINE = {"cpu": 4, "memory": "4Gi"}
ROOMY = {"cpu": 100, "memory": "100Gi"}
SMALL_NODE = node("n", cpu=10, memory="100Gi")


def changes():
    """(id, objects, arguments, what happens, whether the pod that waits in `mine` fits then)."""
    filler = pod("filler", {"cpu": 4}, "mine", on="n")
    yield "own pod deleted", [quota("mine", MINE), filler], {}, lambda e: remove(e, filler), True
    other = pod("other", {"cpu": 4}, "other", on="n")
    yield (
        "other quota's pod deleted",
        [quota("mine", MINE), filler, quota("other", MINE), other],
        {},
        (lambda e: remove(e, other)),
        False,
    )
    yield "max grows", [quota("mine", MINE), filler], {}, lambda e: replace(e, quota("mine", {"cpu": 8})), True
    yield (
        "max grows too little",
        [quota("mine", MINE), filler],
        {},
        (lambda e: replace(e, quota("mine", {"cpu": 7, "memory": "4Gi"}))),
        False,
    )
    yield "quota deleted", [quota("mine", MINE), filler], {}, lambda e: remove(e, quota("mine", MINE)), True
    # By runtime: a sibling that only asks takes away what this one would need.
    greedy = pod("greedy", {"cpu": 100}, "theirs", **GATED)
    crowd = [quota("mine", ROOMY), quota("theirs", ROOMY, {"cpu": 8}), greedy]
    yield "sibling asks no more", crowd, {}, lambda e: remove(e, greedy), True
    second = pod("second", {"cpu": 100}, "theirs", **GATED)
    yield "siblings ask no more", [*crowd, second], {}, lambda e: (remove(e, greedy), remove(e, second)), True
    yield "one of two asks no more", [*crowd, second], {}, lambda e: remove(e, greedy), False
    yield "node added", crowd, {}, lambda e: e.insert(node("m", cpu=20, memory="100Gi")), True
    yield "too small a node added", crowd, {}, lambda e: e.insert(node("m", cpu=1, memory="100Gi")), False
    yield "sibling's guarantee shrinks", crowd, {}, (lambda e: replace(e, quota("theirs", ROOMY, {"cpu": 0}))), True
    # Pods of the default quota take from everybody.
    plain = pod("plain", {"cpu": 8}, on="n")
    yield "default quota uses less", [quota("mine", ROOMY), plain], {}, lambda e: remove(e, plain), True
    # A full parent.
    top = [quota("top", MINE, is_parent="true"), quota("mine", MINE, parent="top"), quota("twin", MINE, parent="top")]
    cousin = pod("cousin", {"cpu": 4}, "twin", on="n")
    parents = {"enableRuntimeQuota": False, "enableCheckParentQuota": True}
    yield "parent has room again", [*top, cousin], parents, lambda e: remove(e, cousin), True
    low = [quota("top", MINE, is_parent="true"), quota("mine", ROOMY, parent="top"), filler]
    yield "parent's max grows", low, {}, lambda e: replace(e, quota("top", {"cpu": 8}, is_parent="true")), True


@pytest.mark.parametrize(
    ("objects", "args", "change", "helps"), [pytest.param(*case, id=name) for name, *case in changes()]
)
def test_tried_again_when_it_fits_and_only_then(objects, args, change, helps):
    async def scenario():
        async with cluster(SMALL_NODE, *objects, args=args) as (embedded, running):
            embedded.insert(pod("waits", {"cpu": 4}, "mine"))
            await asyncio.sleep(15)
            assert where(embedded, "waits") is None
            assert running.attempts["default/waits"] == 1
            change(embedded)
            await asyncio.sleep(2)
            tries = running.attempts["default/waits"]
            return where(embedded, "waits") is not None, tries

    assert run(scenario()) == (helps, 2 if helps else 1)


@pytest.mark.parametrize("by_runtime", [True, False])
def test_pods_created_together_do_not_share_one_place(by_runtime):
    async def scenario():
        async with cluster(
            node("n", cpu=100, memory="1Ti"), quota("mine", {"cpu": 10}), args={"enableRuntimeQuota": by_runtime}
        ) as (embedded, _):
            for number, size in enumerate((9, 2, 3, 1, 4)):
                embedded.insert(pod(f"p{number}", {"cpu": size}, "mine"))
            await asyncio.sleep(20)
            sizes = {f"p{number}": size for number, size in enumerate((9, 2, 3, 1, 4))}
            return sum(size for name, size in sizes.items() if where(embedded, name))

    assert run(scenario()) == 10


def test_pods_of_other_schedulers_count():
    async def scenario():
        async with cluster(SMALL_NODE, quota("mine", ROOMY)) as (embedded, running):
            books = running.scheduler.profiles["default-scheduler"].plugins["ElasticQuota"].books
            foreign = pod("foreign", {"cpu": 3}, "mine", scheduler="other-scheduler")
            embedded.insert(foreign)
            await asyncio.sleep(1)
            waiting = dict(books.quota("mine").request), dict(books.quota("mine").used)
            remove(embedded, foreign)
            embedded.insert(pod("placed", {"cpu": 5}, "mine", scheduler="other-scheduler", on="n"))
            await asyncio.sleep(1)
            return waiting, (books.quota("mine").request, books.quota("mine").used)

    assert run(scenario()) == ((amounts(cpu=3), {}), (amounts(cpu=5), amounts(cpu=5)))


def test_numbers_outlive_restarts():
    """A busy tree, twenty restarts at random moments: every number is as before."""

    def numbers(running):
        books = running.scheduler.profiles["default-scheduler"].plugins["ElasticQuota"].books
        return {
            each.name: (
                each.request,
                each.used,
                each.runtime,
                each.child_request,
                each.scaled_min,
                {m.pod.key: m.assigned for m in books.members(each)},
            )
            for each in books.quotas()
        }

    async def scenario():
        rng = Random(7)
        embedded = Embedded()
        for thing in custom_resources():
            embedded.insert(thing)
        for name in ("default", "quotas"):
            embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        embedded.insert(node("n", cpu=60, memory="100Gi"))
        embedded.insert(quota("top", ROOMY, {"cpu": 20}, is_parent="true"))
        for name, parent, least in (("a", "top", 12), ("b", "top", 4), ("c", "", 5)):
            embedded.insert(quota(name, {"cpu": 30, "memory": "30Gi"}, {"cpu": least}, parent=parent))
        there, serial, restarts = [], 0, 0
        before = None
        while restarts < 20:
            async with scheduler_on(embedded, configuration()) as running:
                await asyncio.sleep(0.5)
                if before is not None:
                    assert numbers(running) == before
                for _ in range(rng.randrange(1, 8)):
                    if there and rng.random() < 0.4:
                        remove(embedded, there.pop(rng.randrange(len(there))))
                    else:
                        serial += 1
                        name = rng.choice(["a", "b", "c", None])
                        thing = pod(f"p{serial}", {"cpu": rng.randrange(1, 9)}, name, **rng.choice([GATED, {}]))
                        there.append(thing)
                        embedded.insert(thing)
                    await asyncio.sleep(rng.choice([0, 0.01, 1]))
                await asyncio.sleep(3)
                before = numbers(running)
            restarts += 1
        return serial

    assert run(scenario()) > 20
