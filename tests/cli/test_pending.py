"""`koordsched pending`: of a cluster, of files, of a running scheduler; once and again."""

import asyncio
import json
import signal
import subprocess
import sys
from random import Random

import pytest
import yaml
from click.testing import CliRunner

from koordsched.cli.pending import pending, repeated, waiting_in
from koordsched.cli.standby import standby
from koordsched.client.clock import SystemClock
from koordsched.framework.interface import PreFilter
from koordsched.framework.status import SKIP, Code, Status
from koordsched.scheduling.decisions import Rejection
from koordsched.scheduling.offline import OfflineScheduler
from koordsched.scheduling.pendinggroups import PendingPodsReport, pending_groups
from tests import virtualtime
from tests.cli.clusters import bound, node, pod, run, run_json, write
from tests.cli.served import served_cluster
from tests.embedded import DEFAULT_CONFIG, Embedded
from tests.extraplugins import registry_with, resolved_with
from tests.plugins import objects
from tests.scheduling.serving import embedded_with_users, serving
from tests.waiting import until


def of(workload, number, cpu, **spec):
    """Pods of a ReplicaSet."""
    made = []
    for index in range(number):
        one = pod(f"{workload}-{index}", cpu, namespace="shop", **spec)
        one["metadata"]["uid"] = f"uid-{workload}-{index}"
        one["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{index:02}Z"
        one["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload, "uid": workload, "controller": True}
        ]
        made.append(one)
    return made


def other(name, message):
    """A pod of another scheduler that says why it waits."""
    made = pod(name, schedulerName="other-scheduler")
    made["metadata"]["uid"] = f"uid-{name}"
    made["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}],
    }
    return made


OBJECTS = [
    node("n1"),
    node("n2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    bound("busy", "n1", "3"),
    *of("web", 3, "3"),
    *of("api", 2, "2"),
    *of("huge", 2, "64"),
    *of("gated", 1, "1", schedulingGates=[{"name": "later"}]),
    *of("fitting", 1, "1"),
    other("x", "0/5 nodes are available: 5 Insufficient example.com/gpu. preemption: none."),
    other("y", "0/7 nodes are available: 7 Insufficient example.com/gpu. preemption: none."),
]
GROUPS = [
    # More or less is missing, of the same.
    ("default-scheduler", "Unschedulable", ["Insufficient cpu", "node(s) had untolerated taint(s)"], "waits", 5),
    ("default-scheduler", "Unschedulable", ["Insufficient cpu", "node(s) had untolerated taint(s)"], "never", 2),
    ("other-scheduler", "Unschedulable", ["5 Insufficient example.com/gpu"], "", 2),
    ("default-scheduler", "SchedulingGated", ["waiting for scheduling gates: [later]"], "gated", 1),
    ("default-scheduler", "", [], "fits", 1),
]


def seen(report):
    return sorted(
        (group["scheduler"], group["reason"], sorted(group["causes"]), group["verdict"], len(group["pods"]))
        for group in report["groups"]
    )


@pytest.fixture
def dump(tmp_path):
    return write(tmp_path / "dump.yaml", *OBJECTS)


def test_groups(dump):
    code, report = run_json("pending", "-f", dump)
    assert (code, report["pods"]) == (0, 11)
    assert seen(report) == sorted(GROUPS)
    first = report["groups"][0]
    assert first["workloads"] == {"StatefulSet shop/web": 3, "StatefulSet shop/api": 2}
    assert (first["remedy"], first["closest"]) == ("2 cpu more free", "n1")
    assert first["oldest"] == "2026-01-01T00:00:00Z"
    assert first["pods"] == ["shop/api-0", "shop/web-0", "shop/api-1", "shop/web-1", "shop/web-2"]
    assert first["message"] == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."


def test_without_nodes(tmp_path):
    code, report = run_json("pending", "-f", write(tmp_path / "dump.yaml", *of("web", 2, "3")))
    nothing = "no nodes available to schedule pods"
    assert (code, seen(report)) == (0, [("default-scheduler", "Unschedulable", [nothing], "never", 2)])
    assert report["groups"][0]["message"] == nothing


def test_of_one_namespace(dump):
    assert run_json("pending", "-f", dump, "-n", "default")[1]["pods"] == 2
    assert run("pending", "-f", dump, "-n", "none").stdout == "No pod is pending.\n"


def test_of_a_cluster_as_of_a_dump(dump, tmp_path):
    with served_cluster(tmp_path) as served:
        served.restore(*OBJECTS)
        report = run_json("pending", "--kubeconfig", served.kubeconfig)[1]
        assert seen(report) == sorted(GROUPS)
        assert report["groups"][0] == run_json("pending", "-f", dump)[1]["groups"][0]
        assert {method for method, _ in served.requests} == {"GET"}


def test_tables(dump):
    lines = run("pending", "-f", dump).stdout.splitlines()
    assert lines[0].split("  ")[0] == "PODS"
    (web,) = (line for line in lines if "StatefulSet shop/web, StatefulSet shop/api" in line)
    assert "2 cpu more free (n1)" in web
    assert lines[-1] == "11 pods in 5 groups."
    wide = run("pending", "-f", dump, "-o", "wide").stdout
    assert "Unschedulable: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)." in wide
    assert yaml.safe_load(run("pending", "-f", dump, "-o", "yaml").stdout) == run_json("pending", "-f", dump)[1]


def test_more_nodes_help(dump):
    _, report = run_json("pending", "-f", dump, "--like", "n1")
    fitting = next(group for group in report["groups"] if group["verdict"] == "fits")
    assert len(fitting["pods"]) == 6


@pytest.mark.parametrize("more", [["-f", "x", "--watch"], ["--watch", "--nodes", "3"]])
def test_what_cannot_be_watched(more):
    assert run("pending", *more).exit_code == 2


async def test_a_running_scheduler_is_asked():
    embedded = embedded_with_users()
    for thing in OBJECTS:
        if thing["spec"].get("schedulerName") is None and "fitting" not in thing["metadata"]["name"]:
            embedded.insert({**thing, "metadata": {"namespace": "default", **thing["metadata"]}})
    async with serving(embedded) as running:
        flags = ["--server", running.client.server, "--token", "alice", "--insecure-skip-tls-verify", "-o", "json"]

        async def report():
            result = await asyncio.to_thread(CliRunner().invoke, pending, flags)
            assert result.exit_code == 0, result.stderr
            return json.loads(result.stdout)

        await until(lambda: len(running.scheduler.pending_pods()) == 8, "the pods")
        assert seen(await report()) == sorted(group for group in GROUPS[:4] if group[0] == "default-scheduler")
        status, _ = await running.client.get("/debug/pending", token="mallory")
        assert status == 403


def offline(objects, *plugins):
    """A scheduler of these objects, with these plugins besides."""
    resolved, registry = resolved_with(DEFAULT_CONFIG, plugins), registry_with(plugins)
    return OfflineScheduler(resolved, registry, objects, clock=SystemClock(), rng=Random(1))


def finished(steps):
    """(how many steps there were, the report)."""
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        return count, end.value


class Raising(PreFilter):
    """Raises for pods named `web…`."""

    name = "Raising"

    def __init__(self, args, handle):
        pass

    def pre_filter(self, cycle, pod):
        if pod.name.startswith("web"):
            raise KeyError("no idea")
        return SKIP


def test_pods_that_a_plugin_raises_for_take_the_report_from_no_others():
    cluster = offline([node("n1"), *of("web", 2, "1"), *of("huge", 1, "100")], Raising)
    _, report = finished(pending_groups(cluster.pending.values(), cluster.profiles, cluster.cluster))
    text = "internal error: KeyError: 'no idea'"
    assert [(group.reason, group.causes, len(group.pods)) for group in report.groups] == [
        ("SchedulerError", [text], 2),
        ("Unschedulable", ["Insufficient cpu"], 1),
    ]
    shown = cluster.explain(report.groups[0].pods[0])
    assert (shown.reason, shown.message) == ("SchedulerError", text)


class Failing(PreFilter):
    """Fails for every pod."""

    name = "Failing"

    def __init__(self, args, handle):
        pass

    def pre_filter(self, cycle, pod):
        return Status(Code.ERROR, ("no idea",))


def test_pods_that_cannot_be_evaluated_are_a_group_with_the_error():
    cluster = offline([node("n1"), *of("web", 2, "1")], Failing)
    _, report = finished(pending_groups(cluster.pending.values(), cluster.profiles, cluster.cluster))
    (group,) = report.groups
    assert (group.reason, group.verdict, len(group.pods)) == ("SchedulerError", "", 2)
    assert "no idea" in group.message
    assert group.causes == [group.message]


def test_kinds_beyond_the_limit_are_shown_as_they_were_recorded():
    cluster = offline(OBJECTS)
    pods = [one for one in cluster.pending.values() if "web" in one.name or "huge" in one.name or "fitting" in one.name]
    message = "0/2 nodes are available: 2 Insufficient memory. preemption: none."
    rejection = Rejection("", "", 0.0, 0.0, 1, "Unschedulable", message, [], "")
    known = {"uid-huge-0": rejection}
    count, report = finished(
        pending_groups(pods, cluster.profiles, cluster.cluster, most_evaluated=1, recorded=known.get)
    )
    # One step per kind of pods.
    assert count == 3
    assert [(group.verdict, group.causes, len(group.pods)) for group in report.groups] == [
        ("waits", report.groups[0].causes, 3),
        ("", ["2 Insufficient memory"], 2),
        ("", ["not evaluated"], 1),
    ]


def test_watching_a_cluster_until_interrupted(tmp_path):
    with served_cluster(tmp_path) as served:
        served.restore(node("n1"), pod("big", "6"))
        command = [sys.executable, "-m", "koordsched", "pending", "--kubeconfig", served.kubeconfig, "--watch"]
        with subprocess.Popen(
            [*command, "--interval", "0.5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:

            def line_with(text):
                return next(line for line in process.stdout if text in line)

            try:
                assert "a node with 6 cpu (this one has 4) (n1)" in line_with("Pod default/big")
                served.insert(node("n2", "8"))
                assert "it fits now" in line_with("Pod default/big")
                process.send_signal(signal.SIGINT)
                assert process.wait(30) == 130
                assert process.stderr.read().strip() == ""
            finally:
                process.kill()
        assert {method for method, _ in served.requests} == {"GET"}


def test_again_when_it_changes():
    """The state follows the cluster by watches, and nothing is written."""

    async def main():
        embedded = Embedded()
        embedded.insert(objects.node("alder", cpu="4"))
        embedded.insert(objects.pod("big", objects.container(cpu="6")))
        calls = []

        async def spied(call, proceed):
            calls.append(call.method)
            return await proceed()

        shown = []
        resolved = resolved_with(DEFAULT_CONFIG, ())
        transport = embedded.transport(spied)
        async with standby(transport, resolved, embedded.clock, embedded.rng) as scheduler:
            looks = 0

            async def ask():
                nonlocal looks
                looks += 1
                return await waiting_in(scheduler, "")

            watching = asyncio.create_task(repeated(ask, 2.0, shown.append))
            await asyncio.sleep(7)
            assert (looks, len(shown)) == (4, 1)
            embedded.insert(objects.pod("other", objects.container(cpu="1")))
            await asyncio.sleep(2)
            embedded.insert(objects.node("beech", cpu="8"))
            await asyncio.sleep(2)
            watching.cancel()
        assert [sorted((group.verdict, len(group.pods)) for group in report.groups) for report in shown] == [
            [("never", 1)],
            [("fits", 1), ("never", 1)],
            [("fits", 2)],
        ]
        assert set(calls) == {"GET"}

    virtualtime.run(main())


def test_asking_goes_on_until_it_is_cancelled():
    async def main():
        reports = iter([PendingPodsReport(0, []), PendingPodsReport(0, []), PendingPodsReport(1, [])])
        shown = []

        async def ask():
            return next(reports)

        with pytest.raises(RuntimeError):
            await repeated(ask, 1.0, shown.append)
        assert [report.pods for report in shown] == [0, 1]

    virtualtime.run(main())
