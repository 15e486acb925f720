"""The quick start of Koordinator's documentation, over the API, from the examples that docs/reservations.md shows."""

import asyncio
import json
from pathlib import Path

from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED
from tests.plugins.reservation.running import ReservationCluster, scheduling
from tests.virtualtime import run
from tests.yamlfiles import document

EXAMPLES = Path(__file__).parents[3] / "config" / "examples" / "reservation"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def example(name):
    return document(EXAMPLES / f"{name}.yaml")


def node_of(cluster, pod):
    return cluster.get("Pod", pod)["spec"].get("nodeName")


async def columns(cluster):
    """What `kubectl get reservations -o wide` shows: by column, the texts."""
    status, answer = await cluster.call("GET", RESERVATIONS, headers=TABLE)
    assert status == 200
    names = [column["name"] for column in answer["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in answer["rows"]]


async def playing():
    cluster = ReservationCluster(("n1", "n2"))
    async with scheduling(cluster, example("scheduler")):
        # The Reservation becomes available on a node.
        cluster.create(example("reservation-demo"))
        (row,) = await columns(cluster)
        assert (row["Name"], row["Phase"], row["TTL"]) == ("reservation-demo", None, "1h")
        await cluster.until(lambda: cluster.phase("reservation-demo") == "Available")
        status = cluster.status("reservation-demo")
        assert status["allocatable"] == {"cpu": "500m", "memory": "800Mi"}
        reserved = status["nodeName"]
        assert reserved in ("n1", "n2")
        (row,) = await columns(cluster)
        assert (row["Phase"], row["Node"]) == ("Available", reserved)
        assert row.keys() == {"Name", "Phase", "Age", "Node", "TTL", "Expires"}

        # The pod lands there, though the other node is empty.
        cluster.create(example("pod-demo-0"))
        await cluster.until(lambda: node_of(cluster, "pod-demo-0"))
        assert node_of(cluster, "pod-demo-0") == reserved
        pod = cluster.get("Pod", "pod-demo-0")
        uid = cluster.uid("reservation-demo")
        used = json.loads(pod["metadata"]["annotations"][RESERVATION_ALLOCATED])
        assert used == {"name": "reservation-demo", "uid": uid}

        # What it uses is in the status, and which pod it is.
        await cluster.until(lambda: cluster.owners("reservation-demo"))
        status = cluster.status("reservation-demo")
        assert status["allocated"] == {"cpu": "200m", "memory": "400Mi"}
        assert status["currentOwners"] == [
            {"namespace": "default", "name": "pod-demo-0", "uid": pod["metadata"]["uid"]}
        ]
        assert status["phase"] == "Available"
        assert cluster.condition("Ready", "reservation-demo") == ("True", "Available")

        # The pod goes on running without it.
        before = cluster.get("Pod", "pod-demo-0")
        cluster.delete("Reservation", "reservation-demo", api_version="scheduling.koordinator.sh/v1alpha1")
        await asyncio.sleep(30)
        after = cluster.get("Pod", "pod-demo-0")
        assert after["spec"] == before["spec"]
        assert "deletionTimestamp" not in after["metadata"]


def test_quick_start():
    run(playing())
