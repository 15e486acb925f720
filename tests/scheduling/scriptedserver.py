"""An API server whose answers are given beforehand."""

import asyncio

import orjson

from koordsched.client.transport import Response


class ScriptedServer:
    """Gives these outcomes to writes, one after the other, and these answers to reads; notes when it was asked."""

    def __init__(self, *outcomes, stored=()):
        self._outcomes, self._stored = list(outcomes), list(stored)
        self.times = []

    async def submit(self, lane, request):
        self.times.append(asyncio.get_running_loop().time())
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return Response(200, {}, orjson.dumps(outcome))

    async def request(self, method, target):
        self.times.append(asyncio.get_running_loop().time())
        stored = self._stored.pop(0)
        if isinstance(stored, Exception):
            raise stored
        return Response(200, {}, orjson.dumps(stored)) if stored is not None else Response(404, {}, b"{}")
