"""Plays a record on the real scheduler over the API of the embedded cluster, on virtual time."""

import asyncio
import itertools
import json
import re

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.fakecluster.patching import patcher
from tests.embedded import Embedded, scheduler_on

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
    """The outcome of a record: what the API server shows in the end, and the attempts after each step."""

    def __init__(self, embedded):
        self.embedded = embedded
        self.attempts = {}
        self.uids = {}

    def pod(self, key):
        """The pod as it ended, None if it is gone."""
        namespace, name = key.split("/")
        return self.embedded.get("Pod", name, namespace)

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
    for key, fate in record["expected"].get("evicted", {}).items():
        pod = outcome.pod(key)
        actual = "gone" if pod is None else "deleting" if "deletionTimestamp" in pod["metadata"] else "there"
        if actual != fate:
            found.append(f"{key}: {actual}, expected {fate}")
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
