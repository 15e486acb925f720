"""Plays a record on the real scheduler over the API of the embedded cluster, on virtual time."""

import asyncio
import itertools
import json
import re

from koordsched.engine.explain import explain
from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.patching import patcher
from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import created_pods, deleted_pods

SETTLE = 3.0
"""Virtual seconds between one pending pod and the next."""

CONTENT_TYPES = {"merge": "merge", "strategic-merge-patch+json": "strategic", "merge-patch+json": "merge"}


_UID_OF = re.compile(r"<uid of ([^>]+)>")


class Uids:
    """The uids of objects: known before the objects are there, as others may name them."""

    def __init__(self):
        self._numbers = itertools.count(1)
        self._of_pods = {}

    def next(self):
        """A new one."""
        return f"uid-{next(self._numbers)}-"

    def of_pod(self, key):
        """That of the pod of this key, which is created once."""
        return self._of_pods.setdefault(key, self.next())

    def filled_in(self, thing):
        """The object, or patch, with uids instead of placeholders."""
        text = _UID_OF.sub(lambda found: self.of_pod(found[1]), json.dumps(thing))
        return json.loads(text.replace('"<time>"', '"2031-05-04T08:00:00Z"'))


class Replay:
    """The outcome of a record: what the API server shows in the end, and the attempts after each step.

    `said`: pod -> what `explain` said just before its latest attempt, pods in the order of their first attempts.
    """

    def __init__(self, embedded):
        self.embedded = embedded
        self.attempts = {}
        self.uids = {}
        self.said = {}

    def look_before_attempts(self, scheduler):
        """Explains every pod when it is tried, with the cluster as it is then."""
        attempt = scheduler.cycle.schedule_one

        def looking(queued):
            profile = scheduler.profiles[queued.pod.shape.scheduler_name]
            self.said[queued.key] = explain(profile, scheduler.cluster, queued.pod)
            return attempt(queued)

        scheduler.cycle.schedule_one = looking

    def pod(self, key):
        """The pod as it ended, None if it is gone."""
        namespace, name = key.split("/")
        return self.embedded.get("Pod", name, namespace)

    def victims(self, key):
        """The pods that went for this one, by their Events."""
        events = self.events()
        return sorted(event[4] for event in events if event[1] == "Preempted" and f"{{uid:{key}}}" in event[3])

    def events(self):
        """(type, reason, action, note, regarding, controller) of all pod events."""
        found = set()
        for event in self.embedded.events():
            regarding = event["regarding"]
            if regarding["kind"] != "Pod":
                continue
            note = event["note"]
            for uid, key in self.uids.items():
                note = note.replace(uid, f"{{uid:{key}}}")
            found.add(
                (
                    event["type"],
                    event["reason"],
                    event["action"],
                    note,
                    f"{regarding['namespace']}/{regarding['name']}",
                    event["reportingController"],
                )
            )
        return found


async def play(record):
    """Plays objects, pending pods and steps; returns the Replay."""
    embedded = Embedded()
    outcome = Replay(embedded)
    uids = Uids()

    def put(thing):
        thing, meta = uids.filled_in(thing), thing["metadata"]
        is_pod = thing["kind"] == "Pod"
        uid = uids.of_pod(f"{meta.get('namespace', 'default')}/{meta['name']}") if is_pod else uids.next()
        stored = embedded.insert({**thing, "metadata": {"uid": uid, **thing["metadata"]}})
        if thing["kind"] == "Pod":
            outcome.uids[stored.uid] = f"{stored.namespace}/{stored.name}"

    pending = [o for o in record["objects"] if o["kind"] == "Pod" and not o["spec"].get("nodeName")]
    for namespace in {o["metadata"].get("namespace", "default") for o in record["objects"]} | {"default"}:
        if embedded.get("Namespace", namespace, None) is None and not any(
            o["kind"] == "Namespace" and o["metadata"]["name"] == namespace for o in record["objects"]
        ):
            put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for thing in record["objects"]:
        if thing not in pending:
            put(thing)
    if record.get("startWithPending"):
        for thing in pending:
            put(thing)
        pending = []
    gates = [f"{name}={str(on).lower()}" for name, on in record.get("featureGates", {}).items()]
    async with scheduler_on(embedded, record["config"], gates=gates) as running:
        outcome.look_before_attempts(running.scheduler)
        for thing in pending:
            put(thing)
            await asyncio.sleep(SETTLE)
        await asyncio.sleep(SETTLE)
        for step in record.get("steps", []):
            do(embedded, put, uids.filled_in(step) if "patch" in step else step)
            await asyncio.sleep(SETTLE if step.get("settle") else float(step.get("wait", SETTLE)))
            for key in record["expected"]:
                if "/" in key:
                    outcome.attempts.setdefault(key, []).append(running.attempts.get(key, 0))
        await asyncio.sleep(0.1)
    return outcome


