"""The recorded decisions of koord-scheduler about loads, replayed over the API: verdicts, scores, and its books.

The records' profiles name plugins that are compared elsewhere, or are not built yet. So every plugin of ours is
compared for itself, and each pod goes where it went in the record.
"""

import asyncio
import json
import re

import pytest

from koordsched.api import core
from koordsched.api.decoding import convert
from koordsched.api.quantity import nano_value
from koordsched.engine.explain import explain
from koordsched.fakecluster.clock import rfc3339
from koordsched.plugins.loadaware import DECLARATION
from tests.embedded import DEFAULT_CONFIG, Embedded, scheduler_on
from tests.parity.koord import condition_of, custom_resources, delete_object, load, names, patch_object, several
from tests.virtualtime import run

COMPARED = ("LoadAwareScheduling", "NodeResourcesFitPlus", "ScarceResourceAvoidance", "NodeResourcesFit")
"""The balance of resources is scored in another way by kube-scheduler 1.36 than by 1.35, which the recorded one is."""
BETWEEN = 0.05
_AGO = re.compile(r"\{\{now(?:([+-]\d+)s)?\}\}")
_UID = re.compile(r"\{\{uid:([^}]*)\}\}")


class Play:
    """A record under way."""

    def __init__(self, record):
        self.record = record
        self.embedded = Embedded()
        self.differences = []
        self.verdicts = {}

    def dated(self, thing):
        """The object with times in place of placeholders."""
        now = self.embedded.clock.wall()
        text = _AGO.sub(lambda found: rfc3339(now + int(found[1] or 0)), json.dumps(thing))
        return json.loads(_UID.sub(lambda found: found[1].replace("/", "-"), text))

    async def play(self):
        """Objects, pending pods one by one, then steps; returns the differences."""
        for thing in custom_resources():
            self.embedded.insert(thing)
        self.embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        async with scheduler_on(self.embedded, {**DEFAULT_CONFIG, **self.record["config"]}) as running:
            self.scheduler = running.scheduler
            for thing in self.record["objects"]:
                if not self.waits(thing):
                    self.embedded.insert(self.dated(thing))
                    await asyncio.sleep(BETWEEN)
            await asyncio.sleep(1)
            for thing in self.record["objects"]:
                if self.waits(thing):
                    await self.decide(self.dated(thing))
            if self.record.get("steps") and not self.refused_at_first:
                self.differences.append("admitted before the steps")
            for step in self.record.get("steps", ()):
                await self.do(step)
            self.compare_debug()
            for key, expected in self.record["expected"].items():
                if "/" in key:
                    self.compare_end(key, expected)
        return self.differences

    @staticmethod
    def waits(thing):
        return thing["kind"] == "Pod" and not thing["spec"].get("nodeName")

    async def decide(self, thing):
        """What is said of the pod, then the pod itself: where it went, or pending."""
        cluster = self.scheduler.cluster
        meta = thing["metadata"]
        expected = self.record["expected"][f"{meta.get('namespace', 'default')}/{meta['name']}"]
        profile = self.scheduler.profiles[thing["spec"].get("schedulerName", "default-scheduler")]
        said = explain(profile, cluster, cluster.pods.build(convert(thing, core.Pod)))
        if self.record.get("steps"):
            self.refused_at_first = not any(node.feasible for node in said.nodes)  # admitted by the steps
        else:
            self.compare(meta["name"], said, expected)
        if expected["bound"] and not self.record.get("steps"):
            thing["spec"]["nodeName"] = expected["bound"]
            placed = {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": rfc3339(self.embedded.clock.wall()),
            }
            thing.setdefault("status", {})["conditions"] = [placed]
        self.embedded.insert(thing)
        await asyncio.sleep(3)

    def compare(self, name, said, expected):
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
            if recorded["plugin"] in COMPARED and node not in refused:
                self.differences.append(f"{name} on {node}: feasible, recorded {recorded}")
        for plugin, scores in (expected.get("scores") or {}).items():
            if plugin not in COMPARED:
                continue
            ours = {node.name: node.scores[plugin].weighted for node in said.nodes if plugin in node.scores}
            if ours != {node: score for node, score in scores.items() if score is not None}:
                self.differences.append(f"{name}: {plugin} scores {ours}, recorded {scores}")
            self.verdicts[plugin] = self.verdicts.get(plugin, 0) + len(scores)

    async def do(self, step):
        for patch in several(step.get("patch")):
            patch_object(self.embedded, self.dated(patch))
        for target in several(step.get("delete")):
            delete_object(self.embedded, target)
        await asyncio.sleep(step.get("wait", 0))

    def compare_end(self, key, expected):
        """Whether the pod ended as recorded, as far as the plugins that are not there leave it open."""
        pod = self.embedded.get("Pod", key.partition("/")[2])
        bound = pod["spec"].get("nodeName")
        if bool(bound) != bool(expected["bound"]):
            self.differences.append(f"{key}: bound to {bound}, recorded {expected['bound']}")
        if expected["condition"] is not None and not expected["bound"]:
            actual = condition_of(pod)
            recorded = expected["condition"]["message"].partition(" preemption: ")[0]
            if actual is None or actual[1].partition(" preemption: ")[0] != recorded:
                self.differences.append(f"{key}: {actual}, recorded {recorded}")

    def compare_debug(self):
        page = next(page for page in DECLARATION.pages if "{name}" in page.path)
        plugin = DECLARATION.plugin_in(self.scheduler.profiles)
        for node, recorded in (self.record["expected"].get("debug") or {}).items():
            if recorded is None:
                continue  # the reference's handler panicked
            ours = page.answer(plugin, {"name": node})
            ours["pods"] = [pod["pod"]["metadata"]["name"] for pod in ours.get("pods", ())]
            if comparable(ours) != comparable(recorded):
                self.differences.append(f"debug of {node}: {comparable(ours)}, recorded {comparable(recorded)}")


def comparable(debug):
    """Pods as a set (times of equal seconds have no order), quantities by value; absent and empty are the same."""
    found = {}
    for key, value in debug.items():
        if isinstance(value, dict):
            value = {name: nano_value(amount) for name, amount in value.items() if nano_value(amount)}
        elif isinstance(value, list):
            value = sorted(value)
        if value:
            found[key] = value
    return found


@pytest.mark.parametrize("name", names("load-"))
def test_decisions_about_loads(name):
    async def main():
        return await Play(load(name)).play()

    differences = run(main())
    assert not differences, "\n".join(differences)
