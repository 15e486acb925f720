"""Pods refused by loads, on the real scheduler over the embedded API server: tried again when it helps, only then."""

import asyncio

import pytest

from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from tests.plugins.loadaware.objects import measured, metric, node, p16, pod
from tests.plugins.loadaware.running import cluster, remove, replace, where
from tests.virtualtime import WALL_EPOCH, run

LATER = WALL_EPOCH + 86400.0


def using(cpu, memory="1Gi", name="n", at=LATER, **more):
    """A report that does not expire within the test."""
    return metric(name, (cpu, memory), at=at, **more)


def recent(name="recent"):
    return p16(name, on="n", placed=LATER)


FULL = [node(), using("70")]
# 62 of 96 CPUs are 65 percent; the pod that waits needs a quarter of one.
TIGHT = [node(), using("62"), recent()]


def changes():
    """(id, objects, what happens, whether the pod that waits passes then)."""
    yield "report eases", FULL, lambda e: replace(e, using("60")), True
    yield "report eases too little", FULL, lambda e: replace(e, using("63")), False
    yield "report of the same", FULL, lambda e: replace(e, using("70")), False
    yield "report of more", FULL, lambda e: replace(e, using("80")), False
    yield "report eases what is not short", FULL, lambda e: replace(e, using("70", "0")), False
    yield "report eases, and memory is short", FULL, lambda e: replace(e, using("60", "511Gi")), False
    yield "report deleted", FULL, lambda e: remove(e, using("70")), True
    yield "recent pod deleted", TIGHT, lambda e: remove(e, recent()), True
    yield (
        "recent pod reported",
        TIGHT,
        (lambda e: replace(e, using("62", pods=[measured("recent", "16", "32Gi")]))),
        True,
    )
    yield "another recent pod stays", [*TIGHT, recent("other")], lambda e: remove(e, recent()), False
    yield "recent pod finishes", TIGHT, lambda e: finish(e, "recent"), True
    yield "threshold raised", FULL, lambda e: replace(e, node(thresholds={"usageThresholds": {"cpu": 80}})), True
    yield (
        "threshold raised too little",
        FULL,
        (lambda e: replace(e, node(thresholds={"usageThresholds": {"cpu": 70}}))),
        False,
    )
    yield "threshold lifted", FULL, lambda e: replace(e, node(thresholds={"usageThresholds": {"cpu": 0}})), True
    yield "the node grows", FULL, lambda e: replace(e, node(cpu="192")), True
    yield "the node grows, not really", FULL, lambda e: replace(e, node(cpu="192", raw={"cpu": 96})), False
    yield "annotation of something else", FULL, lambda e: replace(e, annotated("other", "x")), False
    yield "node added", FULL, lambda e: e.insert(node("m")), True
    yield "busy node added", [*FULL, using("80", name="m")], lambda e: e.insert(node("m")), False
    yield "idle node added", [*FULL, using("20", name="m")], lambda e: e.insert(node("m")), True
    yield (
        "pod of another node deleted",
        [*FULL, node("m"), using("70", name="m"), p16("far", on="m")],
        (lambda e: remove(e, p16("far"))),
        False,
    )


def annotated(key, value):
    thing = node()
    thing["metadata"]["annotations"][key] = value
    return thing


def finish(embedded, name):
    thing = embedded.get("Pod", name)
    replace(embedded, {**thing, "status": {**thing["status"], "phase": "Succeeded"}})


@pytest.mark.parametrize(("objects", "change", "helps"), [pytest.param(*case, id=name) for name, *case in changes()])
def test_tried_again_when_it_fits_and_only_then(objects, change, helps):
    async def scenario():
        async with cluster(*objects) as (embedded, running):
            embedded.insert(pod("waits"))
            await asyncio.sleep(15)
            assert where(embedded, "waits") is None
            assert running.attempts["default/waits"] == 1
            change(embedded)
            await asyncio.sleep(2)
            return where(embedded, "waits") is not None, running.attempts["default/waits"]

    assert run(scenario()) == (helps, 2 if helps else 1)


def test_each_is_woken_by_what_helps_it():
    """Pods of production have thresholds of their own; a large pod needs more than a small one."""
    args = {"prodUsageThresholds": {"cpu": 20}, "usageThresholds": {"cpu": 65}}
    prod, small, large = pod("prod", {"cpu": "1"}), pod("small"), pod("large", {"kubernetes.io/batch-cpu": "16000"})
    large["spec"]["priority"] = 5000

    async def scenario():
        runs = p16("runs", on="n", placed=WALL_EPOCH - 3600)
        busy = using("70", pods=[measured("runs", "25", "1Gi")])
        async with cluster(node(**{"kubernetes.io/batch-cpu": "90000"}), busy, runs, args=args) as (embedded, running):
            for thing in (prod, small, large):
                embedded.insert(thing)
            await asyncio.sleep(15)
            seen = [dict(running.attempts)]
            for cpu, of_prod in (("62", "25"), ("62", "10"), ("20", "10")):
                replace(embedded, using(cpu, pods=[measured("runs", of_prod, "1Gi")]))
                await asyncio.sleep(15)
                seen.append({name: where(embedded, name) is not None for name in ("prod", "small", "large")})
            return seen, {key.partition("/")[2]: tries for key, tries in running.attempts.items()}

    seen, attempts = run(scenario())
    assert seen[1:] == [
        {"prod": False, "small": True, "large": False},
        {"prod": True, "small": True, "large": False},
        {"prod": True, "small": True, "large": True},
    ]
    assert attempts == {"prod": 2, "small": 2, "large": 2}


class Hold(Permit):
    """Pods of this name wait until a test lets go."""

    name = "Hold"

    def __init__(self, args, handle):
        self.handle = handle

    def permit(self, cycle, pod, row):
        held = pod.name.startswith("held")
        return (Status(Code.WAIT), 3600.0) if held else (SUCCESS, 0.0)


def test_an_assumption_that_is_taken_back_wakes():
    async def scenario():
        held = p16("held")
        async with cluster(node(), using("49200m"), plugins=[Hold]) as (embedded, running):
            embedded.insert(held)
            await asyncio.sleep(3)
            embedded.insert(pod("waits"))
            await asyncio.sleep(60)
            before = where(embedded, "waits"), running.attempts["default/waits"]
            (plugin,) = {profile.plugins["Hold"] for profile in running.scheduler.profiles.values()}
            (waiting,) = plugin.handle.waiting
            waiting.reject("Hold", "let go")
            await asyncio.sleep(3)
            return before, (where(embedded, "waits"), running.attempts["default/waits"])

    assert run(scenario()) == ((None, 1), ("n", 2))
