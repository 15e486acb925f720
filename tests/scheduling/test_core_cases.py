"""Section-7 cases of the core contract, played end to end on the embedded cluster."""

import asyncio

import pytest

from koordsched.framework.status import Code, Status
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.virtualtime import run


def condition_of(embedded, name, namespace="default"):
    """(reason, message) of PodScheduled=False, or None."""
    for condition in embedded.get("Pod", name, namespace)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition["reason"], condition["message"]
    return None


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def notes(embedded, reason):
    return [event["note"] for event in embedded.events() if event["reason"] == reason]


def ready(thing, status="True", beat="2030-01-01T00:00:00Z"):
    thing["status"]["conditions"] = [{"type": "Ready", "status": status, "lastHeartbeatTime": beat}]
    return thing


def replace(embedded, thing):
    """The object gets this new state."""
    resource = embedded.registry.resource_for_kind(thing["apiVersion"], thing["kind"])
    record = embedded.registry.record(resource, thing["metadata"].get("namespace"), thing["metadata"]["name"])
    old = record.obj()
    embedded.registry.replace_record(resource, record, {**thing, "metadata": {**old["metadata"], **thing["metadata"]}})


@pytest.mark.parametrize(("nodes", "percentage"), [(100, 0), (250, 0), (500, 9), (500, 70), (500, None)])
def test_core_cases_06_and_08_every_node_is_looked_at_whatever_the_percentage(nodes, percentage):
    """Upstream's sample (cases 6 to 8, node order included) does not exist here: no node is ever left out."""
    config = dict(DEFAULT_CONFIG)
    if percentage is not None:
        config["percentageOfNodesToScore"] = percentage

    async def main():
        embedded = Embedded()
        for i in range(nodes):
            # Only the last one is free of what keeps the score of the others down.
            taints = [("soft", "PreferNoSchedule")] if i < nodes - 1 else ()
            embedded.insert(node(f"n{i:03}", taints=taints))
        async with scheduler_on(embedded, config) as running:
            embedded.insert(pod("p", container(cpu="100m")))
            await asyncio.sleep(1)
            assert node_of(embedded, "p") == f"n{nodes - 1:03}"
            (decision,) = running.scheduler.decisions.of("default/p")
            assert decision.feasible == nodes

    run(main())


def test_core_case_09_no_nodes():
    async def main():
        embedded = Embedded()
        async with scheduler_on(embedded):
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") == ("Unschedulable", "no nodes available to schedule pods")
            assert notes(embedded, "FailedScheduling") == ["no nodes available to schedule pods"]
            embedded.insert(node("alder"))
            await asyncio.sleep(15)
            assert node_of(embedded, "p") == "alder"

    run(main())


def test_core_case_10_too_large_everywhere():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch", "cedar"):
            embedded.insert(node(name))
        async with scheduler_on(embedded):
            embedded.insert(pod("p", container(cpu="8")))
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") == (
                "Unschedulable",
                "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: "
                "0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            )

    run(main())


def test_core_case_15_missing_claim():
    async def main():
        embedded = Embedded()
        for name in ("alder", "birch", "cedar"):
            embedded.insert(node(name))
        async with scheduler_on(embedded):
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}]
            embedded.insert(pod("p", container(cpu="1"), volumes=volumes))
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") == (
                "Unschedulable",
                '0/3 nodes are available: persistentvolumeclaim "nope" not found. not found',
            )

    run(main())


