"""Plays a record of koord-scheduler on the real scheduler over the API of the embedded cluster, on virtual time.

The scheduler runs before the objects appear, and may be restarted on the way; nothing plays the kubelet.
"""

import asyncio
import itertools
import json
from contextlib import AsyncExitStack
from pathlib import Path

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.patching import patcher
from koordsched.plugins import CONTROLLERS
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.yamlfiles import documents

GOLDEN = Path(__file__).parent / "golden-koord"
CRDS = Path(__file__).parents[2] / "manifests" / "crds"

BETWEEN = 0.05
"""Virtual seconds between one object and the next."""
SETTLE = 12.0
"""Virtual seconds after which nothing is expected to change any more."""

GATED = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")

API_VERSIONS = {
    "ElasticQuota": "scheduling.sigs.k8s.io/v1alpha1",
    "PodDisruptionBudget": "policy/v1",
    "NodeMetric": "slo.koordinator.sh/v1alpha1",
    "Device": "scheduling.koordinator.sh/v1alpha1",
    "Reservation": "scheduling.koordinator.sh/v1alpha1",
    "PodGroup": "scheduling.sigs.k8s.io/v1alpha1",
    "ClusterNetworkTopology": "scheduling.koordinator.sh/v1alpha1",
}


def load(name):
    """The record of that name."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def names(prefix):
    """All records whose name begins so."""
    return sorted(path.stem for path in GOLDEN.glob(f"{prefix}*.json"))


def custom_resources():
    """The custom resource definitions of this project."""
    for path in sorted(CRDS.glob("*.yaml")):
        for thing in documents(path):
            if thing["kind"] == "CustomResourceDefinition":
                yield thing


class KoordReplay:
    """A record under way. `state(name)` is what `look(running)` returned at a checkpoint, `END` in the end."""

    END = "END"

    def __init__(self, record, look):
        self.record = record
        self.states = {}
        self.pods = {}
        self.embedded = Embedded()
        self._look = look
        self._numbers = itertools.count(1)
        self._running = None
        self._stack = AsyncExitStack()

    async def play(self):
        """Plays objects, then steps; returns itself."""
        for thing in custom_resources():
            self.embedded.insert(thing)
        try:
            await self._start()
            namespaces = {thing["metadata"].get("namespace", "default") for thing in self.record["objects"]}
            given = {thing["metadata"]["name"] for thing in self.record["objects"] if thing["kind"] == "Namespace"}
            for name in sorted((namespaces | {"default", "koordinator-system"}) - given):
                if self.embedded.get("Namespace", name, None) is None:
                    self._put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for thing in self.record["objects"]:
                self._put(thing)
                await asyncio.sleep(self._pause_after(thing))
            await asyncio.sleep(1)
            for step in self.record.get("steps", ()):
                await self._do(step)
            await self._settle()
            self._remember(self.END)
        finally:
            await self._stack.aclose()
        return self

    async def _settle(self):
        """Waits until nothing is expected to change any more."""
        await asyncio.sleep(SETTLE)

    @staticmethod
    def _pause_after(thing):
        waits = thing["kind"] == "Pod" and not thing["spec"].get("nodeName")
        return 3 if waits else BETWEEN

    async def _start(self):
        configuration = {**DEFAULT_CONFIG, **self.record["config"]}
        context = scheduler_on(self.embedded, configuration, gates=gates_of(self.record), controllers=CONTROLLERS)
        self._running = await self._stack.enter_async_context(context)

    async def _do(self, step):
        for thing in several(step.get("create")):
            self._put(thing)
            await asyncio.sleep(BETWEEN)
        for patch in several(step.get("patch")):
            patch_object(self.embedded, patch)
            await asyncio.sleep(BETWEEN)
        for target in several(step.get("delete")):
            delete_object(self.embedded, target)
            await asyncio.sleep(BETWEEN)
        if step.get("restartScheduler"):
            await self._stack.aclose()
            self._stack = AsyncExitStack()
            await self._start()
        await asyncio.sleep(step.get("wait", 0) + (SETTLE if step.get("settle") else 0))
        if "checkpoint" in step:
            self._remember(step["checkpoint"])

    def _remember(self, name):
        self.states[name] = self._look(self._running.scheduler)
        pods = self.embedded.registry.list(self.embedded.resource("Pod"))
        self.pods[name] = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in pods}

    def _put(self, thing):
        metadata = {"uid": f"uid-{next(self._numbers)}-", **thing["metadata"]}
        self.embedded.insert({**thing, "metadata": metadata})


def gates_of(record):
    """The feature gates of the recorded scheduler."""
    gates = [f"{name}={str(on).lower()}" for name, on in record.get("featureGates", {}).items()]
    for flag in record.get("flags", ()):
        name, _, text = flag.partition("=")
        if name == "--feature-gates":
            gates += text.split(",")
        elif name == "--enable-network-topology-manager":
            gates.append(f"NetworkTopologyManager={text}")
    return gates


def _resource(embedded, target):
    return embedded.resource(target["kind"], API_VERSIONS.get(target["kind"], "v1"))


def patch_object(embedded, target):
    """A recorded patch. Recorded objects lack defaults that a whole update would add: it goes past the update rules."""
    resource = _resource(embedded, target)
    record = embedded.registry.record(resource, target.get("namespace"), target["name"])
    changes = target.get("patch", target.get("merge", target.get("body")))
    embedded.registry.replace_record(resource, record, patcher(resource, "merge", changes)(record.obj()))


def delete_object(embedded, target):
    """A recorded deletion; the object may be gone already."""
    resource, grace = _resource(embedded, target), target.get("gracePeriodSeconds")
    try:
        embedded.registry.delete(resource, target.get("namespace"), target["name"], grace_period_seconds=grace)
    except ApiStatusError as error:
        if error.code != 404:
            raise


async def play(record, look):
    """Plays a record; returns the KoordReplay."""
    return await KoordReplay(record, look).play()


def several(things):
    """A list of things that a record has one, some or none of."""
    return things if isinstance(things, list) else [] if things is None else [things]


def created_pods(record):
    """namespace/name -> pod, of all that the record or its steps create."""
    steps = [thing for step in record.get("steps") or () for thing in several(step.get("create"))]
    pods = [thing for thing in [*record["objects"], *steps] if thing["kind"] == "Pod"]
    return {f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}": pod for pod in pods}


def deleted_pods(record):
    """namespace/name of the pods that steps of the record delete."""
    targets = [target for step in record.get("steps") or () for target in several(step.get("delete"))]
    return {f"{each.get('namespace', 'default')}/{each['name']}" for each in targets if each["kind"] == "Pod"}


def condition_of(pod):
    """The PodScheduled=False condition as (reason, message), None if there is none."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition["reason"], condition.get("message", "")
    return None


