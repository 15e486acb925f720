"""`--live`: the koordsched that leads is found by its lease, and asked through the API server."""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from koordsched.cli import main
from tests.cli.portforwarding import with_kubelet
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, free_port, serving
from tests.waiting import until

NAMESPACE = "koordsched-system"
DEBUG_READER = Path(__file__).parents[2] / "manifests" / "base" / "debugreader.yaml"


def lease(holder, namespace=NAMESPACE, name="koordsched"):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": holder},
    }


def replica(name, port, namespace=NAMESPACE, *, labelled=True, phase="Running", args=(), named=True, **spec):
    """A pod of the manifests."""
    scheduler = {"name": "scheduler", "image": "koordsched", "args": ["run", *args]}
    if named:
        scheduler["ports"] = [{"name": "https", "containerPort": port}]
    labels = {"app.kubernetes.io/name": "koordsched"} if labelled else {}
    made = pod(name, scheduler, namespace=namespace, labels=labels, schedulerName="other-scheduler", **spec)
    return {**made, "status": {"phase": phase}}


class Asked:
    """Runs commands against the embedded cluster while a scheduler serves."""

    def __init__(self, embedded, running, kubelet, kubeconfig):
        self.embedded = embedded
        self.running = running
        self.kubelet = kubelet
        self.kubeconfig = kubeconfig
        self.port = urlsplit(running.client.server).port

    async def run(self, *arguments):
        return await asyncio.to_thread(
            CliRunner().invoke, main, [*arguments, "--kubeconfig", self.kubeconfig, "--live"]
        )

    async def refused(self, *arguments):
        result = await self.run(*(arguments or ("explain", "big")))
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        return result.stderr


@pytest.fixture
async def asked(tmp_path):
    embedded = embedded_with_users()
    for name in (NAMESPACE, "kube-system"):
        embedded.restore({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    embedded.insert(node("alder"))
    embedded.insert(pod("big", container(cpu="99")))
    async with serving(embedded) as running, with_kubelet(embedded, tmp_path, "alice") as (kubelet, kubeconfig):
        await until(lambda: list(running.scheduler.decisions.refusals("default/big")), "the refusal")
        yield Asked(embedded, running, kubelet, kubeconfig)


async def test_the_leader_of_several_replicas_is_asked(asked):
    asked.embedded.insert(lease("koordsched-b_0b5d"))
    asked.embedded.insert(replica("koordsched-a", free_port()))
    asked.embedded.insert(replica("koordsched-b", asked.port))
    result = await asked.run("explain", "big", "-o", "json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["pod"], answer["rejection"]["attempts"]) == ("default/big", 1)
    assert asked.kubelet.forwarded == [("koordsched-b", asked.port, "Bearer alice")]
    result = await asked.run("pending", "-o", "json")
    assert [group["pods"] for group in json.loads(result.stdout)["groups"]] == [["default/big"]]
    # The same rights as at the endpoint itself.
    assert "403 Forbidden" in await asked.refused("explain", "big", "--token", "mallory")
    assert "no profile of this scheduler enables ElasticQuota" in await asked.refused("quota", "tree")


async def test_the_cluster_role_for_it_is_enough(asked):
    asked.embedded.insert(replica("koordsched-a", asked.port))
    # Verdicts are kept for a while, by path.
    assert (await asked.running.client.get("/debug/decisions", token="mallory"))[0] == 403
    role, _ = yaml.safe_load_all(DEBUG_READER.read_text())
    asked.embedded.insert(role)
    group = "rbac.authorization.k8s.io"
    asked.embedded.insert(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "mallory"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]},
            "subjects": [{"kind": "User", "name": "mallory", "apiGroup": group}],
        }
    )
    for command in (["explain", "big"], ["pending"]):
        result = await asked.run(*command, "--token", "mallory")
        assert result.exit_code == 0, result.stderr
    assert (await asked.running.client.get("/debug/stacks", token="mallory"))[0] == 403


async def test_a_long_answer_comes_whole(asked):
    for number in range(300):
        asked.embedded.insert(node(f"n{number}"))
    asked.embedded.insert(lease("koordsched-b_0b5d"))
    asked.embedded.insert(replica("koordsched-b", asked.port))
    await until(lambda: asked.running.scheduler.cluster.table.count == 301, "the nodes")
    result = await asked.run("explain", "big", "-o", "json")
    assert len(json.loads(result.stdout)["nodes"]) == 301


