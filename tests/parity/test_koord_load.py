"""The recorded decisions of koord-scheduler about loads, replayed over the API: verdicts, scores, and its books."""

import pytest

from koordsched.api.quantity import nano_value
from koordsched.plugins.loadaware import DECLARATION
from tests.parity.koord import load, names
from tests.parity.koordplay import KoordPlay
from tests.virtualtime import run


class Play(KoordPlay):
    """A record about loads. Each pod goes where it went in the record."""

    compared = ("LoadAwareScheduling", "NodeResourcesFitPlus", "ScarceResourceAvoidance", "NodeResourcesFit")
    """kube-scheduler 1.36 scores the balance of resources in another way than 1.35, which the recorded one is."""

    async def decide(self, thing):
        expected, said = self.expected(thing), self.said(thing)
        if self.record.get("steps"):
            self.refused_at_first = not any(node.feasible for node in said.nodes)  # admitted by the steps
            await self.put(thing)
        else:
            self.compare(thing["metadata"]["name"], said, expected)
            await self.put(thing, expected["bound"])

    def compare_end(self):
        """Whether pods ended as recorded, as far as the plugins that are not there leave it open; the books."""
        if self.record.get("steps") and not self.refused_at_first:
            self.differences.append("admitted before the steps")
        self.compare_debug()
        self.compare_evicted()
        pods = {key.partition("/")[2]: expected for key, expected in self.record["expected"].items() if "/" in key}
        # Without steps, pods that are bound in the record are put on their nodes.
        self.compare_events({name for name, pod in pods.items() if self.record.get("steps") or not pod["bound"]})
        self.compare_nominations(pods.keys())
        for key, expected in self.record["expected"].items():
            if "/" not in key:
                continue
            pod = self.embedded.get("Pod", key.partition("/")[2])
            bound = pod["spec"].get("nodeName")
            if bool(bound) != bool(expected["bound"]):
                self.differences.append(f"{key}: bound to {bound}, recorded {expected['bound']}")
            if expected["condition"] is not None and not expected["bound"]:
                self.compare_condition(key, pod, expected)

    def compare_debug(self):
        page = self.page(DECLARATION)
        for node, recorded in (self.record["expected"].get("debug") or {}).items():
            if recorded is None:
                continue  # the reference's handler panicked
            ours = page(node)
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
