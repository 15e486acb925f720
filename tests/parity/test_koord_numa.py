"""The recorded decisions of koord-scheduler about CPUs and NUMA nodes, replayed over the API.

Compared are the verdicts and scores of every plugin of ours, what is written to the pods, messages, and the books.
"""

import json

import pytest

from koordsched.plugins import nodenumaresource
from tests.parity.koord import load, names
from tests.parity.koordplay import PlacingPlay, placed_share
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING
from tests.plugins.nodenumaresource.playing import comparable
from tests.virtualtime import run

NAME = "NodeNUMAResource"
WRITTEN = (f"{SCHEDULING}resource-spec", f"{SCHEDULING}resource-status")
UNRECORDED = ("cpuTopology", "numaNodeResources", "allocatedCPUs", "uid")
"""Left out of the recorded debug answers."""


class Play(PlacingPlay):
    """A record about NUMA nodes. A pod is placed by our scheduler where the plugins we have decide its winner."""

    async def decide(self, thing):
        name, expected = thing["metadata"]["name"], self.expected(thing)
        gone = expected.get("deleted")  # by a step: only where it went is not recorded
        said = self.said(thing)
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
        self.compare_annotations(name, pod, expected)

    def compare_annotations(self, name, pod, expected):
        annotations = pod["metadata"].get("annotations", {})
        ours = {key: json.loads(annotations[key]) for key in WRITTEN if key in annotations}
        given = self.given(name)
        recorded = {
            key: json.loads(text) for key, text in {**given, **expected["annotations"]}.items() if key in WRITTEN
        }
        if comparable(ours) != comparable(recorded):
            self.differences.append(f"{name}: {ours} is written, recorded {recorded}")

    def compare_end(self):
        self.compare_evicted()
        self.compare_events(self.alone | set(self.victims))
        self.compare_nominations(self.alone)
        for node, recorded in self.record["expected"]["debug"].items():
            ours = without(self.answered(nodenumaresource.DECLARATION, node))
            if ours != without(recorded):
                self.differences.append(f"debug of {node}: {ours}, recorded {recorded}")


def without(debug):
    """A debug answer without what is not recorded, pods by name, quantities by value."""

    def kept(value):
        if isinstance(value, list):
            return [kept(entry) for entry in value]
        if isinstance(value, dict):
            return {key: kept(entry) for key, entry in value.items() if key not in UNRECORDED}
        return value

    found = comparable(kept(debug))
    found.get("allocatedPods") and found["allocatedPods"].sort(key=lambda pod: pod["name"])
    return found


@pytest.mark.parametrize("name", names("numa-"))
def test_decisions_about_numa_nodes(name):
    async def main():
        play = Play(load(name))
        await play.play()
        return play

    play = run(main())
    assert not play.differences, "\n".join(play.differences)


def test_our_scheduler_places_most_pods_itself():
    """Else the replays would show less than they seem to."""
    assert placed_share(Play, names("numa-9")) > 0.8
