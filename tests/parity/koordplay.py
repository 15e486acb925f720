"""Plays the records that compare single plugins: every pod is asked about before it goes where it went.

The records' profiles name plugins that are compared elsewhere, or are not built yet. So every plugin of ours is
compared for itself. How a pod gets to its node is up to the subclass.
"""

import asyncio
import json
import re

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.engine.explain import explain
from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins import IN_TREE
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import condition_of, custom_resources, delete_object, patch_object, several

BETWEEN = 0.05
PREEMPTION = " preemption: "
_AGO = re.compile(r"\{\{now(?:([+-]\d+)s)?\}\}")
_UID = re.compile(r"\{\{uid:([^}]*)\}\}")


class KoordPlay:
    """A record under way. `compared`: names of the plugins whose verdicts and scores must be as recorded."""

    compared = ()

    def __init__(self, record):
        self.record = record
        self.embedded = Embedded()
        self.differences = []

    async def play(self):
        """Objects, pending pods one by one, then steps; returns the differences."""
        for thing in custom_resources():
            self.embedded.insert(thing)
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        configuration = {**DEFAULT_CONFIG, **implemented(self.record["config"])}
        async with scheduler_on(self.embedded, configuration, gates=gates_of(self.record)) as running:
            self.scheduler = running.scheduler
            for thing in self.record["objects"]:
                if not self.waits(thing):
                    self.embedded.insert(self.dated(thing))
                    await asyncio.sleep(BETWEEN)
            await asyncio.sleep(1)
            for thing in self.record["objects"]:
                if self.waits(thing):
                    await self.decide(self.dated(thing))
            for step in self.record.get("steps", ()):
                await self.do(step)
            self.compare_end()
        return self.differences

    async def decide(self, thing):
        """What is said of the pod, then the pod itself."""
        raise NotImplementedError

    def compare_end(self):
        """What is to be compared at the end."""
        raise NotImplementedError

    @staticmethod
    def waits(thing):
        return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")

    def dated(self, thing):
        """The object with times in place of placeholders."""
        now = self.embedded.clock.wall()
        text = _AGO.sub(lambda found: rfc3339(now + int(found[1] or 0)), json.dumps(thing))
        return json.loads(_UID.sub(lambda found: found[1].replace("/", "-"), text))

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
        await asyncio.sleep(step.get("wait", 0))

    def compare(self, name, said, expected):
        """Verdicts and scores of every node. Of a pod that is refused before its nodes only a message is recorded."""
        if said.rejected_by:
            if expected["bound"] or expected.get("filtered"):
                self.differences.append(f"{name}: refused by {said.rejected_by}, recorded {expected}")
            return
        refused = {node.name: (node.plugin, node.reasons) for node in said.nodes if not node.feasible}
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

    def compare_condition(self, key, pod, expected):
        """The condition's message up to what preemption adds."""
        actual = condition_of(pod)
        recorded = expected["condition"]["message"].partition(PREEMPTION)[0]
        if actual is None or actual[1].partition(PREEMPTION)[0] != recorded:
            self.differences.append(f"{key}: {actual}, recorded {recorded}")

    def page(self, declaration):
        """What the plugin's page of one thing, at upstream's path, answers: a function of the thing's name."""
        pages = [page for page in declaration.pages if page.path.startswith("/apis/") and "{" in page.path]
        assert len(pages) == 1, f"{declaration.name} has not one page of one thing, but {declaration.pages}"
        plugin = declaration.plugin_in(self.scheduler.profiles)
        (parameter,) = re.findall(r"\{(\w+)\}", pages[0].path)
        return lambda name: pages[0].answer(plugin, {parameter: name})


def gates_of(record):
    """The feature gates of the recorded command line."""
    flags = [flag.partition("=") for flag in record.get("flags", ())]
    return [gate for name, _, gates in flags if name == "--feature-gates" for gate in gates.split(",")]


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