def pod_differences(record, replay):
    """What differs from the record in the pods at the end, as texts."""
    found = []
    pods, created = replay.pods[replay.END], created_pods(record)
    for key, expected in record["expected"].items():
        if "/" not in key:
            continue
        pod = pods.get(key)
        if pod is None:
            if not (expected.get("gone") or expected.get("deleted")):
                found.append(f"{key} is gone")
            continue
        bound = pod["spec"].get("nodeName")
        if bound != expected["bound"] and bound not in (expected["anyOf"] or ()):
            found.append(f"{key}: bound to {bound}, expected {expected['bound']}")
        found += _condition_differences(key, pod, expected["condition"])
        nominated = pod.get("status", {}).get("nominatedNodeName")
        if nominated != expected["nominatedNode"]:
            found.append(f"{key}: nominated to {nominated}, expected {expected['nominatedNode']}")
        given = created[key]["metadata"].get("annotations", {})
        ours = pod["metadata"].get("annotations", {})
        written = {name: text for name, text in ours.items() if given.get(name) != text}
        if written != expected["annotations"]:
            found.append(f"{key}: {written} is written, expected {expected['annotations']}")
    changed = record["expected"].get("boundPodsChanged", {})
    for key, fate in changed.items():
        found += _fate_differences(key, pods.get(key), fate)
    evicted = {key for key, pod in pods.items() if _was_preempted(pod)}
    found.extend(f"{key} was preempted, which was not recorded" for key in sorted(evicted - set(changed)))
    gone = created.keys() - pods.keys() - changed.keys() - deleted_pods(record) - record["expected"].keys()
    found.extend(f"{key} is gone, which was not recorded" for key in sorted(gone))
    return found


def checkpoint_differences(record, replay, checkpoint):
    """What differs from the record in the pods at a checkpoint, as texts: nodes, conditions, and which there are."""
    pods, recorded = replay.pods[checkpoint], record["expected"]["checkpoints"][checkpoint]["pods"]
    found = (
        [f"{checkpoint}: pods {sorted(pods)}, expected {sorted(recorded)}"] if pods.keys() != recorded.keys() else []
    )
    for key in sorted(pods.keys() & recorded.keys()):
        bound, expected = pods[key]["spec"].get("nodeName"), recorded[key]
        if bound != expected["node"]:
            found.append(f"{checkpoint}: {key} is bound to {bound}, expected {expected['node']}")
        found += _condition_differences(f"{checkpoint}: {key}", pods[key], expected.get("condition"))
    return found


def _condition_differences(key, pod, expected):
    actual = condition_of(pod)
    if actual is None and pod["spec"].get("schedulingGates"):
        actual = GATED  # written by the API server when the pod is created
    if expected is None or actual is None:
        return [] if expected is None and actual is None else [f"{key}: condition {actual}, expected {expected}"]
    texts = expected.get("messageAnyOf") or [expected["message"]]
    allowed = {(expected["reason"], text) for text in texts}
    if actual in allowed:
        return []
    return [f"{key}: condition\n  {actual}, expected\n  {sorted(allowed)}"]


def _fate_differences(key, pod, fate):
    if fate.get("gone"):
        return [] if pod is None else [f"{key} is not gone"]
    if pod is None:
        return [f"{key} is gone"]
    found = []
    if bool(fate.get("terminating")) != ("deletionTimestamp" in pod["metadata"]):
        found.append(f"{key}: terminating is {'deletionTimestamp' in pod['metadata']}")
    if "disruption" in fate:
        shown = [c for c in pod["status"].get("conditions", ()) if c["type"] == "DisruptionTarget"]
        actual = {"reason": shown[0]["reason"], "message": shown[0]["message"]} if shown else None
        if actual != fate["disruption"]:
            found.append(f"{key}: disruption {actual}, expected {fate['disruption']}")
    return found


def _was_preempted(pod):
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)