MIXED_NODES = (
    node("full1"),
    node("full2"),
    node("small", cpu="2"),
    node("tainted", taints=[("k", "NoSchedule")]),
    node("cordoned", unschedulable=True),
)
REFUSED = "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 3 Insufficient cpu."


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {},
            f"0/5 nodes are available: {REFUSED} no new claims to deallocate, preemption: 0/5 nodes are available: "
            "2 No preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling.",
        ),
        (
            {"priority": 1000, "preemptionPolicy": "Never"},
            f"0/5 nodes are available: {REFUSED} no new claims to deallocate, preemption: "
            "not eligible due to preemptionPolicy=Never.",
        ),
        ({"priority": 1000}, f"0/5 nodes are available: {REFUSED}"),
    ],
    ids=["case_11", "case_12", "case_13"],
)
def test_core_cases_11_to_13_refusals_and_preemption(more, message):
    async def main():
        embedded = Embedded()
        for thing in MIXED_NODES:
            embedded.insert(thing)
        for i, on in enumerate(("full1", "full2")):
            embedded.insert(pod(f"v{i}", container(cpu="3500m"), on=on, priority=10))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="3"), **more))
            await asyncio.sleep(3)
            assert condition_of(embedded, "p") == ("Unschedulable", message)
            victims = [v for v in ("v0", "v1") if "deletionTimestamp" in embedded.get("Pod", v)["metadata"]]
            nominated = embedded.get("Pod", "p")["status"].get("nominatedNodeName")
            if message.endswith(REFUSED):
                assert len(victims) == 1
                assert nominated == ("full1", "full2")[int(victims[0][1])]
                (target,) = embedded.get("Pod", victims[0])["status"]["conditions"]
                assert (target["type"], target["status"], target["reason"], target["message"]) == (
                    "DisruptionTarget",
                    "True",
                    "PreemptionByScheduler",
                    "default-scheduler: preempting to accommodate a higher priority pod",
                )
                uid = embedded.get("Pod", "p")["metadata"]["uid"]
                assert notes(embedded, "Preempted") == [f"Preempted by pod {uid} on node {nominated}"]
                # case 14: another look while the victim terminates
                running.scheduler.queue.activate([running.scheduler._pending.by_uid[uid]])
                await asyncio.sleep(1)
                assert condition_of(embedded, "p")[1] == (
                    f"{message} no new claims to deallocate, preemption: "
                    "not eligible due to a terminating pod on the nominated node."
                )
                assert embedded.get("Pod", "p")["status"].get("nominatedNodeName") == nominated
            else:
                assert victims == []
                assert nominated is None

    run(main())


def test_core_case_18_a_failed_binding_is_not_retried_before_its_backoff_ends():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        times = []

        async def fault(call, proceed):
            if call.path.endswith("/binding"):
                times.append(embedded.clock.wall())
                if len(times) < 3:
                    return 500, {}, b'{"kind":"Status","code":500,"message":"etcd is sad","reason":"InternalError"}'
            return await proceed()

        async with scheduler_on(embedded, fault=fault) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(1.0)
            assert condition_of(embedded, "p") == (
                "SchedulerError",
                'running Bind plugin "DefaultBinder": etcd is sad',
            )
            assert running.scheduler.cluster.assumed == {}
            await asyncio.sleep(20)
            assert node_of(embedded, "p") == "alder"
            assert times[1] - times[0] >= 1
            assert times[2] - times[1] >= 2

    run(main())


def test_core_case_19_gates():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            gated = pod("p", container(cpu="1"), schedulingGates=[{"name": "a"}])
            embedded.insert(gated)
            await asyncio.sleep(600)
            assert running.scheduler.queue.pending()["gated"] == 1
            assert running.scheduler.queue.counters.unschedulable["SchedulingGates", "default-scheduler"] == 1
            assert embedded.events() == []
            replace(embedded, pod("p", container(cpu="1"), schedulingGates=[]))
            await asyncio.sleep(0.2)
            assert node_of(embedded, "p") == "alder"
            assert running.attempts == {"default/p": 1}

    run(main())


def test_core_case_20_unschedulable_pods_are_looked_at_again_after_five_minutes():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="64")))
            await asyncio.sleep(299)
            assert running.attempts == {"default/p": 1}
            await asyncio.sleep(33)
            assert running.attempts == {"default/p": 2}
            assert running.scheduler.queue.counters.incoming["active", "UnschedulableTimeout"] == 1

    run(main())


def test_core_case_21_and_22_what_a_node_update_moves():
    async def main():
        embedded = Embedded()
        embedded.insert(ready(node("alder", unschedulable=True)))
        embedded.insert(ready(node("birch")))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="64")))
            await asyncio.sleep(5)
            before = dict(running.scheduler.queue.counters.incoming)
            for second in range(10, 20):  # heartbeats
                replace(embedded, ready(node("birch"), beat=f"2030-01-01T00:00:{second}Z"))
                await asyncio.sleep(1)
            replace(embedded, ready(node("birch"), status="False"))
            await asyncio.sleep(1)
            assert dict(running.scheduler.queue.counters.incoming) == before
            replace(embedded, ready(node("alder")))  # uncordon
            await asyncio.sleep(1)
            assert running.scheduler.queue.counters.incoming["active", "NodeUpdateNodeTaint"] == 1
            assert running.attempts == {"default/p": 2}

    run(main())


