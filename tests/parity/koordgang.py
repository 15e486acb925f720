"""Plays a record about gangs, and compares it: pods, PodGroups, and every gang as upstream's debug page shows it."""

import json
import re

from koordsched.framework.declaration import finished
from koordsched.plugins.coscheduling import DECLARATION
from koordsched.plugins.coscheduling.options import membership
from tests.parity.koord import (
    API_VERSIONS,
    BETWEEN,
    GATED,
    KoordReplay,
    condition_of,
    created_pods,
    deleted_pods,
    several,
)
from tests.parity.koordquota import shown
from tests.parity.matching import ABSENT, ONE_OF_THE_PENDING, UNSTABLE, Names, differences

PAGE = "/apis/v1/plugins/Coscheduling/gangs"
BY_CHANCE = "up to chance"
"""What the notes of a record say if members are bound in an order that is up to chance."""


class GangReplay(KoordReplay):
    """A record about gangs under way. `gangs[checkpoint]`, `objects[checkpoint]`: summaries, and objects by key."""

    def __init__(self, record):
        super().__init__(record, self._summaries)
        self.objects = {}
        self.uids = {}
        """namespace/name of every pod there was -> uid."""

    @staticmethod
    def _pause_after(thing):
        return BETWEEN

    async def _do(self, step):
        # The recorded deletions were at once: nothing played the kubelet.
        deletions = [{"gracePeriodSeconds": 0, **target} for target in several(step.get("delete"))]
        await super()._do(step | {"delete": deletions})

    def _summaries(self, scheduler):
        (page,) = [page for page in DECLARATION.pages if page.path == PAGE]
        answer = page.answer(DECLARATION.plugin_in(scheduler.profiles), {})
        found = json.loads(json.dumps(finished(answer) if hasattr(answer, "send") else answer))
        for summary in found.values():
            assert re.match(r"\d{4}-", summary.pop("createTime")), summary
        return found

    def _put(self, thing):
        super()._put(thing)
        if thing["kind"] == "Pod":
            meta = thing["metadata"]
            self.uids[f"{meta['namespace']}/{meta['name']}"] = self.embedded.get(
                "Pod", meta["name"], meta["namespace"]
            )["metadata"]["uid"]

    def _remember(self, name):
        super()._remember(name)
        self.objects[name] = {key: self._status(key) for key in self._state(name)["objects"]}

    def _status(self, key):
        kind, *_, namespace, name = [*key.split("/")[:1], *[""], *key.split("/")[1:]]
        found = self.embedded.get(kind, name, namespace, API_VERSIONS[kind])
        return ABSENT if found is None else status_of(kind, found)

    def _state(self, name):
        expected = self.record["expected"]
        return expected if name == self.END else expected["checkpoints"][name]

    def differences(self):
        """What differs from the record, as texts."""
        found = []
        for name in (*self.record["expected"].get("checkpoints", {}), self.END):
            found += [f"{name}: {text}" for text in self._differences_at(name)]
        found += self._event_differences()
        return found

    def _differences_at(self, name):
        state, summaries = self._state(name), self.states[name]
        pending = {key for summary in summaries.values() for key in summary["pendingChildren"]}
        names = Names(self.uids, pending)
        recorded = {gang: at_rest(summary) for gang, summary in state["summaries"].items()}
        if self.by_chance:
            summaries, recorded = (
                {gang: with_counts(summary) for gang, summary in each.items()} for each in (summaries, recorded)
            )
        found = differences(summaries, recorded, names, "summaries")
        for key, ours in self.objects[name].items():
            recorded = status_of(key.split("/")[0], state["objects"][key])
            found += differences(ours, recorded, names, key)
        pods = recorded_at_end(state) if name == self.END else self._recorded_at_checkpoint(state)
        found += self._pod_differences(name, pods, names)
        if name == self.END:
            found += self._end_differences(names)
        return found

    @property
    def by_chance(self):
        """Whether members are bound in an order that is up to chance."""
        return BY_CHANCE in self.record["notes"]

    def _recorded_at_checkpoint(self, state):
        """Pods at a checkpoint. What a gang reads that is tried again and again changes: any recorded text will do."""
        pods = {}
        for key, pod in state["pods"].items():
            pods[key] = pod
            condition = pod.get("condition")
            if condition and condition["reason"] == "Unschedulable":
                events = self.record["expected"]["events"]
                notes = [event["note"] for event in events if event["regarding"] == f"Pod/{key}"]
                texts = {UNSTABLE: [condition["message"], *notes]}
                pods[key] = pod | {"condition": condition | {"message": texts}}
        return pods

    def _pod_differences(self, name, recorded, names):
        ours = {key: self._pod_state(self.pods[name].get(key)) for key in recorded}
        recorded = {key: self._without_passing_nominations(without_nones(state)) for key, state in recorded.items()}
        if not self.by_chance:
            return differences(ours, recorded, names, "pods")
        # Which member is in which state is up to chance, but not the states.
        left, found = dict(recorded), []
        for key, state in ours.items():
            alike = next((other for other in left if not differences(state, left[other], names)), None)
            if alike is None:
                found.append(f"pods.{key}: {state}, recorded are {list(left.values())}")
            else:
                del left[alike]
        return found

    def _without_passing_nominations(self, state):
        """The reference nominates members to the node that they have while they wait for the others, and leaves that to
        chance when they lose it. Ours get it all at once: they are nominated where room is made for them only.
        """
        nominated = state.get("nominated")
        if self.record["expected"].get("boundPodsChanged") or not isinstance(nominated, str):
            return state
        return state | {"nominated": {UNSTABLE: [nominated, ABSENT]}}

    def _pod_state(self, pod):
        if pod is None:
            return {"gone": True}
        condition = condition_of(pod)
        if condition is None and pod["spec"].get("schedulingGates"):
            condition = GATED
        given = self._given(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        annotations = pod["metadata"].get("annotations", {})
        return without_nones(
            {
                "node": pod["spec"].get("nodeName"),
                "condition": None if condition is None else dict(zip(("reason", "message"), condition, strict=True)),
                "nominated": pod.get("status", {}).get("nominatedNodeName"),
                "annotations": {key: text for key, text in annotations.items() if given.get(key) != text},
                **fate_of(pod),
            }
        )

    def _given(self, key):
        """The annotations that a pod came with."""
        return created_pods(self.record)[key]["metadata"].get("annotations", {})

    def _end_differences(self, names):
        """How many members are bound, which pods were evicted for it, and that no others were."""
        expected, pods, found = self.record["expected"], self.pods[self.END], []
        bound = dict.fromkeys(expected["boundCount"], 0)
        for pod in pods.values():
            meta = pod["metadata"]
            gang = membership(meta["namespace"], meta.get("labels", {}), meta.get("annotations", {}))
            if gang is not None and pod["spec"].get("nodeName"):
                bound[gang.id] += 1
        found += differences(bound, expected["boundCount"], names, "boundCount")
        fates = expected.get("boundPodsChanged", {})
        ours = {key: fate_of(pods.get(key)) for key in fates}
        found += differences(ours, {key: without_nones(fate) for key, fate in fates.items()}, names, "boundPodsChanged")
        ends = {"disruption", "terminating", "gone"}
        disturbed = {key for key in self.uids if fate_of(pods.get(key)).keys() & ends}
        unexpected = disturbed - fates.keys() - expected.keys() - deleted_pods(self.record)
        found += [f"{key} is preempted or gone, which is not recorded" for key in sorted(unexpected)]
        return found

    def _event_differences(self):
        """Every Event of ours is recorded. For every pod there are Events for the recorded reasons.

        The messages of a failing gang change with every round, and which of them become Events is up to timing.
        """
        names = Names(self.uids)
        ours = sorted({(regarding(event), event["reason"], event["note"]) for event in self.embedded.events()})
        expected = self.record["expected"]
        recorded, possible = (
            [self._anyones(event["regarding"], event["reason"], event["note"]) for event in events]
            for events in (expected["events"], expected.get("possible events", ()))
        )
        found = [
            f"event {event} is not recorded"
            for event in ours
            if all(differences(list(event), other, names) for other in recorded + possible)
        ]
        missing = [
            f"there is no event {reason} for {thing}"
            for thing, reason, _ in recorded
            if all(differences(list(event[:2]), [thing, reason], names) for event in ours)
        ]
        return found + sorted(set(missing))

    def _anyones(self, thing, reason, note):
        """A recorded Event; of any member if it is up to chance of which."""
        if self.by_chance and thing.startswith("Pod/") and isinstance(note, str):
            key = thing.removeprefix("Pod/")
            name = key.partition("/")[2]
            note = note.replace(key, "<a member>").replace(f"pod {name}", "pod <a member>")
            thing = "Pod/<a member>"
        return [thing, reason, note]


def regarding(event):
    """What an Event is about, as recorded."""
    thing = event["regarding"]
    return "/".join(filter(None, (thing["kind"], thing.get("namespace"), thing["name"])))


def recorded_at_end(expected):
    """The states of pods at the end, in the form of those of checkpoints."""
    return {key: _at_end(state) for key, state in expected.items() if "/" in key}


def _at_end(state):
    if state.get("gone"):
        return {"gone": True}
    condition = state["condition"]
    if condition is not None and "messageAnyOf" in condition:
        condition = {"reason": condition["reason"], "message": {UNSTABLE: condition["messageAnyOf"]}}
    node = state["bound"]
    if "boundUnstable" in state:
        node = {UNSTABLE: [ABSENT if each is None else each for each in state["boundUnstable"]]}
    nominated = state["nominatedNode"]
    if isinstance(nominated, dict):
        nominated = {UNSTABLE: [ABSENT if each is None else each for each in nominated[UNSTABLE]]}
    return {
        "node": node,
        "condition": condition,
        "nominated": nominated,
        "annotations": state["annotations"],
        "terminating": state.get("terminating"),
        "disruption": state.get("disruptionTarget"),
    }


def at_rest(summary):
    """A gang that is tried again and again: whether a member represents it at a given moment is up to timing."""
    info = summary["gangGroupInfo"]
    singly = summary["onceResourceSatisfied"] and summary["gangMatchPolicy"] == "once-satisfied"
    if singly or not summary["pendingChildren"] or len(summary["children"]) < summary["minRequiredNumber"]:
        return summary
    return summary | {"gangGroupInfo": info | {"RepresentativePodKey": {UNSTABLE: [ONE_OF_THE_PENDING, ""]}}}


def with_counts(summary):
    """A gang with the number of its pods in each state in place of their names."""
    return summary | {key: len(summary[key]) for key in ("pendingChildren", "waitingForBindChildren", "boundChildren")}


def without_nones(state):
    """A pod's state without what it does not have."""
    return {key: value for key, value in state.items() if value is not None and value != {}}


def status_of(kind, obj):
    """What is compared of an object."""
    return shown(obj) if kind == "ElasticQuota" else without_zeros(obj.get("status", {}))


def without_zeros(status):
    """A status without counters that are 0: they are written or left out."""
    return {key: value for key, value in status.items() if value not in (0, "")}


def fate_of(pod):
    """What happened to a pod that had a node, as recorded."""
    if pod is None:
        return {"gone": True}
    shown = [c for c in pod.get("status", {}).get("conditions", ()) if c["type"] == "DisruptionTarget"]
    return without_nones(
        {
            "node": pod["spec"].get("nodeName"),
            "terminating": True if "deletionTimestamp" in pod["metadata"] else None,
            "disruption": {"reason": shown[0]["reason"], "message": shown[0]["message"]} if shown else None,
        }
    )
