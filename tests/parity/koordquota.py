"""Plays a record about quotas, and compares it: pods, Events, every number of every quota, and what objects show."""

import asyncio
import json

from koordsched.plugins.elasticquota import kinds as api
from koordsched.plugins.elasticquota.arithmetic.amounts import parse
from tests.parity.koord import API_VERSIONS, KoordReplay, checkpoint_differences, condition_of, pod_differences
from tests.parity.quotacorrections import corrections_of_events
from tests.parity.quotaretries import RETRIES

NUMBERS = {
    "used": "used",
    "nonPreemptibleUsed": "non_preemptible_used",
    "request": "request",
    "nonPreemptibleRequest": "non_preemptible_request",
    "childRequest": "child_request",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
    "selfUsed": "self_used",
    "selfRequest": "self_request",
    "selfNonPreemptibleUsed": "self_non_preemptible_used",
    "selfNonPreemptibleRequest": "self_non_preemptible_request",
    "sharedWeight": "weight",
    "max": "max",
    "min": "min",
    "runtime": "runtime",
    "autoScaleMin": "scaled_min",
}
REFRESHED = ("runtime", "autoScaleMin")
"""Upstream works these out every ten seconds, or when a pod is tried."""
"""Upstream works these out every ten seconds, or when a pod is tried."""

SHOWN = {
    "runtime": api.RUNTIME,
    "request": api.REQUEST,
    "childRequest": api.CHILD_REQUEST,
    "guaranteed": api.GUARANTEED,
    "allocated": api.ALLOCATED,
    "nonPreemptibleRequest": api.NON_PREEMPTIBLE_REQUEST,
    "nonPreemptibleUsed": api.NON_PREEMPTIBLE_USED,
}
"""Numbers that upstream's status loop writes on a quota, besides `used` in its status -> their annotations."""


class QuotaReplay(KoordReplay):
    """A record about quotas under way. `objects[checkpoint]`: ElasticQuotas by key; `events`: all there were."""

    AS_THEY_ARE = "as they are"
    """The checkpoint before pods are tried again."""

    def __init__(self, record):
        super().__init__(record, look)
        self.objects = {}
        self.events = set()

    async def _settle(self):
        await super()._settle()
        if again := RETRIES.get(self.record["name"]):
            self._remember(self.AS_THEY_ARE)
            scheduler = self._running.scheduler
            scheduler.queue.activate(pod for pod in scheduler.pending_pods() if pod.key in again)
            await asyncio.sleep(1)

    def _remember(self, name):
        super()._remember(name)
        found = self.embedded.registry.list(self.embedded.resource("ElasticQuota", API_VERSIONS["ElasticQuota"]))
        self.objects[name] = {
            f"ElasticQuota/{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in found
        }
        uids = {pod["metadata"]["uid"]: key for pods in self.pods.values() for key, pod in pods.items()}
        for event in self.embedded.events():
            note, thing = event["note"], event["regarding"]
            for uid, key in uids.items():
                note = note.replace(uid, f"<uid of {key}>")
            regarding = "/".join(filter(None, (thing["kind"], thing.get("namespace"), thing["name"])))
            self.events.add((regarding, event["reason"], note))

    def differences(self):
        """What differs from the record, as texts."""
        expected = self.record["expected"]
        found = pod_differences(self.record, self) + self._retry_differences() + self._event_differences()
        waits = {step["checkpoint"]: step for step in self.record.get("steps") or () if "checkpoint" in step}
        for checkpoint, state in expected.get("checkpoints", {}).items():
            step = waits[checkpoint]
            refreshed = bool(step.get("settle")) or step.get("wait", 0) > 10
            found += checkpoint_differences(self.record, self, checkpoint)
            found += self._state_differences(checkpoint, state, refreshed)
        return found + self._state_differences(self.END, expected, refreshed=True)

    def _state_differences(self, checkpoint, state, refreshed):
        numbers = number_differences(self.record, self, checkpoint, state["summaries"], refreshed=refreshed)
        return numbers + object_differences(self.objects[checkpoint], state, checkpoint, refreshed)

    def _retry_differences(self):
        """Pods that are tried again without need."""
        return [
            f"{key} was tried again without need"
            for key in RETRIES.get(self.record["name"], ())
            if condition_of(self.pods[self.AS_THEY_ARE][key]) == condition_of(self.pods[self.END][key])
        ]

    def _event_differences(self):
        """The Events are as recorded, but those that are said to be otherwise, which are so."""
        recorded = {(event["regarding"], event["reason"], event["note"]) for event in self.record["expected"]["events"]}
        extra, missing = self.events - recorded, recorded - self.events
        besides, absent = corrections_of_events(self.record)
        found = []
        for events, corrections, text in ((extra, besides, "is not recorded"), (missing, absent, "is missing")):
            for correction in corrections:
                alike = {event for event in events if event[:2] == correction[:2] and correction[2] in event[2]}
                if len(alike) != 1:
                    found.append(f"{len(alike)} events like {correction}, expected one that {text}")
                events -= alike
            found += [f"event {event} {text}" for event in sorted(events)]
        return found


