"""Pods refused for CPUs or NUMA nodes, on the real scheduler: tried again when it helps, only then."""

import asyncio

import pytest

from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.plugins.nodenumaresource.naivemachine import NODE
from tests.plugins.nodenumaresource.running import cluster, put, remove, replace, where
from tests.plugins.nodenumaresource.world import complete, lsr, named, on
from tests.virtualtime import run

T1, T2 = detail(2, 1, 4), detail(2, 1, 8)
ZONES = [("8", "64Gi"), ("8", "64Gi")]
KUBELET = "kubelet.koordinator.sh/cpu-manager-policy"
WHOLE = {"requiredCPUBindPolicy": "FullPCPUs"}

CORES = lsr("waits", cpu="4", spec=WHOLE)
"""Wants two whole cores."""
ALIGNED = pod("waits", "4", "1Gi")
"""Goes where the node says so to one NUMA node."""
PREFERRING = lsr("waits", cpu="4")
"""Refused when something is reserved for it: the filter of a node without policies does not count CPUs."""


def held(name, cpus, **more):
    """A pod that holds CPUs and requests little."""
    return complete(holder(name, cpus, cpu="1", **more))


def reserving(cpus, detail=T1, zones=()):
    return topology(detail, zones, annotations={KUBELET: {"policy": "static", "reservedCPUs": cpus}})


def of_zone(name, numa, cpu):
    """A pod that was given CPU of a NUMA node."""
    return complete(holder(name, None, {numa: (cpu, "0")}, "1", qos="LS"))


def finish(embedded, name):
    thing = embedded.get("Pod", name)
    replace(embedded, {**thing, "status": {**thing["status"], "phase": "Succeeded"}})


def shrink(embedded, name, cpu):
    """Resized in place."""
    thing = embedded.get("Pod", name)
    (container,) = thing["spec"]["containers"]
    smaller = {**container, "resources": {"requests": {"cpu": cpu}}}
    replace(embedded, {**thing, "spec": {**thing["spec"], "containers": [smaller]}})


def labelled(key, value):
    thing = node()
    thing["metadata"]["labels"][key] = value
    return thing


FULL = [node(), topology(T1), held("low", "0-7"), held("high", "8-15")]
SCATTERED = [node(), topology(T1), held("a", "0,2"), held("b", "1,3"), held("rest", "4-15")]
SINGLE = node(cpu="64", numa_topology_policy="SingleNUMANode")
ZONED = [SINGLE, topology(T1, ZONES), of_zone("a", 0, "6"), of_zone("b", 1, "3"), of_zone("c", 1, "3")]
AMPLIFIED = [
    node(cpu="24", ratio=1.5),
    topology(T1),
    complete(holder("ls", cpu="10", qos="LS")),
    complete(holder("lsr", "0-3", cpu="4")),
]
"""10 and 4 that are worth 6 of 24 are in use; the pod that waits is worth 9."""
LARGE = lsr("waits", cpu="6", spec=WHOLE)


