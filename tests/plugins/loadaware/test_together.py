"""Together with other parts: preemption, quotas, nominated pods, Permit, resizes."""

import asyncio

from koordsched.framework.interface import Permit
from koordsched.framework.status import SUCCESS, Code, Status
from tests.plugins.elasticquota import objects as quotas
from tests.plugins.elasticquota import world as quotaworld
from tests.plugins.loadaware.objects import P16, container, metric, node, p16, pod
from tests.plugins.loadaware.running import cluster, remove, replace, where
from tests.plugins.loadaware.world import NOW, World
from tests.virtualtime import WALL_EPOCH, run

CPU = "node(s) cpu usage exceed threshold"


def test_no_victims_for_a_node_that_is_used_too_much():
    """Without its pods it is used as much by the report, and no pod goes for that."""
    low = p16("low", on="n", placed=NOW - 10)
    world = World(node(), metric(of_node=("60", "1Gi"), at=NOW), low)
    urgent = pod("urgent", {"cpu": "90"}, priority=100)
    world.put(urgent)
    found = world.explain(urgent)
    assert (found.victims, found.nominated_node or "") == ([], "")
    assert CPU in found.message or "Insufficient cpu" in found.message
    light = pod("light", priority=100)
    world.put(light)
    found = world.explain(light)
    assert (found.victims, found.nominated_node or "") == ([], "")
    assert [(each.plugin, each.reasons) for each in found.nodes] == [("LoadAwareScheduling", (CPU,))]
    assert found.message.count(CPU) == 2, "in the dry run, too"


def test_victims_for_room_where_the_load_is_low():
    """The dry run does not lower the load: a preemptor must pass with its victims' estimates."""
    for cpu, expected in (("10", ["default/low"]), ("55", [])):
        low = pod("low", {"cpu": "80"}, on="n", placed=NOW - 600)
        report = metric(of_node=(cpu, "1Gi"), at=NOW)
        report["status"]["podsMetric"] = [
            {"namespace": "default", "name": "low", "podUsage": {"resources": {"cpu": "5", "memory": "1Gi"}}}
        ]
        world = World(node(), report, low)
        urgent = p16("urgent", priority=100)
        urgent["spec"]["containers"] = [container({"cpu": "20"})]
        world.put(urgent)
        assert world.explain(urgent).victims == expected
        assert world.readings()["n", 0].room[0] == 62_879 - int(cpu) * 1000


def test_nominated_pods_do_not_count():
    world = World(node(), metric(of_node=("60", "1Gi"), at=NOW))
    nominated = p16("nominated", priority=100)
    nominated["status"]["nominatedNodeName"] = "n"
    world.put(nominated)
    light = pod("light")
    world.put(light)
    assert world.refusal(light) is None
    assert world.explain(light).any_of == ["n"]


def test_with_quotas():
    """What the load refuses uses no quota; what the quota refuses adds no load."""
    quota_points = {**quotaworld.PLUGINS, "postFilter": quotaworld.ONLY_QUOTA_PREEMPTS}
    reserve = {"enabled": [{"name": "LoadAwareScheduling"}, {"name": "ElasticQuota"}]}
    points = {**quota_points, "reserve": reserve}

    def wanting(name, size):
        thing = quotas.pod(name, {"cpu": size, "memory": "1Gi"}, "q")
        return {**thing, "spec": {**thing["spec"], "priority": 0}}

    async def scenario():
        q = quotas.quota("q", {"cpu": 30, "memory": "100Gi"}, namespace="default")
        report = metric(of_node=("50", "1Gi"), at=WALL_EPOCH + 500)
        async with cluster(node(), report, q, points=points) as (embedded, running):
            plugins = running.scheduler.profiles["default-scheduler"].plugins

            def books():
                columns = plugins["LoadAwareScheduling"].loads.columns
                used = plugins["ElasticQuota"].books.quota("q").used.get("cpu", 0) // 10**9
                return used, 62_879 - 50_000 - columns.room(0, 0)[0]

            for name, size in (("too-heavy", 20), ("fits", 10), ("too-much-quota", 25)):
                embedded.insert(wanting(name, size))
                await asyncio.sleep(2)
            seen = [books()]
            replace(embedded, metric(of_node=("0", "1Gi"), at=WALL_EPOCH + 500))
            await asyncio.sleep(15)
            places = [where(embedded, name) for name in ("too-heavy", "fits", "too-much-quota")]
            return seen, places, plugins["ElasticQuota"].books.quota("q").used["cpu"] // 10**9

    assert run(scenario()) == ([(10, 8500)], ["n", "n", None], 30)