async def test_the_only_replica_needs_no_lease(asked):
    asked.embedded.insert(replica("koordsched-a", asked.port, named=False, args=[f"--secure-port={asked.port}"]))
    asked.embedded.insert(replica("koordsched-old", free_port(), phase="Succeeded"))
    assert (await asked.run("explain", "big")).exit_code == 0
    asked.embedded.insert(replica("koordsched-b", asked.port))
    assert "there is no such lease, and 2 running pods labelled" in await asked.refused()


async def test_in_the_place_of_kube_scheduler(asked):
    """It shares the node's network, so the lease names the node."""
    asked.embedded.insert(lease("alder_0b5d", "kube-system", "kube-scheduler"))
    spec = {"on": "alder", "hostNetwork": True}
    asked.embedded.insert(replica("kube-scheduler-alder", asked.port, "kube-system", **spec))
    asked.embedded.insert(replica("etcd-alder", free_port(), "kube-system", labelled=False, **spec))
    assert (await asked.run("explain", "big")).exit_code == 0
    assert [name for name, _, _ in asked.kubelet.forwarded] == ["kube-scheduler-alder"]


async def test_the_manifests_for_the_place_of_kube_scheduler(asked):
    """Its lease is in kube-system, its pods are not."""
    asked.embedded.insert(lease("koordsched-b_0b5d", "kube-system", "kube-scheduler"))
    asked.embedded.insert(replica("koordsched-a", free_port()))
    asked.embedded.insert(replica("koordsched-b", asked.port))
    assert (await asked.run("explain", "big")).exit_code == 0
    assert [name for name, _, _ in asked.kubelet.forwarded] == ["koordsched-b"]


async def test_another_scheduler_is_not_asked(asked):
    """Its pods would see our token."""
    asked.embedded.insert(lease("kube-scheduler-alder_0b5d", "kube-system", "kube-scheduler"))
    asked.embedded.insert(replica("kube-scheduler-alder", asked.port, "kube-system", labelled=False))
    stderr = await asked.refused()
    assert stderr.startswith("error: no running koordsched was found by its lease (koordsched-system/koordsched: ")
    assert "its holder is kube-scheduler-alder_0b5d, and 0 running pods labelled" in stderr
    assert asked.kubelet.forwarded == []


async def test_a_lease_of_another_name(asked):
    name = "scheduler-" + "x" * 70
    asked.embedded.insert(lease(f"{name[:63]}_0b5d", "kube-system", "mine"))
    asked.embedded.insert(replica(name, asked.port, "kube-system", labelled=False))
    assert (await asked.run("explain", "big", "--lease", "kube-system/mine")).exit_code == 0
    assert "kube-system/none: " in await asked.refused("explain", "big", "--lease", "kube-system/none")
    assert "a lease must be given as NAMESPACE/NAME" in await asked.refused("explain", "big", "--lease", "none")


async def test_between_two_leaders(asked):
    asked.embedded.insert(lease(""))
    assert "koordsched-system/koordsched: it has no holder now" in await asked.refused()


async def test_a_port_that_must_not_be_forwarded(asked):
    asked.embedded.insert(lease("koordsched-a_0b5d"))
    asked.embedded.insert(replica("koordsched-a", asked.port))
    asked.kubelet.refuse = 403
    stderr = await asked.refused()
    assert stderr == (
        "error: koordsched-system/koordsched-a: the API server refuses to forward its port: the server answered 403\n"
    )


async def test_nothing_listens_there(asked):
    port = free_port()
    asked.embedded.insert(lease("koordsched-a_0b5d"))
    asked.embedded.insert(replica("koordsched-a", port))
    assert await asked.refused() == (
        f"error: koordsched-system/koordsched-a: error forwarding port {port}: "
        f"Connect call failed ('127.0.0.1', {port})\n"
    )


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--live", "--server", "https://x"], "--live and --server cannot be used together"),
        (["--live", "-f", "x"], "--live has no effect with -f"),
        (["--live", "--config", "x"], "--config has no effect with --live"),
        (["--lease", "a/b"], "--lease has no effect without --server or --live"),
        (["--lease", "a/b", "--server", "https://x"], "--lease has no effect with --server"),
    ],
)
def test_what_has_no_effect(arguments, complaint):
    result = CliRunner().invoke(main, ["explain", "p", *arguments])
    assert (result.exit_code, complaint in result.stderr) == (2, True), result.stderr