def changes():
    """(id, the pod that waits, objects, what happens, whether it passes then)."""
    yield "pod deleted", CORES, FULL, lambda e: remove(e, held("low", "0-7")), True
    yield "pod finished", CORES, FULL, lambda e: finish(e, "low"), True
    yield "halves of cores freed", CORES, SCATTERED, lambda e: remove(e, held("a", "0,2")), False
    yield "cores freed", CORES, SCATTERED, lambda e: remove(e, held("rest", "4-15")), True
    shared = complete(holder("ls", cpu="1", qos="LS"))
    yield "pod without CPUs deleted", CORES, [*FULL, shared], lambda e: remove(e, shared), False
    second = held("second", "0-7")
    yield "CPUs that another pod holds, too", CORES, [*FULL, second], lambda e: remove(e, second), False
    other = [
        named(node(), "m2"),
        named(topology(T1), "m2"),
        on(held("far", "0-15"), "m2"),
        on(held("far2", "0-13"), "m2"),
    ]
    yield "pod of another node deleted", CORES, [*FULL, *other], lambda e: remove(e, held("far2", "")), False
    yield "a pod shrinks and keeps its CPUs", CORES, FULL, lambda e: shrink(e, "low", "500m"), False

    yield "more CPUs", CORES, FULL, lambda e: replace(e, topology(T2)), True
    yield "the same report", CORES, FULL, lambda e: replace(e, topology(T1)), False
    yield "other zones", CORES, FULL, lambda e: replace(e, topology(T1, ZONES)), False
    yield "fewer CPUs", CORES, FULL, lambda e: replace(e, topology(detail(1, 1, 4))), False
    kept = [node(), reserving("0-15")]
    yield "CPUs no longer reserved", CORES, kept, lambda e: replace(e, reserving("4-15")), True
    yield "too few CPUs no longer reserved", CORES, kept, lambda e: replace(e, reserving("3-15")), False
    yield "halves no longer reserved", CORES, kept, lambda e: replace(e, reserving("1,3,5,7,8-15")), False
    yield "first report", CORES, [node()], lambda e: put(e, topology(T1)), True
    yield "first report, without CPUs", CORES, [node()], lambda e: put(e, topology(None, ZONES)), False
    yield "CPUs known at last", CORES, [node(), topology(None)], lambda e: replace(e, topology(T1)), True
    yield "report deleted", CORES, FULL, lambda e: remove(e, topology(T1)), False

    spread = [node(cpu_bind_policy="SpreadByPCPUs"), topology(T1)]
    yield "bind policy lifted", CORES, spread, lambda e: replace(e, node()), True
    yield "bind policy of the pod", CORES, spread, lambda e: replace(e, node(cpu_bind_policy="FullPCPUsOnly")), True
    yield "another label", CORES, FULL, lambda e: replace(e, labelled("example.com/x", "y")), False
    yield "another strategy", CORES, FULL, lambda e: replace(e, node(numa_allocate_strategy="MostAllocated")), False
    restricted = pod("waits", "4", "1Gi", numa={"numaTopologyPolicy": "Restricted"})
    best = [node(numa_topology_policy="BestEffort"), topology(T1, ZONES)]
    yield "policy of the pod", restricted, best, lambda e: replace(e, node(numa_topology_policy="Restricted")), True
    yield "yet another policy", restricted, best, lambda e: replace(e, SINGLE), False

    yield "the right NUMA node freed", ALIGNED, ZONED, lambda e: remove(e, of_zone("a", 0, "6")), True
    yield "enough of a NUMA node freed", ALIGNED, ZONED, lambda e: remove(e, of_zone("b", 1, "3")), True
    small = [SINGLE, topology(T1, ZONES), of_zone("a", 0, "7"), of_zone("b", 1, "6"), of_zone("c", 1, "1")]
    yield "too little of a NUMA node freed", ALIGNED, small, lambda e: remove(e, of_zone("c", 1, "1")), False
    larger = topology(T1, [("12", "64Gi"), ("8", "64Gi")])
    yield "a NUMA node has more", ALIGNED, ZONED, lambda e: replace(e, larger), True
    more_memory = topology(T1, [("8", "128Gi"), ("8", "128Gi")])
    yield "a NUMA node has more of what is not short", ALIGNED, ZONED, lambda e: replace(e, more_memory), False
    yield "no policy any more", ALIGNED, ZONED, lambda e: replace(e, node()), True

    yield "amplified: the node grows", LARGE, AMPLIFIED, lambda e: replace(e, node(cpu="25", ratio=1.5)), True
    yield "amplified: not enough", LARGE, AMPLIFIED, lambda e: replace(e, node(cpu="24500m", ratio=1.5)), False
    yield "amplified: memory grows", LARGE, AMPLIFIED, lambda e: replace(e, node("24", "512Gi", ratio=1.5)), False
    yield "amplified: a pod shrinks", LARGE, AMPLIFIED, lambda e: shrink(e, "ls", "9"), True
    yield "amplified: a pod shrinks too little", LARGE, AMPLIFIED, lambda e: shrink(e, "ls", "9500m"), False
    yield "amplified: less", LARGE, AMPLIFIED, lambda e: replace(e, node(cpu="24", ratio=1.2)), True

    yield "node added", CORES, [*FULL, named(topology(T1), "m2")], lambda e: put(e, named(node(), "m2")), True
    yield "node added without report", CORES, FULL, lambda e: put(e, named(node(), "m2")), False
    taken = [*FULL, named(topology(T1), "m2"), on(held("all", "0-14"), "m2")]
    yield "full node added", CORES, taken, lambda e: put(e, named(node(), "m2")), False

    yield "preferring: pod deleted", PREFERRING, FULL, lambda e: remove(e, held("low", "0-7")), True
    three = [node(), topology(T1), held("low", "0-2"), held("high", "3-15")]
    yield "preferring: too few CPUs freed", PREFERRING, three, lambda e: remove(e, held("low", "0-2")), False
    yield "preferring: pod without CPUs deleted", PREFERRING, [*FULL, shared], lambda e: remove(e, shared), False
    yield "preferring: the same CPUs", PREFERRING, FULL, lambda e: replace(e, topology(T1, ZONES)), False
    yield "preferring: the node grows", PREFERRING, FULL, lambda e: replace(e, node(cpu="65")), False