class Hold(Permit):
    """Pods named so wait until a test lets go."""

    name = "Hold"

    def __init__(self, args, handle):
        self.handle = handle

    def permit(self, cycle, pod, row):
        return (Status(Code.WAIT), 900.0) if pod.name.startswith("held") else (SUCCESS, 0.0)


def test_pods_that_wait_on_permit_count_until_they_are_let_go():
    async def scenario():
        seen = []
        async with cluster(node(), metric(of_node=("49200m", "1Gi"), at=WALL_EPOCH), plugins=[Hold]) as (
            embedded,
            running,
        ):
            plugins = running.scheduler.profiles["default-scheduler"].plugins

            def room():
                return plugins["LoadAwareScheduling"].loads.columns.room(0, 0)[0]

            embedded.insert(p16("held"))
            for _ in range(5):
                await asyncio.sleep(60)
                replace(embedded, metric(of_node=("49200m", "1Gi"), at=embedded.clock.wall()))
                await asyncio.sleep(1)
                seen.append(room())
            embedded.insert(pod("waits"))
            await asyncio.sleep(5)
            seen.append(where(embedded, "waits"))
            (waiting,) = plugins["Hold"].handle.waiting
            waiting.reject("Hold", "let go")
            await asyncio.sleep(2)
            seen.append(where(embedded, "waits"))
            return seen

    full = 62_879 - 49_200 - 13_600
    assert run(scenario()) == [full] * 5 + [None, "n"]


def resized(requests, limits=None, **more):
    return pod("running", requests, limits, on="n", **more)


def test_a_resized_pod_is_estimated_anew():
    world = World(node(), metric(of_node=("10", "1Gi"), at=NOW))
    sizes = [
        (({"cpu": "4"}, None), 3400),
        (({"cpu": "8"}, None), 6800),
        (({"cpu": "8"}, {"cpu": "16"}), 13600),
        (({"cpu": "8"}, {"cpu": "8"}), 6800),
        ((None, {"cpu": "2"}), 1700),
    ]
    for size, estimate in sizes:
        world.put(resized(*size, placed=NOW - 5))
        assert world.readings()["n", 0].room[0] == 62_879 - 10_000 - estimate


def test_a_pod_that_shrinks_makes_room():
    async def scenario():
        running_pod = resized(P16, P16, placed=WALL_EPOCH)
        report = metric(of_node=("49200m", "1Gi"), at=WALL_EPOCH)
        async with cluster(node(), report, running_pod) as (embedded, running):
            embedded.insert(pod("waits"))
            await asyncio.sleep(15)
            before = where(embedded, "waits")
            replace(
                embedded,
                {
                    **running_pod,
                    "spec": {
                        **embedded.get("Pod", "running")["spec"],
                        "containers": [
                            {
                                **embedded.get("Pod", "running")["spec"]["containers"][0],
                                "resources": {"limits": {"cpu": "15", "memory": "32Gi"}, "requests": {"cpu": "15"}},
                            }
                        ],
                    },
                },
            )
            await asyncio.sleep(5)
            return before, where(embedded, "waits"), running.attempts["default/waits"]

    assert run(scenario()) == (None, "n", 2)


def test_a_pod_that_is_deleted_while_its_binding_is_under_way():
    async def slow(call, proceed):
        if call.path.endswith("/binding"):
            await asyncio.sleep(20)
        return await proceed()

    async def scenario():
        async with cluster(node(), metric(of_node=("10", "1Gi"), at=WALL_EPOCH), fault=slow) as (embedded, running):
            columns = running.scheduler.profiles["default-scheduler"].plugins["LoadAwareScheduling"].loads.columns
            embedded.insert(p16("short"))
            await asyncio.sleep(5)
            seen = [columns.room(0, 0)[0]]
            remove(embedded, p16("short"))
            await asyncio.sleep(60)
            return [*seen, columns.room(0, 0)[0]]

    assert run(scenario()) == [62_879 - 10_000 - 13_600, 62_879 - 10_000]
