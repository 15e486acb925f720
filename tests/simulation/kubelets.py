"""Kubelets and the garbage collector of pods."""

import asyncio
from random import Random

from tests.simulation.apiserver import call_later
from tests.simulation.invariants import is_finished


class Kubelets:
    """Starts what was bound, ends what is to be deleted, clears away what has finished or lost its node."""

    def __init__(self, simulation):
        self.server = simulation.server
        self._faults = simulation.faults
        self._reservations = simulation.reservations
        self.rng = Random(f"{simulation.plan.seed} kubelets")
        self._stranded = {}
        self.server.registry.subscribe_changes(self.server.resource("Pod"), self._changed)

    def _changed(self, change):
        new = change.new
        if change.type == "DELETED" or not new["spec"].get("nodeName"):
            return
        old = (change.old or {}).get("metadata", {})
        if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old:
            self._later(self.rng.uniform(0.1, 5), self._end, new)
        elif is_finished(new):
            self._later(self.rng.uniform(1, 20), self._end, new)
        elif change.type == "MODIFIED" and not change.old["spec"].get("nodeName"):
            self._later(self.rng.uniform(0.05, 2), self._start, new)

    def _later(self, delay, action, thing):
        meta = thing["metadata"]
        call_later(delay, action, meta["namespace"], meta["name"], meta["uid"])

    def _end(self, namespace, name, uid):
        self.server.remove("Pod", name, namespace, uid=uid)

    def _start(self, namespace, name, uid):
        def make(thing):
            if thing["metadata"]["uid"] == uid and not is_finished(thing):
                if self._faults is not None:
                    self._faults.start(thing)
                    self._faults.started(thing)
                else:
                    thing["status"] |= {"phase": "Running", "startTime": "2030-01-01T00:00:00Z"}
                if self._reservations is not None:
                    self._reservations.started(thing)

        self.server.change("Pod", name, make, namespace)

    def start_later(self, thing):
        """Tries to start a pod, perhaps once more."""
        self._later(self.rng.uniform(0.05, 2), self._start, thing)

    async def collect_garbage(self):
        """Deletes pods whose node is gone for a while. Until cancelled."""
        while True:
            await asyncio.sleep(5)
            names = {thing["metadata"]["name"] for thing in self.server.objects("Node")}
            stranded = {}
            for thing in self.server.objects("Pod"):
                if thing["spec"].get("nodeName") and thing["spec"]["nodeName"] not in names:
                    meta = thing["metadata"]
                    stranded[meta["uid"]] = self._stranded.get(meta["uid"], 0) + 1
                    if stranded[meta["uid"]] > 2:
                        self.server.remove("Pod", meta["name"], meta["namespace"])
            self._stranded = stranded
