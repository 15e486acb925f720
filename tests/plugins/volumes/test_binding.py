"""From the choice of a node to bound claims and a bound pod, on the embedded cluster and virtual time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from koordsched.client.errors import Ambiguous
from koordsched.fakecluster.controllers import Controllers
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.plugins.volumes.objects import HOSTNAME, LOCAL, claim, node, pod, storage_class, volume
from tests.virtualtime import run

SELECTED = "volume.kubernetes.io/selected-node"
FAILED = 'running PreBind plugin "VolumeBinding": '
NODES = [node("n1"), node("n2")]


def condition_of(embedded, name):
    """(reason, message) of PodScheduled=False, or None."""
    for condition in embedded.get("Pod", name)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition["reason"], condition["message"]
    return None


def node_of(embedded, name):
    return embedded.get("Pod", name)["spec"].get("nodeName")


def failures(embedded):
    """The notes of all FailedScheduling events."""
    return [event["note"] for event in embedded.events() if event["reason"] == "FailedScheduling"]


def change(embedded, kind, name, how):
    """What some controller does to an object: `how` changes it in place."""
    resource = embedded.resource(kind)

    def make(current):
        how(current)
        return current

    embedded.registry.update_record(resource, "default" if resource.namespaced else "", name, make)


def finish_binding(embedded, claim_name, volume_name):
    """What the binder does last."""

    def how(current):
        current["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
        current["spec"]["volumeName"] = volume_name

    change(embedded, "PersistentVolumeClaim", claim_name, how)


async def until(condition, seconds):
    """Lets virtual time pass until something is so; returns how long that took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not condition():
        assert loop.time() - start < seconds, "it did not happen"
        await asyncio.sleep(0.05)
    return loop.time() - start