def nonzero(amounts):
    """A zero entry equals an absent one."""
    return {name: amount for name, amount in amounts.items() if amount}


def look(scheduler):
    """Every number of every quota, and its pods."""
    books = scheduler.profiles["koord-scheduler"].plugins["ElasticQuota"].books
    return {
        quota.name: {
            **{key: nonzero(getattr(quota, attribute)) for key, attribute in NUMBERS.items()},
            "parentName": quota.parent.name if quota.parent is not None else "",
            "tree": quota.tree.id,
            "pods": {member.pod.key: member.assigned for member in books.members(quota)},
        }
        for quota in books.quotas()
    }


def number_differences(record, replay, checkpoint, summaries, *, refreshed):
    """What differs from the recorded summaries, as texts."""
    found = []
    state = replay.states[checkpoint]
    args = {c["name"]: c["args"] for c in record["config"]["profiles"][0]["pluginConfig"]}["ElasticQuota"]
    for name, summary in summaries.items():
        quota = state.get(name)
        if quota is None:
            found.append(f"{checkpoint}: no quota {name}")
            continue
        for key in NUMBERS:
            if key in REFRESHED and (not refreshed or not summary[key] or not args.get("enableRuntimeQuota", True)):
                continue
            expected = nonzero(parse(summary[key] or {})[0])
            if quota[key] != expected:
                found.append(f"{checkpoint}: {name}.{key} {quota[key]}, expected {expected}")
        if quota["parentName"] != summary["parentName"] or quota["tree"] != summary["tree"]:
            found.append(f"{checkpoint}: {name} in {quota['parentName']}, {quota['tree']!r}")
        pods = {key: pod["isAssigned"] for key, pod in summary.get("podCache", {}).items()}
        if quota["pods"] != pods:
            found.append(f"{checkpoint}: {name} has pods {quota['pods']}, expected {pods}")
    return found


def shown(obj):
    """What an object shows, as numbers; entries that are zero equal missing ones."""
    annotations = obj.get("metadata", obj).get("annotations") or {}
    found = {key: amounts(json.loads(annotations.get(name, "{}"))) for key, name in SHOWN.items()}
    found["used"] = amounts((obj.get("status") or {}).get("used"))
    return found


def amounts(quantities):
    """Quantities as numbers, without those that are zero."""
    return nonzero(parse(quantities or {})[0])


def object_differences(objects, state, checkpoint, refreshed):
    """What differs in the ElasticQuotas from the recorded ones, as texts: which there are, and what they show."""
    recorded = {key: obj for key, obj in state["objects"].items() if key.startswith("ElasticQuota/")}
    if objects.keys() != recorded.keys():
        return [f"{checkpoint}: quotas {sorted(objects)}, expected {sorted(recorded)}"]
    found = []
    for key, expected in recorded.items():
        ours, theirs = objects[key], shown(expected)
        changes = state["shown"].get(key.rpartition("/")[2], {})
        theirs |= {number: amounts(changes[number]) for number in theirs.keys() & changes.keys()}
        for number, amount in shown(ours).items():
            if number in REFRESHED and not refreshed and not theirs[number]:
                continue
            if amount != theirs[number]:
                found.append(f"{checkpoint}: {key} shows {number} {amount}, expected {theirs[number]}")
        if "spec" in expected and ours["metadata"]["namespace"] == "koordinator-system":
            bounds, wanted = (
                {bound: amounts(spec.get(bound)) for bound in ("min", "max")}
                for spec in (ours["spec"], expected["spec"])
            )
            if bounds != wanted:
                found.append(f"{checkpoint}: {key} has {bounds}, expected {wanted}")
            if (ours["metadata"].get("labels") or {}) != (expected["labels"] or {}):
                found.append(
                    f"{checkpoint}: {key} has labels {ours['metadata'].get('labels')}, not {expected['labels']}"
                )
    return found