@pytest.mark.parametrize(
    ("waiting", "objects", "change", "helps"), [pytest.param(*case, id=name) for name, *case in changes()]
)
def test_tried_again_when_it_fits_and_only_then(waiting, objects, change, helps):
    async def scenario():
        async with cluster(*objects) as (embedded, running):
            put(embedded, waiting)
            await asyncio.sleep(15)
            assert where(embedded, "waits") is None
            assert running.attempts["default/waits"] == 1
            change(embedded)
            await asyncio.sleep(2)
            return where(embedded, "waits") is not None, running.attempts["default/waits"]

    assert run(scenario()) == (helps, 2 if helps else 1)


def test_each_is_woken_by_what_helps_it():
    """CPUs come free bit by bit: those that fit are tried, and the others are not."""
    sizes = {"one": "1", "two": "2", "four": "4", "eight": "8"}
    waiting = {name: lsr(name, cpu=cpu, spec={"requiredCPUBindPolicy": "SpreadByPCPUs"}) for name, cpu in sizes.items()}

    async def scenario():
        pods = [held(f"h{core}", f"{2 * core}-{2 * core + 1}") for core in range(8)]
        async with cluster(node(), topology(T1), *pods) as (embedded, running):
            for thing in waiting.values():
                put(embedded, thing)
            await asyncio.sleep(15)
            seen = []
            for thing in pods:
                remove(embedded, thing)
                await asyncio.sleep(15)
                seen.append([name for name in sizes if where(embedded, name)])
            return seen, running.attempts

    seen, attempts = run(scenario())
    # One of each core: `one` leaves half a core; two cores for `two`; four for `four`; `eight` lacks some to the end.
    assert seen[0] == ["one"]
    assert "two" in seen[2]
    assert "four" in seen[-1]
    assert "eight" not in seen[-1] or attempts["default/eight"] == 2
    assert all(attempts[f"default/{name}"] == (2 if name in seen[-1] else 1) for name in sizes)


class Hold(Permit):
    """Pods named so wait until a test lets go; afterwards they are refused."""

    name = "Hold"

    def __init__(self, args, handle):
        self.handle = handle
        self.held = set()

    def permit(self, cycle, pod, row):
        if not pod.name.startswith("held"):
            return SUCCESS, 0.0
        if pod.name in self.held:
            return Status(Code.UNSCHEDULABLE, ("held before",)), 0.0
        self.held.add(pod.name)
        return Status(Code.WAIT), 3600.0


@pytest.mark.parametrize("waiting", [CORES, PREFERRING], ids=["requiring", "preferring"])
def test_an_assumption_that_is_taken_back_wakes(waiting):
    async def scenario():
        async with cluster(node(), topology(T1), plugins=[Hold]) as (embedded, running):
            put(embedded, lsr("held", cpu="14"))
            await asyncio.sleep(3)
            put(embedded, waiting)
            await asyncio.sleep(60)
            before = where(embedded, "waits"), running.attempts["default/waits"]
            (permit,) = {profile.plugins["Hold"] for profile in running.scheduler.profiles.values()}
            (waits,) = permit.handle.waiting
            waits.reject("Hold", "let go")
            await asyncio.sleep(3)
            return before, (where(embedded, "waits"), running.attempts["default/waits"])

    assert run(scenario()) == ((None, 1), ("m1", 2))


def test_reports_every_few_seconds_wake_no_pod():
    """What changes in them is what pods do not wait for."""

    async def scenario():
        async with cluster(*FULL) as (embedded, running):
            put(embedded, CORES)
            put(embedded, {**PREFERRING, "metadata": {**PREFERRING["metadata"], "name": "waits-2", "uid": "waits-2"}})
            await asyncio.sleep(15)
            for at in range(60):
                report = topology(T1, [("8", f"{64 + at}Gi")] * 2, annotations={f"{NODE}other": at})
                replace(embedded, report)
                await asyncio.sleep(3)
            return running.attempts

    assert set(run(scenario()).values()) == {1}
