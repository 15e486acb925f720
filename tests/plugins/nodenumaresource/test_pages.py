"""Pages about CPUs and NUMA nodes, the command that asks for them, and explanations, on a running scheduler."""

import asyncio
import json

from koordsched import config
from koordsched.plugins import CATALOG
from koordsched.plugins.nodenumaresource.kinds import CPU_BIND_POLICY
from tests.cli.clusters import run as command
from tests.parity.koord import custom_resources
from tests.plugins.nodenumaresource.machines import detail, holder, node, pod, topology
from tests.scheduling.serving import embedded_with_users, serving
from tests.waiting import until

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "NodeNUMAResource"}]}}}],
}


def enabled():
    """A configuration with the plugin."""
    return config.load(json.dumps(CONFIG), catalog=CATALOG)


def world():
    """m1 with four cores of two CPUs, of which `other` holds one and a half; and m2 without a report."""
    embedded = embedded_with_users()
    for thing in custom_resources():
        embedded.insert(thing)
    embedded.insert(node(numa_topology_policy="SingleNUMANode"))
    embedded.insert(topology(detail(2, 1, 2), [("4", "64Gi")] * 2))
    embedded.insert(holder("other", "0-2", {0: ("3", "1Gi")}, cpu="3", memory="1Gi"))
    embedded.insert({**node(), "metadata": {"name": "m2", "labels": {CPU_BIND_POLICY: "SpreadByPCPUs"}}})
    return embedded


def asked(running, *arguments):
    """`koordsched <arguments>` that asks the running scheduler."""
    return command(*arguments, "--server", running.client.server, "--token", "alice", "--insecure-skip-tls-verify")


async def test_pages_and_the_command_say_the_same(tmp_path):
    embedded = world()
    async with serving(embedded, configuration=enabled()) as running:
        get, plugin = running.client.get, running.scheduler.profiles["default-scheduler"].plugins["NodeNUMAResource"]
        await until(lambda: len(plugin.table.row_of) == 2, "the nodes")
        new = pod("new", cpu="3", memory="1Gi", qos="LSR")
        new["spec"]["containers"][0]["image"] = "i"
        embedded.insert(new)
        await until(lambda: embedded.get("Pod", "new")["spec"].get("nodeName"), "the placement")
        await until(lambda: not running.scheduler.cluster.assumed, "the confirmation")

        status, text = await get("/debug/numa")
        answer = json.loads(text)
        assert status == 200
        assert [(each["node"], each["report"], each["freeCpus"]) for each in answer["nodes"]] == [
            ("m1", "valid", 2),
            ("m2", "missing", 0),
        ]
        status, text = await get("/debug/numa/m1")
        one = json.loads(text)
        assert status == 200
        assert {each["pod"]: each["cpus"] for each in one["pods"]} == {"default/other": "0-2", "default/new": "4-6"}
        halves = [(each["cpus"], each["free"], each["held"]) for each in one["numaNodes"]]
        assert halves == [("0-3", "3", "0-2"), ("4-7", "7", "4-6")]
        assert [[cpu["cpu"] for cpu in core["cpus"]] for core in one["cores"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        _, text = await get("/apis/v1/plugins/NodeNUMAResource/nodes/m1")
        upstream = json.loads(text)
        shown = upstream["cpuTopology"]
        assert [shown[key] for key in ("numCPUs", "numCores", "numNodes", "numSockets")] == [8, 4, 2, 2]
        assert shown["cpuDetails"]["5"] == {"cpuID": 5, "coreID": (1 << 16) + 2, "nodeID": 1, "socketID": 1}
        other = next(each for each in upstream["allocatedPods"] if each["name"] == "other")
        assert other["numaNodeResources"] == [{"node": 0, "resources": {"cpu": "3", "memory": "1Gi"}}]
        details = shown["cpuDetails"]
        assert upstream["allocatedCPUs"] == {str(cpu): details[str(cpu)] for cpu in (0, 1, 2, 4, 5, 6)}
        assert await get("/debug/numa/m9") == (404, "there is no node m9")
        for path in ("/debug/numa", "/debug/numa/m1"):
            assert (await get(path, token=None))[0] in (401, 403)

        for arguments, expected in ((("numa",), answer), (("numa", "m1"), one)):
            said = await asyncio.to_thread(asked, running, *arguments, "-o", "json")
            assert json.loads(said.stdout) == expected
        said = await asyncio.to_thread(asked, running, "numa", "m1")
        overview = (await asyncio.to_thread(asked, running, "numa")).stdout.splitlines()
        assert [line.split()[:4] for line in overview[1:3]] == [
            ["m1", "valid", "-", "SingleNUMANode"],
            ["m2", "missing", "SpreadByPCPUs", "-"],
        ]
        held = next(line.split() for line in said.stdout.splitlines() if "default/new" in line)
        assert held == ["1", "1", "2", "4-5", "held", "default/new"]
        for name in ("m9", "m1/x", "../m1"):
            said = await asyncio.to_thread(asked, running, "numa", name)
            assert said.exit_code == 1
            assert said.stderr == f"error: there is no node {name}\n"

        # A snapshot of the state says the same.
        (tmp_path / "snapshot.json").write_text((await get("/debug/snapshot"))[1])
        (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
        files = "-f", str(tmp_path / "snapshot.json"), "--config", str(tmp_path / "config.yaml")
        assert json.loads((await asyncio.to_thread(command, "numa", "m1", *files, "-o", "json")).stdout) == one


async def test_an_explanation_has_the_numbers():
    embedded = world()
    async with serving(embedded, configuration=enabled()) as running:
        embedded.insert(pod("wide", cpu="6", memory="1Gi", qos="LSR"))
        await until(lambda: running.scheduler.pending_pods(), "the pod")
        said = json.loads((await running.client.get("/debug/explain?pod=default/wide&advice=true"))[1])
        details = {each["name"]: each["details"]["NodeNUMAResource"] for each in said["nodes"]}
        assert details["m1"][-1] == "SingleNUMANode rejects the node: even all NUMA nodes together have too little"
        assert details["m2"][-1] == "the CPUs of the node are unknown"
        texts = [change["text"] for remedy in said["advice"]["remedies"] for change in remedy["changes"]]
        assert "a node with 6 cpu and 1Gi memory on one NUMA node (this one is smaller)" in texts


async def test_a_scheduler_without_the_plugin():
    async with serving(embedded_with_users()) as running:
        for arguments in (("numa",), ("numa", "m1")):
            said = await asyncio.to_thread(asked, running, *arguments)
            assert said.exit_code == 1
            assert said.stderr.endswith("no profile of this scheduler enables NodeNUMAResource\n")
