"""The recorded decisions of koord-scheduler about devices, replayed over the API.

Compared are the verdicts and scores of every plugin of ours, what is written to the pods, messages, and the books.
"""

import json
import re

import pytest

from koordsched.api.quantity import value
from koordsched.plugins import deviceshare
from tests.parity.koord import load, names
from tests.parity.koordplay import PlacingPlay, placed_share
from tests.virtualtime import run

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
STAMPS = ("scheduling.koordinator.sh/bind-timestamp", "predicate-time")
"""Times, of which it is compared that they are there."""

NOT_NOMINATED = {"device-65-adapter-metax": ("p1",)}
"""Record -> pods whose PreBind only writes annotations. The reference nominates them first: docs/deviations.md."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Play(PlacingPlay):
    """A record about devices. A pod is placed by our scheduler where the plugins we have decide its winner."""

    def __init__(self, record):
        super().__init__(record)
        self.later = {}

    async def decide(self, thing):
        if thing["kind"] != "Pod" or not self.waits(thing):
            self.embedded.insert(thing)
            return
        name, expected = thing["metadata"]["name"], self.expected(thing)
        gone = expected.get("deleted")  # by a step: only where it went is not recorded
        said = self.said(thing)
        if not gone and expected["bound"] and not self.victims and not any(node.feasible for node in said.nodes):
            # A step makes room for it, and how it was refused before is not recorded.
            self.later[name] = expected
            self.alone.add(name)
            await self.put(thing)
            return
        if not gone:
            self.compare_said(name, said, expected)
        alone = gone or self.victims or expected["bound"] is None or self.decides(said, expected)
        if not alone:
            thing["metadata"].setdefault("annotations", {}).update(expected["annotations"])
        await self.put(thing, None if alone else expected["bound"])
        if not alone or gone:
            return
        self.alone.add(name)
        pod = self.embedded.get("Pod", name)
        bound = pod["spec"].get("nodeName")
        if bound != expected["bound"]:
            self.differences.append(f"{name}: bound to {bound}, recorded {expected['bound']}")
        elif bound:
            self.placed += 1
        if bound is None and expected["condition"]:
            self.compare_condition(name, pod, expected)
        self.compare_written(name, pod, expected)

    def compare_written(self, name, pod, expected):
        """What was written on the pod: annotations and labels that are recorded, and no other allocation."""
        meta = pod["metadata"]
        ours, recorded = meta.get("annotations", {}), expected["annotations"]
        wanted = {*recorded, ALLOCATED} - ({ALLOCATED} if ALLOCATED in self.given(name) else set())
        for key in wanted:
            there = key in ours if key in STAMPS else comparable(ours.get(key))
            expect = key in recorded if key in STAMPS else comparable(recorded.get(key))
            if there != expect:
                self.differences.append(f"{name}: {key} is {there}, recorded {expect}")
        for key, text in expected["labels"].items():
            if meta.get("labels", {}).get(key) != text:
                self.differences.append(f"{name}: label {key} is {meta.get('labels')}, recorded {text}")

    def compare_node(self, recorded):
        """Labels and annotations of a node, times as placeholders."""
        meta = self.embedded.get(recorded["kind"], recorded["name"], None)["metadata"]
        for what in ("annotations", "labels"):
            ours, wanted = (
                {key: _TIME.sub("<time>", text) for key, text in texts.items()}
                for texts in (meta.get(what, {}), recorded[what])
            )
            if ours != wanted:
                self.differences.append(f"{recorded['name']}: {what} {ours}, recorded {wanted}")

    def compare_end(self):
        for name, expected in self.later.items():
            pod = self.embedded.get("Pod", name)
            if pod["spec"].get("nodeName") != expected["bound"]:
                self.differences.append(f"{name}: bound to {pod['spec'].get('nodeName')}, not to {expected['bound']}")
            self.compare_written(name, pod, expected)
        self.compare_evicted()
        self.compare_events(self.alone | set(self.victims))
        self.compare_nominations(self.alone, NOT_NOMINATED.get(self.record["name"], ()))
        for recorded in self.record["expected"].get("objects", ()):
            self.compare_node(recorded)
        for node, recorded in self.record["expected"]["debug"].items():
            ours = by_value(self.answered(deviceshare.DECLARATION, node))
            if ours != by_value(recorded):
                self.differences.append(f"debug of {node}: {ours}, recorded {by_value(recorded)}")


def comparable(text):
    """An annotation parsed, quantities by value; what is no JSON as it is."""
    try:
        return by_value(json.loads(text)) if text is not None else None
    except ValueError:
        return text


def by_value(thing):
    """Quantities of resources as numbers."""
    if isinstance(thing, list):
        return [by_value(entry) for entry in thing]
    if isinstance(thing, dict):
        return {
            key: value(entry) if "/" in key and isinstance(entry, str) else by_value(entry)
            for key, entry in thing.items()
        }
    return thing


@pytest.mark.parametrize("name", names("device-"))
def test_decisions_about_devices(name):
    async def main():
        play = Play(load(name))
        await play.play()
        return play

    play = run(main())
    assert not play.differences, "\n".join(play.differences)


def test_our_scheduler_places_most_pods_itself():
    """Else the replays would show less than they seem to."""
    assert placed_share(Play, names("device-9")) > 0.8
