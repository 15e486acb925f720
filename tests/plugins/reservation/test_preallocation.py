"""Reservations that take over the room of running pods."""

import asyncio
import json

import pytest

from koordsched.framework.status import Code, Status
from koordsched.plugins.reservation.annotations import Allocated
from koordsched.plugins.reservation.kinds import RESERVATION_ALLOCATED, RESTRICTED_OPTIONS
from koordsched.plugins.reservation.plugin import Reservation
from tests.plugins.objects import pod_affinity, pod_term
from tests.plugins.reservation.running import ReservationCluster, configuration, scheduling
from tests.virtualtime import run


@pytest.mark.parametrize("memory, phase", [("48Gi", "Available"), ("49Gi", "Pending")])
def test_what_restricted_options_leave_out_is_not_freed(memory, phase):
    """Of 64 GiB the pod has 16, which it keeps when it uses CPUs of the Reservation alone."""

    async def main():
        cluster = ReservationCluster()
        cluster.pod("p", "n1", {"cpu": "20", "memory": "16Gi"}, labels={"app": "web"})
        async with scheduling(cluster) as running:
            cluster.reservation(
                requests={"cpu": "20", "memory": memory},
                annotations={RESTRICTED_OPTIONS: json.dumps({"resources": ["cpu"]})},
                allocateOnce=False,
                preAllocation=True,
                allocatePolicy="Restricted",
            )
            await cluster.until(lambda: cluster.condition("Scheduled") is not None, limit=5)
            assert cluster.phase() == phase
            if phase == "Available":
                await cluster.until(lambda: cluster.owners() == ["p"], limit=5)
            used = running.scheduler.cluster.table.requested[1].data[0]
            assert used == (64 << 30 if phase == "Available" else 16 << 30)

    run(main())


def test_a_pod_that_is_annotated_stays_a_user_when_the_binding_fails(monkeypatch):
    """As after a restart, which reads the annotation."""

    failed = []

    async def bind(plugin, cycle, pod, node):
        failed.append(pod.name)
        return Status(Code.ERROR, ("not bound",))

    async def main():
        cluster = ReservationCluster()
        cluster.pod("p", "n1", {"cpu": "20"}, labels={"app": "web"})
        monkeypatch.setattr(Reservation, "bind", bind)
        async with scheduling(cluster) as running:
            cluster.reservation(
                requests={"cpu": "20"}, allocateOnce=False, preAllocation=True, allocatePolicy="Restricted"
            )
            await cluster.until(lambda: failed, limit=5)
            await asyncio.sleep(0.5)
            assert RESERVATION_ALLOCATED in cluster.get("Pod", "p")["metadata"]["annotations"]
            state = running.scheduler.cluster
            [pod] = [pod for pod in state.assigned.values() if pod.name == "p"]
            allocated = running.scheduler.profiles["default-scheduler"].plugins["Reservation"].cache.allocated
            assert allocated.of(pod) == Allocated("r", cluster.uid())
            monkeypatch.undo()
            await cluster.until(lambda: cluster.owners() == ["p"], limit=30)

    run(main())


PORT = [{"hostPort": 80, "containerPort": 80}]


def template(cpu="10", ports=(), affinity=None):
    requests = {"cpu": cpu, "memory": "10Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}, "ports": list(ports)}
    return {"spec": {"containers": [container], **({"affinity": affinity} if affinity else {})}}


class Taking(ReservationCluster):
    """Runs a Reservation that may take pods over, until it has a node or not; these have labels that it selects."""

    def candidate(self, name, cpu, ports=(), node="n1", **labels):
        container = {"resources": {"requests": {"cpu": cpu}}, "name": "c", "image": "x", "ports": list(ports)}
        meta = {"name": name, "labels": {"app": "web", **labels}}
        self.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": node, "containers": [container]}}
        )

    async def outcome(self, *, prefers=False, multiple=False, **more):
        """(phase, the pods that were taken, what the condition says)."""
        config = configuration(preAllocationConfig={"preferNoPreAllocatedPods": prefers})
        async with scheduling(self, config):
            policy = {"preAllocationPolicy": {"mode": "Default", "enableMultiple": multiple}}
            self.reservation(
                allocateOnce=False, preAllocation=True, allocatePolicy="Restricted", template=template(**more), **policy
            )
            await self.until(lambda: self.condition("Scheduled") is not None, limit=5)
            await asyncio.sleep(1)
            [said] = [each.get("message", "") for each in self.status()["conditions"] if each["type"] == "Scheduled"]
            return self.phase(), self.owners(), said


def test_a_pod_that_has_the_port_is_taken_although_none_is_preferred():
    async def main():
        cluster = Taking()
        cluster.candidate("p", "2", PORT)
        phase, taken, _ = await cluster.outcome(prefers=True, ports=PORT)
        assert (phase, taken) == ("Available", ["p"])

    run(main())


def test_the_port_of_a_pod_that_cannot_be_taken_is_not_free():
    """It requests more than the Reservation has."""

    async def main():
        cluster = Taking()
        cluster.candidate("p", "20", PORT)
        phase, taken, said = await cluster.outcome(prefers=True, ports=PORT)
        assert (phase, taken) == ("Pending", [])
        assert "didn't have free ports" in said

    run(main())


@pytest.mark.parametrize("multiple", [False, True])
def test_of_several_the_one_with_the_port_is_taken(multiple):
    """The other one would fill the Reservation better, or comes first."""

    async def main():
        cluster = Taking()
        cluster.candidate("fuller", "4")
        cluster.candidate("p", "2", PORT)
        phase, taken, _ = await cluster.outcome(multiple=multiple, ports=PORT)
        assert (phase, "p" in taken) == ("Available", True)

    run(main())


def test_pods_on_other_nodes_that_may_be_taken_there_are_not_away():
    """The Reservation keeps away from the zone of a pod; it fits on neither node of the zone without this one."""

    async def main():
        cluster = Taking(nodes=())
        for name, cpu in (("n1", "4"), ("n2", "32")):
            cluster.node(name, cpu)
            cluster.registry.patch(
                cluster.resource("Node"), None, name, {"metadata": {"labels": {"zone": "z"}}}, "merge"
            )
        cluster.candidate("p", "2", role="keeper")
        affinity = pod_affinity(required_anti=[pod_term("zone", {"role": "keeper"})])
        phase, taken, said = await cluster.outcome(affinity=affinity)
        assert (phase, taken) == ("Pending", [])
        assert "anti-affinity" in said

    run(main())
