"""Gangs of pods that want devices: placed together, each with its own, or not at all."""

import asyncio
import json
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.embedded import scheduler_on
from tests.engine.state import everything
from tests.plugins.coscheduling.running import API, GANG, LABEL
from tests.plugins.coscheduling.topology.objects import BLOCK, SPINE, SPINES_AND_BLOCKS, topology
from tests.plugins.deviceshare.machines import bound, g8, h8, m2, pod, used, used_nic
from tests.plugins.deviceshare.running import complete, condition_of, given, held, put, remove, where
from tests.plugins.deviceshare.test_together import in_quota, limits, names_of, offering
from tests.plugins.deviceshare.world import ALLOCATED, PROFILE, World, configuration, profile
from tests.plugins.elasticquota import objects as quotas
from tests.plugins.loadaware.running import api_server
from tests.scheduling.kubelet import Kubelet
from tests.virtualtime import run

GANGS = "Coscheduling"
BY_PRIORITY = {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}
ONLY_GANGS = {"disabled": [{"name": "*"}], "enabled": [{"name": GANGS}]}


def document(args=None, *, devices=None, more=None, **points):
    """Both plugins, and `more` by name with arguments; Coscheduling alone preempts."""
    enabled = {GANGS: args or {}, **(more or {})}
    return configuration(profile(devices, more=enabled, queueSort=BY_PRIORITY, postFilter=ONLY_GANGS, **points))


def group(minimum, name="g", **annotations):
    annotations = {GANG + key.replace("_", "-"): text for key, text in annotations.items()}
    meta = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": minimum}}


def member(name, gang="g", **wanted):
    return pod(name, labels={LABEL: gang, **wanted.pop("labels", {})}, **wanted)


def members(count, gang="g", **wanted):
    return [member(f"{gang}-{number}", gang, **wanted) for number in range(count)]


@asynccontextmanager
async def gangs(*objects, args=None, devices=None, more=None, gates=(), **points):
    """A scheduler on a cluster with these objects, with a kubelet that ends evicted pods."""
    embedded = api_server(*map(complete, objects))
    Kubelet(embedded)
    settings = document(args, devices=devices, more=more, **points)
    async with scheduler_on(embedded, settings, gates=gates) as running:
        await asyncio.sleep(1)
        yield embedded, running


def placed(embedded, *pods):
    """{pod: (node, {type: minors})} of those that are bound."""
    names = [each["metadata"]["name"] for each in pods]
    return {name: (on, given(embedded, name)) for name in names if (on := where(embedded, name)) is not None}


def shares(embedded, pods):
    """{(node, type, minor): how often it was given}."""
    found = {}
    for node, devices in placed(embedded, *pods).values():
        for kind, minors in devices.items():
            for minor in minors:
                found[node, kind, minor] = found.get((node, kind, minor), 0) + 1
    return found


async def created(embedded, *things, seconds=10):
    for thing in things:
        put(embedded, thing)
    await asyncio.sleep(seconds)


# --- all, or none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "count", "wanted", "expected"),
    [
        (m2, 2, {"gpu": 100}, {0: 1, 1: 1}),
        (m2, 4, {"gpu": 50}, {0: 2, 1: 2}),
        (m2, 3, {"core": 30, "memory": 2 << 30}, {0: 2, 1: 1}),
        (g8, 2, {"gpu": 400}, dict.fromkeys(range(8), 1)),
        (g8, 16, {"gpu": 50}, dict.fromkeys(range(8), 2)),
        (lambda: h8(policy="Honor"), 4, {"gpu": 200}, dict.fromkeys(range(8), 1)),
        (h8, 2, {"gpu": 400, "partition": {}}, dict.fromkeys(range(8), 1)),
    ],
    ids=["whole", "halves", "parts by memory", "four each", "halves of a tree", "partitions", "required partitions"],
)
def test_all_members_get_their_devices(machine, count, wanted, expected):
    async def scenario():
        async with gangs(*machine(), group(count)) as (embedded, running):
            pods = members(count, **wanted)
            await created(embedded, *pods[:-1])
            early = shares(embedded, pods[:-1]), held(running)
            await created(embedded, pods[-1])
            return early, shares(embedded, pods), held(running)

    early, found, books = run(scenario())
    assert early == ({}, {})  # the gang is not complete
    assert found == {("n", "gpu", minor): times for minor, times in expected.items()}
    assert set(books) == {("gpu", minor) for minor in expected}