@asynccontextmanager
async def waiting_pod(*objects, claims=("c",), fault=None, bind_timeout=None):
    """A pod that was placed on n1 and now waits for its volumes; yields the embedded cluster."""
    embedded = Embedded()
    for thing in [node("n1"), *objects]:
        embedded.insert(thing)
    profile = {"schedulerName": "default-scheduler"}
    if bind_timeout is not None:
        profile["pluginConfig"] = [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": bind_timeout}}]
    async with scheduler_on(embedded, {**DEFAULT_CONFIG, "profiles": [profile]}, fault=fault):
        embedded.insert(pod("p", *claims))
        await asyncio.sleep(0.5)
        yield embedded


def test_core_case_27_a_claim_that_never_binds():
    async def main():
        async with waiting_pod(storage_class(), claim("c")) as embedded:
            for _ in range(2):
                shown = embedded.get("Pod", "p")
                assert shown["status"].get("nominatedNodeName") == "n1"
                assert condition_of(embedded, "p") is None
                assert embedded.get("PersistentVolumeClaim", "c")["metadata"]["annotations"] == {SELECTED: "n1"}
                await asyncio.sleep(598)
            await asyncio.sleep(3)
            message = FAILED + "binding volumes: context deadline exceeded"
            assert failures(embedded) == [message]
            # The next attempt is under way, on the node that the claim still names.
            assert embedded.get("PersistentVolumeClaim", "c")["metadata"]["annotations"] == {SELECTED: "n1"}
            assert condition_of(embedded, "p") == ("SchedulerError", message)

    run(main())


def test_the_time_to_wait_is_configured():
    async def main():
        async with waiting_pod(storage_class(), claim("c"), bind_timeout=5) as embedded:
            await asyncio.sleep(4)
            assert failures(embedded) == []
            await asyncio.sleep(1)
            assert failures(embedded) == [FAILED + "binding volumes: context deadline exceeded"]

    run(main())


def test_a_free_volume_is_claimed_and_the_pod_follows_at_once():
    async def main():
        async with waiting_pod(LOCAL, volume("v", class_name="local"), claim("c", class_name="local")) as embedded:
            written = embedded.get("PersistentVolume", "v")
            reference = written["spec"]["claimRef"]
            assert (reference["kind"], reference["apiVersion"]) == ("PersistentVolumeClaim", "v1")
            assert (reference["namespace"], reference["name"], reference["uid"]) == ("default", "c", "uid-c")
            assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
            assert written["spec"]["csi"] == {"driver": "disk.test", "volumeHandle": "h-v"}
            assert node_of(embedded, "p") is None
            finish_binding(embedded, "c", "v")
            assert await until(lambda: node_of(embedded, "p") == "n1", 5) < 0.5

    run(main())


def test_a_volume_that_was_meant_for_the_claim_is_completed_but_not_marked():
    async def main():
        meant = volume("v", class_name="local", claim="c", phase="Available")
        del meant["spec"]["claimRef"]["uid"]
        async with waiting_pod(LOCAL, meant, claim("c", class_name="local")) as embedded:
            written = embedded.get("PersistentVolume", "v")
            assert written["spec"]["claimRef"]["uid"] == "uid-c"
            assert "annotations" not in written["metadata"]
            finish_binding(embedded, "c", "v")
            await until(lambda: node_of(embedded, "p") == "n1", 5)

    run(main())


def drop_annotation(embedded):
    def how(current):
        current["metadata"]["annotations"] = {"other": "stays"}

    change(embedded, "PersistentVolumeClaim", "c", how)


def drop_all_annotations(embedded):
    change(embedded, "PersistentVolumeClaim", "c", lambda current: current["metadata"].pop("annotations"))


def bind_elsewhere(embedded):
    embedded.insert(volume("w", claim="c", at={HOSTNAME: ["n2"]}))
    finish_binding(embedded, "c", "w")


def delete(kind, name):
    def how(embedded):
        resource = embedded.resource(kind)
        embedded.registry.delete(resource, "default" if resource.namespaced else None, name)

    return how


def replace_claim(embedded):
    """By one of its name, the end of the former unseen."""
    former = embedded.get("PersistentVolumeClaim", "c")
    embedded.insert({**former, "metadata": {**former["metadata"], "uid": "another"}})


def drop_reference(embedded):
    change(embedded, "PersistentVolume", "v", lambda current: current["spec"].pop("claimRef"))


def move_node(embedded):
    change(embedded, "Node", "n1", lambda current: current["metadata"]["labels"].update({HOSTNAME: "moved"}))


DYNAMIC = [storage_class(), claim("c")]
STATIC = [LOCAL, volume("v", class_name="local"), claim("c", class_name="local")]
HERE = [LOCAL, volume("v", class_name="local", at={HOSTNAME: ["n1"]}), claim("c", class_name="local")]


@pytest.mark.parametrize(
    "state, event, message",
    [
        (DYNAMIC, drop_annotation, 'provisioning failed for PVC "c"'),
        (DYNAMIC, drop_all_annotations, 'selectedNode annotation reset for PVC "c"'),
        (
            DYNAMIC,
            bind_elsewhere,
            'pv "w" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms',
        ),
        (
            DYNAMIC,
            delete("PersistentVolumeClaim", "c"),
            'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "default/c"',
        ),
        (
            DYNAMIC,
            replace_claim,
            'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "default/c"',
        ),
        (DYNAMIC, delete("Node", "n1"), 'failed to get node "n1": node "n1" not found'),
        (STATIC, drop_reference, 'ClaimRef got reset for pv "v"'),
        (HERE, move_node, 'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'),
        (STATIC, bind_elsewhere, 'claim "default/c" was bound to pv "w", not to "v"'),
        (
            STATIC,
            delete("PersistentVolume", "v"),
            'failed to check binding: could not find v1.PersistentVolume "v"',
        ),
        (
            STATIC,
            delete("PersistentVolumeClaim", "c"),
            'failed to check binding: could not find v1.PersistentVolumeClaim "default/c"',
        ),
        (STATIC, replace_claim, 'failed to check binding: could not find v1.PersistentVolumeClaim "default/c"'),
    ],
)
def test_what_may_go_wrong_while_waiting(state, event, message):
    async def main():
        async with waiting_pod(*state) as embedded:
            event(embedded)
            await asyncio.sleep(1.2)
            assert failures(embedded)[0] == f"{FAILED}binding volumes: {message}"

    run(main())


def test_after_a_failure_the_pod_is_tried_again():
    async def main():
        async with waiting_pod(*DYNAMIC) as embedded:
            drop_annotation(embedded)
            await asyncio.sleep(10)
            assert embedded.get("PersistentVolumeClaim", "c")["metadata"]["annotations"][SELECTED] == "n1"
            embedded.insert(volume("w", claim="c"))
            finish_binding(embedded, "c", "w")
            await until(lambda: node_of(embedded, "p") == "n1", 5)

    run(main())


@pytest.mark.parametrize("state", [DYNAMIC, STATIC])
def test_another_scheduler_takes_over_what_the_first_one_began(state):
    async def main():
        async with waiting_pod(*state) as embedded:
            pass  # the scheduler stops while the pod waits
        async with scheduler_on(embedded):
            await asyncio.sleep(1)
            assert node_of(embedded, "p") is None
            if state is DYNAMIC:
                embedded.insert(volume("v", claim="c"))
            finish_binding(embedded, "c", "v")
            await until(lambda: node_of(embedded, "p") == "n1", 5)
            assert embedded.get("PersistentVolume", "v")["spec"]["claimRef"]["uid"] == "uid-c"

    run(main())


def test_a_write_that_comes_too_late_is_refused_and_nothing_stays_promised():
    async def main():
        embedded = None

        async def fault(call, proceed):
            if call.method == "PATCH" and call.path.endswith("/persistentvolumes/v") and not spoilt:
                spoilt.append(True)
                change(embedded, "PersistentVolume", "v", lambda current: current["spec"].update(claimRef=FOREIGN))
            return await proceed()

        spoilt = []
        FOREIGN = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "theirs", "uid": "uid-theirs"}  # noqa: N806
        embedded = Embedded()
        for thing in [*NODES, *STATIC]:
            embedded.insert(thing)
        async with scheduler_on(embedded, fault=fault):
            embedded.insert(pod("p", "c"))
            await asyncio.sleep(3)
            first, *later = failures(embedded)
            assert first.startswith(FAILED + 'Operation cannot be fulfilled on persistentvolumes "v"')
            assert embedded.get("PersistentVolume", "v")["spec"]["claimRef"]["name"] == "theirs"
            assert "2 node(s) didn't find available persistent volumes to bind" in later[0]

    run(main())


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_answer_that_gets_lost_is_asked_for_again(carried_out):
    async def main():
        lost = []

        async def fault(call, proceed):
            if call.method == "PATCH" and "/persistentvolumes/" in call.path and len(lost) < 2:
                lost.append(call)
                if carried_out:
                    await proceed()
                raise Ambiguous("connection lost after sending")
            return await proceed()

        async with waiting_pod(*STATIC, fault=fault) as embedded:
            await asyncio.sleep(2)
            assert len(lost) == 2
            assert embedded.get("PersistentVolume", "v")["spec"]["claimRef"]["uid"] == "uid-c"
            finish_binding(embedded, "c", "v")
            await until(lambda: node_of(embedded, "p") == "n1", 5)
            assert failures(embedded) == []

    run(main())


