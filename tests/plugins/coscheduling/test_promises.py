"""What members of a gang are promised, and read, while the gang waits."""

import asyncio

import pytest

from tests.plugins.coscheduling.running import GANG, GangCluster, configuration, scheduling
from tests.virtualtime import run


def pod(cluster, name):
    return cluster.get("Pod", name)


def put(cluster, name, cpu, priority=0, nominated="", gang=None, disk=None, needed=2, node=None, **options):
    annotations = {GANG + "name": gang, GANG + "min-available": str(needed)} if gang else {}
    annotations |= {GANG + key.replace("_", "-"): text for key, text in options.items()}
    cluster.insert(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "schedulerName": "default-scheduler",
                "priority": priority,
                "nodeSelector": {"disk": disk} if disk else {},
                **({"nodeName": node} if node else {}),
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Pending", **({"nominatedNodeName": nominated} if nominated else {})},
        }
    )


def test_a_gang_that_has_no_place_keeps_no_promise_for_one_member():
    async def main():
        cluster = GangCluster(nodes=("n1",), cpu="4")
        put(cluster, "m-1", "1", priority=10, nominated="n1", gang="g")
        put(cluster, "m-2", "5", priority=10, gang="g")
        put(cluster, "other", "4")
        async with scheduling(cluster, leads=False):
            await asyncio.sleep(15)
        assert not pod(cluster, "m-1")["status"].get("nominatedNodeName")
        assert pod(cluster, "other")["spec"].get("nodeName") == "n1"

    run(main())


PREEMPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]


def put_victim(cluster, name, cpu, node):
    """A pod that was preempted and terminates."""
    cluster.insert(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "deletionTimestamp": "2030-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 30,
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Running", "conditions": PREEMPTED},
        }
    )


@pytest.mark.parametrize("last", [1, 2])
def test_the_promise_of_a_member_ends_with_its_victims_if_another_member_has_no_place(last):
    """What keeps the gang waiting, m-0, has nothing to do with the room for m-1."""

    async def main():
        cluster = GangCluster(nodes=("n1", "n2"), cpu="4")
        put_victim(cluster, "v1", "2", "n1")
        put_victim(cluster, "v2", "2", "n1")
        put(cluster, "m-0", "1", priority=10, gang="g", disk="none-has-it")
        put(cluster, "m-1", "4", priority=10, nominated="n1", gang="g")
        put(cluster, "a", "3")
        put(cluster, "b", "3")
        async with scheduling(cluster, leads=False):
            await asyncio.sleep(3)
            placed = [pod(cluster, name)["spec"].get("nodeName") for name in ("a", "b")]
            assert sorted(map(str, placed)) == ["None", "n2"]
            assert pod(cluster, "m-1")["status"].get("nominatedNodeName") == "n1"
            for victim in ("v1", "v2")[:last]:
                await cluster.delete(victim)
            await asyncio.sleep(15)
            promised = pod(cluster, "m-1")["status"].get("nominatedNodeName")
            placed = [pod(cluster, name)["spec"].get("nodeName") for name in ("a", "b")]
            if last == 2:
                assert not promised
                assert sorted(placed) == ["n1", "n2"]
            else:
                assert promised == "n1"
                assert None in placed

    run(main())


def test_the_promise_of_a_member_does_not_outlast_its_victims_for_one_that_goes_on_alone():
    """Gangs a and b belong together, and those of a go on alone since one is bound: s-1 waits for other victims."""

    async def main():
        cluster = GangCluster(nodes=("n1", "n2"), cpu="4")
        put_victim(cluster, "v1", "2", "n1")
        put_victim(cluster, "v2", "3", "n2")
        alone, together = ({"match_policy": each, "groups": BOTH} for each in ("once-satisfied", "only-waiting"))
        put(cluster, "s-0", "1", gang="a", node="n2", **alone)
        put(cluster, "s-1", "3", priority=10, nominated="n2", gang="a", **alone)
        put(cluster, "m-0", "1", priority=10, gang="b", disk="none-has-it", **together)
        put(cluster, "m-1", "4", priority=10, nominated="n1", gang="b", **together)
        async with scheduling(cluster, preempting(), leads=False):
            await asyncio.sleep(3)
            assert [pod(cluster, name)["status"].get("nominatedNodeName") for name in ("s-1", "m-1")] == ["n2", "n1"]
            await cluster.delete("v1")
            await asyncio.sleep(15)
        assert not pod(cluster, "m-1")["status"].get("nominatedNodeName")
        assert pod(cluster, "s-1")["spec"].get("nodeName") == "n1"

    run(main())


BOTH = '["default/a", "default/b"]'


def waiting_condition(cluster, name):
    conditions = pod(cluster, name)["status"].get("conditions") or []
    return next((each["status"] for each in conditions if each["type"] == "koordsched.io/Waiting"), None)


@pytest.mark.parametrize("room", ["4", "1"])
def test_members_no_longer_read_that_others_are_lacking(room):
    async def main():
        cluster = GangCluster(nodes=("n1",), cpu=room)
        put(cluster, "m-1", "1", gang="g")
        async with scheduling(cluster, leads=False):
            await asyncio.sleep(8)
            assert waiting_condition(cluster, "m-1") == "True"
            put(cluster, "m-2", "1", gang="g")
            await asyncio.sleep(8)
        assert waiting_condition(cluster, "m-1") == "False"

    run(main())


def preempting(first=False, **args):
    """A configuration in which pods are evicted for single members. `first`: before the plugin of gangs is asked."""
    config = configuration(**args)
    points = config["profiles"][0]["plugins"]
    points["postFilter"]["enabled"].insert(0 if first else 1, {"name": "DefaultPreemption"})
    return config


async def evictions(cluster, seconds, **options):
    """How many pods are evicted, each of which its controller replaces. `options`: of the configuration."""
    count = 0
    put(cluster, "low-0", "4", node="n1")
    async with scheduling(cluster, preempting(**options), leads=False):
        for _ in range(seconds):
            if pod(cluster, f"low-{count}")["metadata"].get("deletionTimestamp"):
                await cluster.delete(f"low-{count}")
                count += 1
                put(cluster, f"low-{count}", "4")
            await asyncio.sleep(1)
    return count


@pytest.mark.parametrize(("members", "needed"), [(2, 2), (3, 3), (4, 3)])
def test_pods_are_evicted_in_vain_only_once(members, needed):
    """Room can be made for m-1; the others fit on no node."""

    async def main():
        cluster = GangCluster(nodes=("n1",), cpu="4")
        put(cluster, "m-1", "4", priority=10, gang="g", needed=needed)
        for number in range(2, members + 1):
            put(cluster, f"m-{number}", "5", priority=10, gang="g", needed=needed)
        evicted = await evictions(cluster, 400)
        assert evicted <= 1
        assert pod(cluster, f"low-{evicted}")["spec"].get("nodeName") == "n1"

    run(main())


@pytest.mark.parametrize("options", [{}, {"enablePreemption": True}, {"first": True}])
def test_pods_are_evicted_in_vain_ever_more_rarely(options):
    """Room can be made for each of the members, and not for both: after one, two, four minutes, and so on.

    With `enablePreemption` room is looked for for all of them first.
    """

    async def main():
        cluster = GangCluster(nodes=("n1",), cpu="4")
        for name in ("m-1", "m-2"):
            put(cluster, name, "4", priority=10, gang="g")
        assert 2 <= await evictions(cluster, 600, **options) <= 8
        assert "evicted in vain" in str(pod(cluster, "m-1")["status"]) + str(pod(cluster, "m-2")["status"])

    run(main())
