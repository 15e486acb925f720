"""Plays the records that compare single plugins: every pod is asked about before it goes where it went.

The records' profiles name plugins that are compared elsewhere, or are not built yet. So every plugin of ours is
compared for itself. How a pod gets to its node is up to the subclass.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.explain import explain
from koordsched.fakecluster.clock import rfc3339
from koordsched.framework.declaration import NotFound
from koordsched.plugins import IN_TREE
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import (
    condition_of,
    created_pods,
    custom_resources,
    delete_object,
    deleted_pods,
    gates_of,
    load,
    patch_object,
    several,
)
from tests.virtualtime import run

BETWEEN = 0.05
PREEMPTION = " preemption: "
_AGO = re.compile(r"\{\{now(?:([+-]\d+)s)?\}\}")
_UNSTABLE_MESSAGE = re.compile(r"unstable between two runs: /pods/default/([^/]+)/condition/message")
_UID = re.compile(r"\{\{uid:([^}]*)\}\}")


class KoordPlay:
    """A record under way. `compared`: names of the plugins whose verdicts and scores must be as recorded.

    `controllers`: those of plugins, by name. Uids are "kind-namespace-name".
    """

    compared = ()
    controllers = None

    def __init__(self, record):
        self.record = json.loads(_UID.sub(lambda found: found[1].replace("/", "-").lower(), json.dumps(record)))
        self.embedded = Embedded()
        self.differences = []
        self._stack = AsyncExitStack()

    async def play(self):
        """Objects, those that wait one by one, pods last, then steps; returns the differences."""
        for thing in custom_resources():
            self.embedded.insert(thing)
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        try:
            await self.play_objects()
            for step in self.record.get("steps", ()):
                await self.do(step)
            await self.end()
        finally:
            await self._stack.aclose()
        return self.differences

    async def play_objects(self):
        """The objects, and the start of the scheduler among them."""
        later = []
        for thing in self.record["objects"]:
            if self.is_first(thing):
                self.embedded.insert(self.defaulted(self.dated(thing)))
            else:
                later.append(thing)
        await self.start()
        for thing in later:
            if not self.waits(thing):
                self.embedded.insert(self.defaulted(self.dated(thing)))
                await asyncio.sleep(BETWEEN)
        await asyncio.sleep(1)
        for thing in sorted(later, key=lambda thing: thing["kind"] == "Pod"):
            if self.waits(thing):
                await self.decide(self.dated(thing))

    def defaulted(self, thing):
        """A running pod as the API server has it, so that it can be patched."""
        if thing["kind"] == "Pod":
            thing = json.loads(json.dumps(thing))
            self.embedded.registry.strategy(self.embedded.resource("Pod")).defaults(thing)
        return thing

    async def start(self):
        """The scheduler, until `restart` or the end."""
        configuration = {**DEFAULT_CONFIG, **implemented(self.record["config"])}
        context = scheduler_on(self.embedded, configuration, gates=gates_of(self.record), controllers=self.controllers)
        running = await self._stack.enter_async_context(context)
        self.scheduler = running.scheduler

    async def restart(self):
        """The scheduler ends, and another one starts."""
        await self._stack.aclose()
        await self.start()

    def is_first(self, thing):
        """Whether the object exists before the scheduler starts."""
        return False

    async def decide(self, thing):
        """What is said of what waits, then the object itself."""
        raise NotImplementedError

    async def end(self):
        """After the last step."""
        self.compare_end()

    def compare_end(self):
        """What is to be compared at the end."""
        raise NotImplementedError

    @staticmethod
    def waits(thing):
        return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")

    def dated(self, thing):
        """The object with times in place of placeholders, and its uid."""
        now = self.embedded.clock.wall()
        thing = json.loads(_AGO.sub(lambda found: rfc3339(now + int(found[1] or 0)), json.dumps(thing)))
        if meta := thing.get("metadata"):
            meta.setdefault(
                "uid", "-".join([thing["kind"].lower(), *filter(None, [meta.get("namespace")]), meta["name"]])
            )
        return thing

    def expected(self, thing):
        """What is recorded of the pod."""
        meta = thing["metadata"]
        return self.record["expected"][f"{meta.get('namespace', 'default')}/{meta['name']}"]

    def said(self, thing):
        """What the scheduler says of the pod right now."""
        cluster = self.scheduler.cluster
        profile = self.scheduler.profiles[thing["spec"].get("schedulerName", "default-scheduler")]
        return explain(profile, cluster, cluster.pods.build(convert(thing, core.Pod)))

    async def put(self, thing, node=None):
        """The pod itself: on the node, or pending."""
        if node:
            thing["spec"]["nodeName"] = node
            placed = {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": rfc3339(self.embedded.clock.wall()),
            }
            thing.setdefault("status", {})["conditions"] = [placed]
        self.embedded.insert(thing)
        await asyncio.sleep(3)

    async def do(self, step):
        for thing in several(step.get("create")):
            await self.decide(self.dated(thing))
        for patch in several(step.get("patch")):
            patch_object(self.embedded, self.dated(patch))
        for target in several(step.get("delete")):
            delete_object(self.embedded, target)
        if step.get("restartScheduler"):
            await self.restart()
        await asyncio.sleep(step.get("wait", 0))

    def compare(self, name, said, expected):
        """Verdicts and scores of every node. Of a pod that is refused before its nodes only a message is recorded."""
        if said.rejected_by:
            if expected["bound"] or expected.get("filtered"):
                self.differences.append(f"{name}: refused by {said.rejected_by}, recorded {expected}")
            return
        # What a PreFilter left out, which no plugin is to blame for, is not recorded.
        refused = {node.name: (node.plugin, node.reasons) for node in said.nodes if node.plugin}
        for node, (plugin, reasons) in refused.items():
            recorded = expected["filtered"].get(node) if expected.get("filtered") else None
            if (
                recorded is None
                or recorded["plugin"] != plugin
                or recorded["reason"] not in (*reasons, ", ".join(reasons))
            ):
                self.differences.append(f"{name} on {node}: refused by {plugin} ({reasons}), recorded {recorded}")
        for node, recorded in (expected.get("filtered") or {}).items():
            if recorded["plugin"] in self.compared and node not in refused:
                self.differences.append(f"{name} on {node}: feasible, recorded {recorded}")
        for plugin, scores in (expected.get("scores") or {}).items():
            if plugin not in self.compared:
                continue
            ours = {node.name: 0 for node in said.nodes if node.feasible}  # of a plugin that skips the pod
            ours |= self.weighted(said, plugin)
            if ours != {node: score for node, score in scores.items() if score is not None}:
                self.differences.append(f"{name}: {plugin} scores {ours}, recorded {scores}")

    @staticmethod
    def weighted(said, plugin):
        """{node: weighted score} of a plugin."""
        return {node.name: node.scores[plugin].weighted for node in said.nodes if plugin in node.scores}

    def compare_nominations(self, names, otherwise=()):
        """The nodes to which these pods are nominated in the end, but those that are `otherwise`: which are to none."""
        for name in sorted(names):
            pod = self.embedded.get("Pod", name)
            nominated = pod and pod.get("status", {}).get("nominatedNodeName")
            recorded = self.record["expected"][f"default/{name}"].get("nominatedNode")
            if nominated != (None if name in otherwise else recorded) or (name in otherwise and not recorded):
                self.differences.append(f"{name}: nominated to {nominated}, recorded {recorded}")

    @property
    def victims(self):
        """Names of the pods that are evicted in the record."""
        return self.record["expected"].get("victims") or []

    def compare_evicted(self):
        """The recorded victims are gone, and of the pods that were there before no others."""
        deleted = {key.partition("/")[2] for key in deleted_pods(self.record)}
        for thing in created_pods(self.record).values():
            name = thing["metadata"]["name"]
            if name not in deleted and (self.embedded.get("Pod", name) is None) != (name in self.victims):
                self.differences.append(f"{name} is {'not ' if name in self.victims else ''}gone")

    def compare_events(self, names):
        """The Events of these pods are as recorded, if there are any in the record.

        Those of pods whose message is said to be another one in each run are left out.
        """
        if "events" not in self.record["expected"]:
            return
        names = names - set(_UNSTABLE_MESSAGE.findall(" ".join(self.record["notes"])))
        events = {
            (event["regarding"]["name"], event["reason"], event["note"])
            for event in self.embedded.events()
            if event["regarding"]["kind"] == "Pod"
        }
        recorded = {
            (event["regarding"].removeprefix("Pod/"), event["reason"], event["note"])
            for event in self.record["expected"].get("events", ())
        }
        for event in sorted(events ^ recorded):
            if event[0] in names:
                self.differences.append(f"event {event} {'is missing' if event in recorded else 'is not recorded'}")

    def compare_condition(self, key, pod, expected):
        """The condition's reason and message."""
        actual, recorded = condition_of(pod), expected["condition"]
        if actual != (recorded["reason"], recorded["message"]):
            self.differences.append(f"{key}: {actual}, recorded {recorded}")

    def page(self, declaration):
        """What the plugin's page of one thing, at upstream's path, answers: a function of the thing's name."""
        pages = [page for page in declaration.pages if page.path.startswith("/apis/") and "{" in page.path]
        assert len(pages) == 1, f"{declaration.name} has not one page of one thing, but {declaration.pages}"
        plugin = declaration.plugin_in(self.scheduler.profiles)
        (parameter,) = re.findall(r"\{(\w+)\}", pages[0].path)
        return lambda name: pages[0].answer(plugin, {parameter: name})


