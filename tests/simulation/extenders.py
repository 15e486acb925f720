"""An HTTP extender without HTTP: refuses nodes, scores, binds; slow, failing and gone as the seed decides."""

import asyncio
import json
from contextvars import Context
from random import Random

import aiohttp
from aiohttp.client_reqrep import ConnectionKey

from koordsched.extender.client import Withheld
from koordsched.fakecluster.errors import ApiStatusError
from tests.simulation.apiserver import OUTSIDE

TIMEOUT = 2.0
"""Seconds that the scheduler waits for an answer."""

NOWHERE = ConnectionKey("extender", 80, False, None, None, None, None)


def settings(seed):
    """The extender's entry in the configuration."""
    rng = Random(f"{seed} extender settings")
    return {
        "urlPrefix": "http://extender/scheduling",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 2,
        "httpTimeout": f"{TIMEOUT}s",
        "nodeCacheCapable": rng.random() < 0.5,
        "ignorable": rng.random() < 0.4,
        **({"bindVerb": "bind"} if rng.random() < 0.4 else {}),
        **({"managedResources": [{"name": "ex.com/gpu"}]} if rng.random() < 0.3 else {}),
    }


class Extender:
    """One for all replicas. What it thinks of a node changes with time."""

    def __init__(self, simulation):
        self.server = simulation.server
        self.plan = simulation.plan
        self.trace = simulation.trace
        self.rng = Random(f"{simulation.plan.seed} extender")
        self.refused = set()
        self.kept = {}
        """(replica, uid of a pod) -> names of the nodes that it let pass when it was last asked."""
        self._invariants = simulation.invariants
        self.ill = 0.3 * self.rng.random()
        """How often it fails."""

    def change_its_mind(self):
        """About some nodes."""
        names = [thing["metadata"]["name"] for thing in self.server.objects("Node")]
        self.refused = {name for name in names if self.rng.random() < 0.3}

    def recover(self):
        """From now on it answers, and refuses nothing."""
        self.refused, self.ill = set(), 0.0

    # --- what must hold --------------------------------------------------------------------------------

    def placed(self, uid, decision, assumed):
        """Pods go where it let them, unless its failure may be ignored, or it does not care."""
        kept = self.kept.get((decision.writer, uid))
        if kept is not None and decision.node not in kept and not settings(self.plan.seed)["ignorable"]:
            self._invariants.fail(f"{decision.writer} places {uid} on {decision.node}, which the extender refused")

    def bound(self, pod, decision):
        """Nothing: what it says holds for the moment."""

    # --- answers ---------------------------------------------------------------------------------------

    async def post(self, process, url, arguments, may_send):
        """What a request of a replica comes to: status and body, or an exception as of aiohttp."""
        rng, verb = self.rng, url.rpartition("/")[2]
        name = f"{process.name} asks extender to {verb}"
        if rng.random() < self.ill:
            fate = rng.choice(["refused", "lost before", "lost after", 500, "garbage", "late"])
            self.trace(f"{name}: {fate}")
        else:
            fate = "fine"
        if fate == "refused":
            raise aiohttp.ClientConnectorError(NOWHERE, OSError("connection refused"))
        # Until there is a connection.
        await asyncio.sleep(rng.uniform(0.0005, 0.01))
        if not may_send():
            raise Withheld
        if fate == "lost before":
            raise aiohttp.ServerDisconnectedError
        # It works on its own, whatever becomes of who asked.
        delay = rng.uniform(0, min(self.plan.latest, TIMEOUT)) if fate == "late" else 0.0005
        work = asyncio.get_running_loop().create_task(
            self._answer(process.name, verb, json.loads(arguments), delay), context=Context()
        )
        answer = await asyncio.shield(work)
        if fate == "late":
            await asyncio.sleep(TIMEOUT - delay)
            raise TimeoutError
        if fate == "lost after":
            raise aiohttp.ServerDisconnectedError
        if fate == 500:
            return 500, b""
        return 200, b"{]" if fate == "garbage" else json.dumps(answer).encode()

    async def _answer(self, name, verb, body, delay):
        await asyncio.sleep(delay)
        if verb == "bind":
            return self._bind(name, body)
        return self._filter(name, body) if verb == "filter" else self._prioritize(body)

    def _filter(self, replica, body):
        names = _names(body)
        kept = [name for name in names if name not in self.refused]
        self.kept[replica, body["Pod"]["metadata"]["uid"]] = kept
        answer = {"FailedNodes": {name: "the extender does not like it" for name in names if name not in kept}}
        if body["NodeNames"] is not None:
            return {**answer, "NodeNames": kept}
        return {**answer, "Nodes": {"items": [n for n in body["Nodes"]["items"] if n["metadata"]["name"] in kept]}}

    def _prioritize(self, body):
        return [{"Host": name, "Score": self.rng.randint(0, 10)} for name in _names(body)]

    def _bind(self, name, body):
        """Binds on behalf of the replica, which answers for it."""
        self.server.writer = name
        try:
            self.server.registry.bind(body["PodNamespace"], body["PodName"], body["PodUID"], body["Node"])
        except ApiStatusError as error:
            return {"Error": str(error)}
        finally:
            self.server.writer = OUTSIDE
        return {}


def _names(body):
    if body["NodeNames"] is not None:
        return body["NodeNames"]
    return [node["metadata"]["name"] for node in body["Nodes"]["items"]]