def test_core_case_25_a_rejection_at_reserve(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].reserve_status = Status(Code.UNSCHEDULABLE, ("R",))
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") == ("Unschedulable", "0/1 nodes are available: 1 R.")
            assert picky[0].unreserved == ["default/p"]
            assert running.scheduler.queue.get("default/p").unschedulable_plugins == {"Picky"}
            assert running.scheduler.cluster.assumed == {}
            assert int(running.scheduler.cluster.table.pods_count.data[0]) == 0

    run(main())


def test_core_case_26_permit_times_out(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 10.0
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(9)
            assert embedded.get("Pod", "p")["status"]["nominatedNodeName"] == "alder"
            assert len(running.scheduler.waiting) == 1
            await asyncio.sleep(1.5)
            assert condition_of(embedded, "p") == (
                "Unschedulable",
                "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin Picky.",
            )
            assert embedded.get("Pod", "p")["status"].get("nominatedNodeName") is None
            assert running.scheduler.cluster.assumed == {}

    run(main())


def test_a_waiting_pod_that_is_allowed_is_bound(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 60.0
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(5)
            assert node_of(embedded, "p") is None
            (waiting,) = running.scheduler.waiting
            waiting.allow("Picky")
            await asyncio.sleep(0.5)
            assert node_of(embedded, "p") == "alder"
            assert len(running.scheduler.waiting) == 0

    run(main())


def test_a_waiting_pod_that_is_deleted_frees_its_place(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 600.0
            embedded.insert(pod("p", container(cpu="3")))
            await asyncio.sleep(5)
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            await asyncio.sleep(1)
            picky[0].wait = 0.0
            embedded.insert(pod("q", container(cpu="3")))
            await asyncio.sleep(1)
            assert node_of(embedded, "q") == "alder"
            assert running.scheduler.cluster.assumed == {}

    run(main())


def test_core_case_28_nominated_pods_of_at_least_equal_priority_count():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder", cpu="2"))
        high = pod("high", container(cpu="1"), priority=5, schedulerName="absent")
        low = pod("low", container(cpu="1"), priority=1, schedulerName="absent")
        config = {**DEFAULT_CONFIG, "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "absent"}]}
        for nominee in (high, low):
            nominee["status"]["nominatedNodeName"] = "alder"
            nominee["spec"]["schedulingGates"] = [{"name": "wait"}]
            embedded.insert(nominee)
        async with scheduler_on(embedded, config):
            embedded.insert(pod("mid", container(cpu="1"), priority=3))
            await asyncio.sleep(1)
            assert node_of(embedded, "mid") == "alder"
            embedded.insert(pod("mid2", container(cpu="1"), priority=3))
            await asyncio.sleep(1)
            assert node_of(embedded, "mid2") is None

    run(main())


def test_core_case_29_foreign_pods_are_in_no_queue():
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            embedded.insert(pod("p", container(cpu="1"), schedulerName="other-scheduler"))
            await asyncio.sleep(5)
            assert len(running.scheduler.queue) == 0
            assert running.attempts == {}
            assert embedded.events() == []

    run(main())


def test_a_stop_lets_waiting_pods_go_without_a_word(picky):
    async def main():
        embedded = Embedded()
        embedded.insert(node("alder"))
        async with scheduler_on(embedded) as running:
            picky[0].wait = 600.0
            embedded.insert(pod("p", container(cpu="1")))
            await asyncio.sleep(1)
            began = embedded.clock.monotonic()
            await running.scheduler.stop()
            assert embedded.clock.monotonic() - began < 1
            assert picky[0].unreserved == ["default/p"]
            assert running.scheduler.cluster.assumed == {}
        assert condition_of(embedded, "p") is None
        assert embedded.events() == []

    run(main())
