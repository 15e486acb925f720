"""The recorded decisions of koord-scheduler about CPUs and NUMA nodes, replayed over the API.

Compared are the verdicts and scores of every plugin of ours, what is written to the pods, messages, and the books.
"""

import json

import pytest

from koordsched.fakecluster.errors import ApiStatusError
from koordsched.framework.declaration import NotFound
from tests.parity.koord import load, names
from tests.parity.koordplay import KoordPlay
from tests.plugins.nodenumaresource.naivemachine import SCHEDULING
from tests.plugins.nodenumaresource.playing import comparable
from tests.virtualtime import run

plugin = pytest.importorskip("koordsched.plugins.nodenumaresource")
if not hasattr(plugin, "DECLARATION"):
    pytest.skip("there is no plugin yet", allow_module_level=True)

NAME = "NodeNUMAResource"
WRITTEN = (f"{SCHEDULING}resource-spec", f"{SCHEDULING}resource-status")
OTHERWISE = ("NodeResourcesBalancedAllocation",)
"""Scored in another way by kube-scheduler 1.36 than by 1.35, which the recorded one is."""
UNRECORDED = ("cpuTopology", "numaNodeResources", "allocatedCPUs", "uid")
"""Left out of the recorded debug answers."""


class Play(KoordPlay):
    """A record about NUMA nodes. A pod is placed by our scheduler where the plugins we have decide its winner."""

    def __init__(self, record):
        super().__init__(record)
        self.placed = 0

    @property
    def compared(self):
        present = {name for profile in self.scheduler.profiles.values() for name in profile.plugins}
        return present - set(OTHERWISE)

    async def decide(self, thing):
        name, expected = thing["metadata"]["name"], self.expected(thing)
        gone = expected.get("deleted")  # by a step: only where it went is not recorded
        said = self.said(thing)
        victims = self.record["expected"].get("victims")
        if victims:
            self.compare_victims(name, said, victims)
        elif not gone:
            self.compare(name, said, expected)
        alone = gone or victims or expected["bound"] is None or self.decides(said, expected)
        if not alone:
            thing["metadata"].setdefault("annotations", {}).update(expected["annotations"])
        await self.put(thing, None if alone else expected["bound"])
        if not alone or gone:
            return
        pod = self.embedded.get("Pod", name)
        bound = pod["spec"].get("nodeName")
        if bound != expected["bound"]:
            self.differences.append(f"{name}: bound to {bound}, recorded {expected['bound']}")
        elif bound:
            self.placed += 1
        if bound is None and expected["condition"]:
            self.compare_condition(name, pod, expected)
        self.compare_annotations(name, pod, expected)

    def decides(self, said, expected):
        """Whether the recorded node wins by the recorded scores of the plugins that we have."""
        totals = dict.fromkeys(expected["feasible"], 0)
        for plugin, scores in (expected["scores"] or {}).items():
            if plugin in self.compared:
                for node in totals:
                    totals[node] += scores[node]
        for plugin in OTHERWISE:
            ours = self.weighted(said, plugin)
            for node in totals:
                totals[node] += ours.get(node, 0)
        best = [node for node, total in totals.items() if total == max(totals.values())]
        return best == [expected["bound"]]

    def compare_victims(self, name, said, victims):
        """Who would go. Only the names are recorded."""
        ours = [key.rpartition("/")[2] for key in said.victims]
        if ours != victims:
            self.differences.append(f"{name}: victims {ours}, recorded {victims}")

    def compare_annotations(self, name, pod, expected):
        annotations = pod["metadata"].get("annotations", {})
        ours = {key: json.loads(annotations[key]) for key in WRITTEN if key in annotations}
        given = self.given(name)
        recorded = {
            key: json.loads(text) for key, text in {**given, **expected["annotations"]}.items() if key in WRITTEN
        }
        if comparable(ours) != comparable(recorded):
            self.differences.append(f"{name}: {ours} is written, recorded {recorded}")

    def given(self, name):
        """The annotations that the pod came with."""
        steps = [step["create"] for step in self.record.get("steps", ()) if "create" in step]
        things = [thing for thing in [*self.record["objects"], *steps] if thing["kind"] == "Pod"]
        (thing,) = [thing for thing in things if thing["metadata"]["name"] == name]
        return thing["metadata"].get("annotations", {})

    def compare_end(self):
        for name in self.record["expected"].get("victims") or ():
            if self.exists(name):
                self.differences.append(f"{name} was not preempted")
        page = self.page(plugin.DECLARATION)
        for node, recorded in self.record["expected"]["debug"].items():
            ours = without(answered(page, node))
            if ours != without(recorded):
                self.differences.append(f"debug of {node}: {ours}, recorded {recorded}")

    def exists(self, name):
        try:
            return self.embedded.get("Pod", name) is not None
        except ApiStatusError:
            return False


def answered(page, node):
    """The answer as JSON has it; a refusal as its message."""
    try:
        answer = page(node)
    except NotFound as error:
        answer = {"message": str(error)}
    return json.loads(json.dumps(answer))


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
    placed = total = 0
    for name in names("numa-9"):
        record = load(name)

        async def main(record=record):
            play = Play(record)
            await play.play()
            return play

        placed += run(main()).placed
        total += sum(bool(expected["bound"]) for key, expected in record["expected"].items() if "/" in key)
    assert placed > total * 0.8