def test_a_pod_deleted_while_waiting_frees_what_was_not_written():
    async def main():
        held = asyncio.Event()

        async def fault(call, proceed):
            if call.method == "PATCH" and "/persistentvolumes/" in call.path and not held.is_set():
                await held.wait()
            return await proceed()

        async with waiting_pod(*STATIC, fault=fault) as embedded:
            embedded.insert(claim("d", class_name="local"))
            embedded.insert(pod("q", "d"))
            await asyncio.sleep(1)
            assert "1 node(s) didn't find available persistent volumes to bind" in condition_of(embedded, "q")[1]
            embedded.registry.delete(embedded.resource("Pod"), "default", "p", grace_period_seconds=0)
            embedded.registry.delete(embedded.resource("PersistentVolumeClaim"), "default", "c")
            # The write is still on its way; somebody takes the volume back once it has arrived.
            held.set()
            await asyncio.sleep(2)
            drop_reference(embedded)
            await until(
                lambda: embedded.get("PersistentVolume", "v")["spec"].get("claimRef", {}).get("name") == "d", 15
            )

    run(main())


TEMPLATE = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "late",
    },
}


def stateful_set(replicas, class_name):
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "storageClassName": class_name}}
    mounted = {"name": "data", "mountPath": "/data"}
    container = {"name": "c", "image": "i", "volumeMounts": [mounted], "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [template],
        },
    }


def test_a_stateful_set_gets_volumes_provisioned_where_its_pods_go():
    async def main():
        embedded = Embedded()
        Controllers(embedded.registry, provision_delay=2.0).start()
        for thing in [*NODES, storage_class()]:
            embedded.insert(thing)
        async with scheduler_on(embedded):
            embedded.registry.create(embedded.resource("StatefulSet", "apps/v1"), "default", stateful_set(4, "late"))
            names = [f"db-{i}" for i in range(4)]
            await until(lambda: all(embedded.get("Pod", name) for name in names), 10)
            took = await until(lambda: all(node_of(embedded, name) for name in names), 30)
            assert took < 4
            for name in names:
                bound = embedded.get("PersistentVolumeClaim", f"data-{name}")
                assert bound["metadata"]["annotations"][SELECTED] == node_of(embedded, name)
                assert bound["status"]["phase"] == "Bound"
                assert embedded.get("PersistentVolume", bound["spec"]["volumeName"])
            assert failures(embedded) == []

    run(main())


def test_a_stateful_set_takes_local_volumes_each_its_own():
    async def main():
        embedded = Embedded()
        Controllers(embedded.registry).start()
        for thing in [*NODES, LOCAL]:
            embedded.insert(thing)
        for name in ("n1", "n2"):
            for number in range(2):
                embedded.insert(volume(f"{name}-{number}", "3Gi", "local", at={HOSTNAME: [name]}))
        async with scheduler_on(embedded):
            embedded.registry.create(embedded.resource("StatefulSet", "apps/v1"), "default", stateful_set(5, "local"))
            names = [f"db-{i}" for i in range(5)]
            await until(lambda: all(embedded.get("Pod", name) for name in names), 10)
            await asyncio.sleep(20)
            placed = {name: node_of(embedded, name) for name in names if node_of(embedded, name)}
            assert sorted(placed.values()) == ["n1", "n1", "n2", "n2"]
            used = [embedded.get("PersistentVolumeClaim", f"data-{name}")["spec"]["volumeName"] for name in placed]
            assert sorted(used) == ["n1-0", "n1-1", "n2-0", "n2-1"]
            assert all(used[i].startswith(where) for i, where in enumerate(placed.values()))
            (left,) = set(names) - set(placed)
            assert "2 node(s) didn't find available persistent volumes to bind" in condition_of(embedded, left)[1]

    run(main())
