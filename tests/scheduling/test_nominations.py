"""What becomes of a node that was promised to a pod, when the pod's next attempt fails."""

import asyncio

import pytest

from koordsched.framework.status import Code, Status
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.objects import container, node, pod
from tests.scheduling.test_core_cases import condition_of
from tests.virtualtime import run

NO_PREEMPTION = {"schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
MODELESS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "modeless"}}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"storageClassName": "modeless"},
}
CLAIMING = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def promised(*containers, on="alder", **spec):
    """A waiting pod that was promised a node."""
    thing = pod("p", *containers, **spec)
    thing["status"]["nominatedNodeName"] = on
    return thing


@pytest.mark.parametrize(
    ("objects", "waiting", "profile", "reserve", "kept"),
    [
        ([], promised(), {}, None, None),
        ([node("alder")], promised(), {}, Status(Code.UNSCHEDULABLE, ("R",)), None),
        ([node("alder")], promised(), {}, Status(Code.ERROR, ("R",)), None),
        ([node("alder"), MODELESS, CLAIM], promised(**CLAIMING), {}, None, None),
        ([node("alder")], promised(container(cpu="64")), NO_PREEMPTION, None, None),
        ([node("alder")], promised(container(cpu="64")), {}, None, None),
        ([node("alder")], promised(container(cpu="64"), preemptionPolicy="Never"), {}, None, "alder"),
    ],
    ids=["no nodes", "reserve", "reserve fails", "error", "no PostFilter plugins", "no victims", "not eligible"],
)
def test_a_promise_ends_with_every_failure_but_where_preemption_leaves_it(
    objects, waiting, profile, reserve, kept, picky
):
    async def main():
        embedded = Embedded()
        for thing in objects:
            embedded.insert(thing)
        config = {**DEFAULT_CONFIG, "profiles": [profile]} if profile else DEFAULT_CONFIG
        async with scheduler_on(embedded, config):
            if reserve is not None:
                picky[0].reserve_status = reserve
            embedded.insert(waiting)
            await asyncio.sleep(2)
            assert condition_of(embedded, "p") is not None
            assert embedded.get("Pod", "p")["status"].get("nominatedNodeName") == kept

    run(main())
