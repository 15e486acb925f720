"""Reservations with devices, over the embedded API server: they are scheduled, used, and used again."""

import asyncio
import json

from tests.plugins.deviceshare.machines import device, gpu, m2, node, pod
from tests.plugins.deviceshare.running import cluster, given, held, put, remove, where
from tests.plugins.deviceshare.test_reservations import GIB, OURS, gpus, reserved, waiting
from tests.plugins.reservation.available import SCHEDULING, owner
from tests.virtualtime import run

API = "scheduling.koordinator.sh/v1alpha1"
FORBIDDEN = b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}'
HALF = (50, 4 * GIB, 50, 0, 0, 0)


def options():
    return {"more": {"Reservation": OURS}, "filter": {"enabled": [{"name": "Reservation"}]}}


def made(embedded, name="r"):
    return embedded.get("Reservation", name, api_version=API)


def half(policy="Restricted"):
    return waiting(reserved(policy=policy, gpu=gpus(0, share=50, memory=8)))


def test_an_owner_gets_what_another_one_leaves():
    async def scenario():
        async with cluster(*m2(), **options()) as (embedded, running):
            embedded.insert(half())
            await asyncio.sleep(3)
            thing = made(embedded)
            devices = json.loads(thing["metadata"]["annotations"][f"{SCHEDULING}device-allocated"])
            assert (thing["status"]["phase"], [each["minor"] for each in devices["gpu"]]) == ("Available", [0])
            assert held(running) == {("gpu", 0): HALF}
            put(embedded, owner(pod("p", gpu=50), required=True))
            await asyncio.sleep(3)
            put(embedded, owner(pod("q", gpu=50), required=True))
            await asyncio.sleep(3)
            before = where(embedded, "p"), where(embedded, "q"), held(running)
            remove(embedded, embedded.get("Pod", "p"))
            await asyncio.sleep(20)
            return before, where(embedded, "q"), given(embedded, "q"), held(running)

    before, *after = run(scenario())
    assert before == ("n", None, {("gpu", 0): HALF})
    assert after == ["n", {"gpu": [0]}, {("gpu", 0): HALF}]


def test_devices_of_a_reservation_that_is_deleted_are_free_again():
    async def scenario():
        async with cluster(node(), device(gpu(0)), **options()) as (embedded, running):
            embedded.insert(waiting(reserved(gpu=gpus(0))))
            await asyncio.sleep(3)
            put(embedded, pod("p", gpu=100))
            await asyncio.sleep(3)
            before = where(embedded, "p"), held(running)
            remove(embedded, made(embedded))
            await asyncio.sleep(20)
            return before, where(embedded, "p"), held(running)

    (waits, used), placed, after = run(scenario())
    assert (waits, placed) == (None, "n")
    assert used == after == {("gpu", 0): (100, 80 * GIB, 100, 0, 0, 0)}


def test_a_reservation_whose_node_went_before_it_was_bound_gets_devices_of_another_one():
    async def scenario():
        sent, refused = asyncio.Event(), asyncio.Event()

        async def fault(call, proceed):
            if call.method != "PATCH" or "/reservations/r" not in call.path or sent.is_set():
                return await proceed()
            sent.set()
            await refused.wait()
            return 403, {"content-type": "application/json"}, FORBIDDEN

        async with cluster(node(), device(gpu(0)), fault=fault, **options()) as (embedded, running):
            embedded.insert(waiting(reserved(gpu=gpus(0))))
            await asyncio.sleep(3)
            assert sent.is_set()
            remove(embedded, node())
            await asyncio.sleep(1)
            refused.set()
            await asyncio.sleep(3)
            put(embedded, node("m"))
            put(embedded, device(gpu(0), name="m"))
            await asyncio.sleep(10)
            status = made(embedded)["status"]
            return status["phase"], status["nodeName"], held(running, "m")

    assert run(scenario()) == ("Available", "m", {("gpu", 0): (100, 80 * GIB, 100, 0, 0, 0)})


def test_devices_that_another_client_writes_to_a_reservation_count_once():
    """Its node came back, for example, and the Reservation was seen before what it was given."""

    async def scenario():
        async with cluster(node(), device(gpu(0)), **options()) as (embedded, running):
            thing = reserved(gpu=gpus(0, share=50, memory=8))
            text = thing["metadata"]["annotations"].pop(f"{SCHEDULING}device-allocated")
            embedded.insert(thing)
            await asyncio.sleep(3)
            before = held(running)
            patch = {"metadata": {"annotations": {f"{SCHEDULING}device-allocated": text}}}
            embedded.registry.patch(embedded.resource("Reservation", API), None, "r", patch, "merge")
            await asyncio.sleep(3)
            after = held(running)
            remove(embedded, made(embedded))
            await asyncio.sleep(3)
            return before, after, held(running)

    assert run(scenario()) == ({}, {("gpu", 0): HALF}, {})


def test_devices_that_another_client_takes_from_a_pod_that_acts_as_a_reservation_are_free():
    async def scenario():
        async with cluster(node(), device(gpu(0)), **options()) as (embedded, running):
            put(embedded, owner(pod("p", gpu=50)))
            await asyncio.sleep(3)
            acts = {
                "labels": {f"{SCHEDULING}operating-mode": "Reservation"},
                "annotations": {
                    f"{SCHEDULING}reservation-owners": '[{"labelSelector": {"matchLabels": {"app": "web"}}}]'
                },
            }
            pods = embedded.resource("Pod")
            embedded.registry.patch(pods, "default", "p", {"metadata": acts}, "merge")
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            embedded.registry.patch(pods, "default", "p", {"status": ready}, "merge", "status")
            await asyncio.sleep(3)
            before = held(running)
            taken = {"metadata": {"annotations": {f"{SCHEDULING}device-allocated": "{}"}}}
            embedded.registry.patch(pods, "default", "p", taken, "merge")
            await asyncio.sleep(3)
            return before, held(running)

    assert run(scenario()) == ({("gpu", 0): (50, 40 * GIB, 50, 0, 0, 0)}, {})
