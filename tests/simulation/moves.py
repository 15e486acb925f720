"""Running pods that are on another node from one version to the next, under the same uid."""

from random import Random

from tests.simulation.invariants import is_gone

ALLOCATIONS = "scheduling.koordinator.sh/"
"""In the names of annotations that say what a pod was given."""


class Moves:
    """No client can do it: a backup of the store that is put back can, or a hand in the store."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} moves")

    def settle_in(self):
        """Nothing: there are no pods yet."""

    def actions(self):
        """(weight, action) of what happens."""
        return [(4, self._move)]

    def tidy_up(self):
        """Nothing: a pod stays where it is."""

    def _move(self):
        pods = [thing for thing in self.server.objects("Pod") if _can_be_moved(thing)]
        nodes = [node["metadata"]["name"] for node in self.server.objects("Node")]
        if not pods or not nodes:
            return
        pod, node = self.rng.choice(pods), self.rng.choice(nodes)
        meta, before = pod["metadata"], pod["spec"]["nodeName"]
        if node == before:
            return
        self.trace(f"pod {meta['name']} is on {node}, no longer on {before}")
        self.server.change("Pod", meta["name"], lambda thing: thing["spec"].update(nodeName=node), meta["namespace"])


def _can_be_moved(thing):
    """Nothing was given to it that only its node has: that would be a fault of its own."""
    annotations = thing["metadata"].get("annotations") or {}
    spec = thing["spec"]
    return (
        spec.get("nodeName")
        and not is_gone(thing)
        and not any(ALLOCATIONS in key for key in annotations)
        and not spec.get("resourceClaims")
        and not spec.get("volumes")
    )