class PlacingPlay(KoordPlay):
    """A pod is placed by our scheduler where the plugins that we have decide its winner.

    `placed`: how many were. `otherwise`: plugins that kube-scheduler 1.36 scores in another way than 1.35, which the
    recorded one is.
    """

    otherwise = ("NodeResourcesBalancedAllocation",)

    def __init__(self, record):
        super().__init__(record)
        self.placed = 0
        self.alone = set()
        """Names of the pods that our scheduler placed or refused itself."""

    @property
    def compared(self):
        present = {name for profile in self.scheduler.profiles.values() for name in profile.plugins}
        return present - set(self.otherwise)

    def decides(self, said, expected):
        """Whether the recorded node wins by the recorded scores of the plugins that we have."""
        totals = dict.fromkeys(expected["feasible"], 0)
        for plugin, scores in (expected["scores"] or {}).items():
            if plugin in self.compared:
                for node in totals:
                    totals[node] += scores[node]
        for plugin in self.otherwise:
            ours = self.weighted(said, plugin)
            for node in totals:
                totals[node] += ours.get(node, 0)
        best = [node for node, total in totals.items() if total == max(totals.values())]
        return best == [expected["bound"]]

    def compare_said(self, name, said, expected):
        """Verdicts and scores, and who would go, of which only the names are recorded.

        Verdicts about a pod for which others go are recorded as they are afterwards.
        """
        evicts = bool(self.victims and expected["bound"] and not any(node.feasible for node in said.nodes))
        ours = [key.rpartition("/")[2] for key in said.victims]
        if ours != (self.victims if evicts else []):
            self.differences.append(f"{name}: victims {ours}, recorded {self.victims}")
        if not evicts:
            self.compare(name, said, expected)

    def given(self, name, what="annotations"):
        """The annotations, or labels, that the pod came with."""
        steps = [thing for step in self.record.get("steps", ()) for thing in several(step.get("create"))]
        things = [thing for thing in [*self.record["objects"], *steps] if thing["kind"] == "Pod"]
        (thing,) = [thing for thing in things if thing["metadata"]["name"] == name]
        return thing["metadata"].get(what, {})

    def answered(self, declaration, node):
        """What the page of one node says, as JSON has it; a refusal as its message."""
        try:
            answer = self.page(declaration)(node)
        except NotFound as error:
            answer = {"message": str(error)}
        return json.loads(json.dumps(answer))


def placed_share(play, records):
    """Which share of the pods that are bound in the records our scheduler placed itself."""
    placed = total = 0
    for name in records:
        record = load(name)

        async def main(record=record):
            played = play(record)
            await played.play()
            return played

        placed += run(main()).placed
        total += sum(bool(expected["bound"]) for key, expected in record["expected"].items() if "/" in key)
    return placed / total


def implemented(config):
    """The configuration without plugins that are not implemented: pods that need one would only wait."""
    profiles = []
    for profile in config["profiles"]:
        plugins = {
            point: {**lists, "enabled": [each for each in lists.get("enabled", ()) if each["name"] in IN_TREE]}
            for point, lists in profile.get("plugins", {}).items()
        }
        profiles.append({**profile, "plugins": plugins})
    return {**config, "profiles": profiles}