def do(embedded, put, step):
    """One step of a record."""
    if "create" in step:
        put(step["create"])
        return
    target = step.get("patch") or step["delete"]
    resource = embedded.registry.resource_for_kind(
        target.get("apiVersion", api_version_of(target["kind"])), target["kind"]
    )
    namespace = target.get("namespace", "default") if resource.namespaced else None
    if "patch" in step:
        # Recorded objects lack defaults that a whole update would add, so the patch goes past the update rules.
        record = embedded.registry.record(resource, namespace, target["name"])
        apply = patcher(resource, CONTENT_TYPES[target.get("type", "merge")], target.get("body", target.get("merge")))
        patched = apply(record.obj())
        embedded.registry.replace_record(resource, record, patched)
        if "deletionTimestamp" in patched["metadata"] and not patched["metadata"].get("finalizers"):
            embedded.registry.delete(resource, namespace, target["name"])
        return
    try:
        embedded.registry.delete(
            resource, namespace, target["name"], grace_period_seconds=target.get("gracePeriodSeconds")
        )
    except ApiStatusError as error:
        if error.code != 404:
            raise


def api_version_of(kind):
    """The group of the kinds that records name without one."""
    devices = ("ResourceClaim", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate")
    groups = {"PodDisruptionBudget": "policy/v1", "CSINode": "storage.k8s.io/v1"}
    return "resource.k8s.io/v1" if kind in devices else groups.get(kind, "v1")


def differences(record, outcome):
    """What differs from the record, as texts."""
    found = []
    for key, expected in record["expected"].items():
        if "/" not in key:
            continue
        pod = outcome.pod(key)
        if expected.get("gone"):
            if pod is not None:
                found.append(f"{key} is not gone")
            continue
        if expected.get("deleted"):
            if pod is not None and "deletionTimestamp" not in pod["metadata"]:
                found.append(f"{key} is not deleted")
            continue
        if pod is None:
            found.append(f"{key} is gone")
            continue
        bound = pod["spec"].get("nodeName")
        if expected["bound"] is None and bound is not None:
            found.append(f"{key}: bound to {bound}, expected to wait")
        if expected["bound"] is not None and bound not in (expected["anyOf"] or [expected["bound"]]):
            found.append(f"{key}: bound to {bound}, expected one of {expected['anyOf']}")
        shown = [
            c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "False"
        ]
        condition = {"reason": shown[0]["reason"], "message": shown[0]["message"]} if shown else None
        if "condition" in expected and condition != expected["condition"]:
            found.append(f"{key}: condition {json.dumps(condition)}, expected {json.dumps(expected['condition'])}")
        nominated = pod["status"].get("nominatedNodeName")
        if "nominatedNode" in expected and nominated != expected["nominatedNode"]:
            found.append(f"{key}: nominated to {nominated}, expected {expected['nominatedNode']}")
        if "attempts" in expected and outcome.attempts.get(key) != expected["attempts"]:
            found.append(f"{key}: attempts {outcome.attempts.get(key)}, expected {expected['attempts']}")
        written = newly_annotated(record, key, pod)
        if "annotations" in expected and written != expected["annotations"]:
            found.append(f"{key}: {written} is written, expected {expected['annotations']}")
        found += said_differences(key, outcome.said.get(key), expected)
        victims = outcome.victims(key)
        if victims != expected["victims"]:
            found.append(f"{key}: victims {victims}, expected {expected['victims']}")
    found += fate_differences(record, outcome) + order_differences(record, outcome)
    expected_events = {
        (e["type"], e["reason"], e["action"], e["note"], e["regarding"], e["reportingController"])
        for e in record["expected"].get("events", [])
    }
    events = outcome.events()
    for key, expected in record["expected"].items():
        if "/" in key and len(expected.get("anyOf") or ()) > 1:
            # Any of the nodes is right, so the events may name different ones.
            mine, theirs = scheduled(events, key), scheduled(expected_events, key)
            if len(mine) == len(theirs):
                events, expected_events = events - mine, expected_events - theirs
    found.extend(f"unexpected event {event}" for event in sorted(events - expected_events))
    found.extend(f"missing event {event}" for event in sorted(expected_events - events))
    return found


def scheduled(events, key):
    """The Scheduled events of a pod."""
    return {event for event in events if event[1] == "Scheduled" and event[4] == key}


def newly_annotated(record, key, pod):
    """The annotations that the pod did not come with."""
    given = created_pods(record)[key]["metadata"].get("annotations", {})
    return {name: text for name, text in pod["metadata"].get("annotations", {}).items() if given.get(name) != text}


def said_differences(key, said, expected):
    """What differs in the evaluation of a pod's latest attempt: nodes that are feasible, their scores and totals.

    Of one feasible node, a nominated one or none no scores are recorded, of an attempt that an error ended no nodes.
    """
    if (expected.get("condition") or {}).get("reason") == "SchedulerError":
        return []
    if said is None:
        return [f"{key} was not tried"] if expected["feasible"] else []
    scores = {}
    for node in said.nodes:
        for plugin, score in node.scores.items():
            scores.setdefault(plugin, {})[node.name] = score.weighted
    totals = {node.name: node.total for node in said.nodes if node.feasible}
    ours = {"feasible": sorted(totals), "scores": scores, "totals": totals, "anyOf": sorted(said.any_of)}
    recorded = expected | {"feasible": sorted(expected["feasible"]), "anyOf": sorted(expected["anyOf"])}
    compared = ours.keys() if expected["scores"] else ("feasible", "anyOf")
    return [
        f"{key}: {what} {ours[what]}, expected {recorded[what]}" for what in compared if ours[what] != recorded[what]
    ]


def fate_differences(record, outcome):
    """Pods that were there before: those that are recorded as gone or deleted are so, and no others."""
    deleted = deleted_pods(record)
    evicted = record["expected"].get("evicted", {})
    found = []
    for key in created_pods(record):
        if key in record["expected"] or key in deleted:
            continue
        pod = outcome.pod(key)
        actual = "gone" if pod is None else "deleting" if "deletionTimestamp" in pod["metadata"] else "there"
        expected = evicted.get(key, "there")
        if actual != expected:
            found.append(f"{key}: {actual}, expected {expected}")
    return found


def order_differences(record, outcome):
    """Pods that are there at the start are tried in the order of the queue: priority, then as they are listed."""
    if not record.get("startWithPending"):
        return []
    waiting = {key: pod["spec"] for key, pod in created_pods(record).items() if not pod["spec"].get("nodeName")}
    expected = sorted(waiting, key=lambda key: (-waiting[key].get("priority", 0), key))
    tried = [key for key in outcome.said if key in waiting]
    return [] if tried == expected else [f"tried in the order {tried}, expected {expected}"]