@pytest.mark.parametrize(
    ("machine", "there", "count", "wanted", "text"),
    [
        (m2, (), 3, {"gpu": 100}, "Insufficient gpu devices"),
        (m2, (), 5, {"gpu": 50}, "Insufficient gpu devices"),
        (g8, (3,), 8, {"gpu": 100}, "Insufficient GPU Devices"),
        (lambda: h8(policy="Honor"), (0,), 4, {"gpu": 200}, "Insufficient Partitioned GPU Devices"),
    ],
    ids=["whole", "halves", "of a tree", "partitions"],
)
def test_one_too_many_and_none_is_placed(machine, there, count, wanted, text):
    """The books are as if nothing had been tried, whatever is tried after."""

    async def scenario():
        pods = members(count, **wanted)
        async with gangs(*machine(), *(used(minor) for minor in there), group(count)) as (embedded, running):
            before = held(running)
            await created(embedded, *pods, seconds=30)
            after = held(running), shares(embedded, pods)
            messages = [condition_of(embedded, each["metadata"]["name"])[1] for each in pods]
            written = [ALLOCATED in each["metadata"].get("annotations", {}) for each in pods]
            for gone in (pods[0], group(count)):
                remove(embedded, gone)
            put(embedded, group(count - 1))
            await asyncio.sleep(30)
            return before, after, messages, written, shares(embedded, pods[1:])

    before, (after, found), messages, written, finally_placed = run(scenario())
    assert (after, found, any(written)) == (before, {}, False)
    assert sum(message.startswith(f"0/1 nodes are available: 1 {text}") for message in messages) == 1
    assert all("gets rejected due to member Pod" in message or text in message for message in messages)
    assert sum(finally_placed.values()) == (count - 1) * max(1, wanted["gpu"] // 100)


# --- several types, quotas ------------------------------------------------------------------------------------


def test_each_member_gets_gpus_and_the_nics_beside_them():
    wanted = {
        "gpu": 200,
        "rdma": 1,
        "joint": {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
        "hints": {"rdma": {"vfSelector": {}}},
    }

    async def scenario(count, *there):
        async with gangs(*g8(), *there, group(count)) as (embedded, running):
            pods = members(count, **wanted)
            await created(embedded, *pods)
            texts = [
                embedded.get("Pod", name)["metadata"]["annotations"][ALLOCATED] for name in placed(embedded, *pods)
            ]
            functions = [json.loads(text)["rdma"][0]["extension"]["vfs"][0]["busID"] for text in texts]
            return sorted(placed(embedded, *pods).values(), key=str), sorted(functions), held(running)

    found, functions, books = run(scenario(4))
    pairs = [([2 * at, 2 * at + 1], [at + 1]) for at in range(4)]
    assert found == [("n", {"gpu": gpus, "rdma": nics}) for gpus, nics in pairs]
    assert functions == [f"0000:{bus}:00.2" for bus in ("1f", "3f", "5f", "7f")]
    assert set(books) == {("gpu", n) for n in range(8)} | {("rdma", n) for n in range(1, 5)}
    # Three members would have their NICs; the fourth has none, so no member holds a virtual function.
    found, functions, books = run(scenario(4, used_nic(4)))
    assert (found, functions, set(books)) == ([], [], {("rdma", 4)})
    found, _, _ = run(scenario(3, used_nic(4)))
    assert len(found) == 3


def test_a_quota_of_gpus_holds_for_the_gang_as_a_whole():
    """What the quota refuses holds no device; what devices refuse uses no quota."""

    async def scenario():
        q = quotas.quota("q", limits(**{"koordinator.sh__gpu": 300}), namespace="default")
        objects = [*offering(g8(), 800), q, group(4, "large"), group(3, "small"), group(6, "crowd")]
        async with gangs(*objects, more={"ElasticQuota": {}}) as (embedded, running):
            books = running.scheduler.profiles[PROFILE].plugins["ElasticQuota"].books

            def in_use():
                return books.quota("q").used.get("koordinator.sh/gpu", 0) // 10**9, len(held(running))

            large, small = (members(n, name, gpu=100) for n, name in ((4, "large"), (3, "small")))
            crowd = members(6, "crowd", gpu=100)
            await created(embedded, *(in_quota(each, "q") for each in large), seconds=20)
            seen = [in_use()]
            texts = [condition_of(embedded, each["metadata"]["name"])[1] for each in large]
            await created(embedded, *(in_quota(each, "q") for each in small), seconds=20)
            seen.append(in_use())
            await created(embedded, *crowd, seconds=20)  # of the default quota: one GPU too few
            seen.append(in_use())
            return seen, texts, shares(embedded, [*large, *small, *crowd])

    seen, texts, found = run(scenario())
    assert seen == [(0, 0), (300, 3), (300, 3)]
    assert any("Insufficient quotas" in text for text in texts), texts
    assert found == {("n", "gpu", minor): 1 for minor in range(3)}


# --- preemption -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [g8, lambda: h8(policy="Honor")], ids=["tree", "partitions"])
def test_a_gang_preempts_running_pods_and_gets_their_gpus(machine):
    """Room is made for all of it, and only as much as it needs; others do not slip in while the victims go."""

    async def scenario():
        args = {"enablePreemption": True}
        async with gangs(*machine(), group(2), args=args) as (embedded, running):
            for name, count, priority in (("low", 4, 0), ("high", 4, 500)):
                await created(embedded, pod(name, priority=priority, gpu=100 * count), seconds=1)
            before = given(embedded, "low"), given(embedded, "high")
            pods = members(2, gpu=200)
            await created(embedded, *pods, seconds=0.2)
            await created(embedded, pod("late", priority=10, gpu=100), seconds=60)
            return before, names_of(embedded), placed(embedded, *pods), where(embedded, "late"), set(held(running))

    before, exists, found, late, books = run(scenario())
    assert before == ({"gpu": [0, 1, 2, 3]}, {"gpu": [4, 5, 6, 7]})
    assert exists == {"high", "late", "g-0", "g-1"}
    assert sorted(devices["gpu"] for _, devices in found.values()) == [[0, 1], [2, 3]]
    assert late is None
    assert books == {("gpu", minor) for minor in range(8)}


def test_no_pod_is_evicted_for_a_gang_that_would_not_fit_even_so():
    async def scenario():
        async with gangs(*g8(), group(3), args={"enablePreemption": True}) as (embedded, running):
            for name, count, priority in (("low", 4, 0), ("high", 4, 500)):
                await created(embedded, pod(name, priority=priority, gpu=100 * count), seconds=1)
            before = held(running)
            pods = members(3, gpu=200)
            await created(embedded, *pods, seconds=60)
            return before == held(running), names_of(embedded), placed(embedded, *pods)

    same, exists, found = run(scenario())
    assert same
    assert found == {}
    assert {"low", "high"} <= exists


# --- network topology ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "count", "wanted", "expected"),
    [
        ({"n1": range(5), "n3": ()}, 6, {"gpu": 200}, {"n3": 4, "n4": 2}),
        ({"n1": range(4), "n3": range(7)}, 6, {"gpu": 200}, {"n1": 2, "n2": 4}),
        ({"n1": (), "n3": (0,)}, 16, {"gpu": 100}, {"n1": 8, "n2": 8}),
        ({"n1": range(4), "n3": range(4)}, 7, {"gpu": 200}, {}),
        ({"n1": (), "n3": (1, 3)}, 32, {"gpu": 50}, {"n1": 16, "n2": 16}),
    ],
)
def test_a_gang_of_gpu_pods_is_gathered_by_what_nodes_have_of_devices(taken, count, wanted, expected):
    """By CPU and memory all members would fit anywhere."""
    spec = json.dumps({"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]})

    async def scenario():
        nodes = []
        for name, block in (("n1", "b1"), ("n2", "b1"), ("n3", "b2"), ("n4", "b2")):
            machine, report = g8(name)
            machine["metadata"]["labels"] |= {SPINE: "s", BLOCK: block}
            nodes += [machine, report, *(used(minor, node=name) for minor in taken.get(name, ()))]
        things = [*nodes, topology(*SPINES_AND_BLOCKS), group(count, network_topology_spec=spec)]
        gates = ("NetworkTopologyManager=true",)
        async with gangs(*things, args={"awareNetworkTopology": True}, gates=gates) as (embedded, running):
            before = {name: held(running, name) for name in ("n1", "n2", "n3", "n4")}
            pods = members(count, **wanted)
            await created(embedded, *pods, seconds=20)
            found = placed(embedded, *pods)
            after = {name: held(running, name) for name in before}
            return found, before == after, shares(embedded, pods)

    found, same, given_out = run(scenario())
    counts = {}
    for node, _ in found.values():
        counts[node] = counts.get(node, 0) + 1
    assert counts == expected
    assert same == (not expected)
    assert all(times * min(wanted["gpu"], 100) <= 100 for times in given_out.values())


# --- restarts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_scheduler_that_starts_knows_what_a_gang_holds(seed):
    """In whatever order objects are handled; a member that comes later gets what is left."""
    rng = Random(seed)
    share = {"core": 100, "ratio": 100, "memory": 80 << 30}
    there = [
        bound(member(f"g-{at}", gpu=200), f"g-{at}", gpu=[(2 * at, share), (2 * at + 1, share)]) for at in range(3)
    ]
    for each in there:
        each["metadata"]["labels"] = {LABEL: "g"}
    objects = [*g8(), group(3), *there]
    expected = World(*objects, document=document())
    for _ in range(4):
        rng.shuffle(objects)
        world = World(*objects, document=document())
        assert world.books() == expected.books()
    objects.append(member("g-3", gpu=200))
    rng.shuffle(objects)

    async def scenario():
        async with gangs(*objects) as (embedded, running):
            await asyncio.sleep(10)
            return given(embedded, "g-3"), set(held(running))

    assert run(scenario()) == ({"gpu": [6, 7]}, {("gpu", minor) for minor in range(8)})


# --- explanations ------------------------------------------------------------------------------------------------


def explained_world():
    """Room for 14 GPUs, and for seven pairs with the NIC beside them."""
    wanted = {"gpu": 200, "rdma": 1, "joint": {"deviceTypes": ["gpu", "rdma"]}, "hints": {"rdma": {"vfSelector": {}}}}
    jobs = {"small": members(3, "small", gpu=50), "large": members(8, "large", gpu=200)}
    jobs |= {"pairs": members(7, "pairs", **wanted), "many": members(8, "many", **wanted)}
    groups = [group(len(pods), name) for name, pods in jobs.items()]
    things = [*g8("n0"), *g8("n1"), used(0, 1, node="n0"), *groups, *(each for pods in jobs.values() for each in pods)]
    return World(*things, document=document())


def test_what_explain_tries_leaves_no_trace():
    """Columns, bit for bit, with gangs that fit and gangs that do not."""
    world = explained_world()
    everything(world.offline)  # plugins that are asked for the first time add columns
    before, books = everything(world.offline), world.books()
    found = {name: world.offline.explain(f"default/{name}-0").job for name in ("small", "large", "pairs", "many")}
    assert everything(world.offline) == before
    assert world.books() == books
    assert {name: job.complete for name, job in found.items()} == {
        "small": True,
        "large": False,
        "pairs": True,
        "many": False,
    }
    assert [(job.refused, job.message.split(".")[0]) for job in (found["large"], found["many"])] == [
        ("default/large-7", "0/2 nodes are available: 2 Insufficient GPU Devices"),
        ("default/many-7", "0/2 nodes are available: 2 Insufficient GPU Devices"),
    ]


def test_simulate_places_all_or_none():
    world = explained_world()
    before = world.books()
    for name, count in (("large", 8), ("many", 8)):
        answers = [world.offline.schedule(f"default/{name}-{at}") for at in range(count)]
        assert not any(each.node for each in answers)
        assert all(each.message for each in answers)
        assert world.books() == before
    answers = [world.offline.schedule(f"default/pairs-{at}") for at in range(7)]
    assert sorted(each.node for each in answers) == ["n0"] * 3 + ["n1"] * 4
    taken = {name: set(state["used"]) for name, state in world.books().items()}
    gpus = {("gpu", minor) for minor in range(8)}
    assert taken == {"n0": gpus | {("rdma", n) for n in (2, 3, 4)}, "n1": gpus | {("rdma", n) for n in (1, 2, 3, 4)}}
