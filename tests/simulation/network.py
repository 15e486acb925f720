"""What lies between one replica and the API server, and what the seed does to it."""

import asyncio
from random import Random

from koordsched.client.errors import Ambiguous, NotSent

STATUS = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"%s","message":"told to fail"}'
REFUSALS = {409: b"Conflict", 429: b"TooManyRequests", 500: b"InternalError", 503: b"ServiceUnavailable"}
BEHIND = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":504,"reason":"Timeout","message":"Too large '
    b'resource version","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"told to be behind"}]}}'
)
"""The word of a server whose cache has not come as far as another one's, which we read before."""
COMPACTED = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"The provided '
    b'continue parameter is too old"}'
)
"""The rest of a paged list is no longer to be had."""
GIVEN_UP = {502: b"<html>Bad Gateway</html>", 504: STATUS % (504, b"Timeout")}
"""Answers to a write by whoever stopped waiting for it: a proxy, or the server itself."""
BROKEN = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,'
    b'"reason":"InternalError","message":"the watch told to break"}}\n'
)
"""The last word of a watch that its server cannot go on with: the client lists again, and any cache may answer that."""
REMEMBERED = 60
"""Lines of a watch that may be sent once more."""

CALM, FLAKY, REFUSING, SILENT = "calm", "flaky", "refusing", "silent"


class Network:
    """Faults of every request and watch of one replica. `weather` may be changed at any time."""

    def __init__(self, name, plan, trace, state_at, fail):
        self.name = name
        self.plan = plan
        self.trace = trace
        self.rng = Random(f"{plan.seed} network {name}")
        self._servers = Random(f"{plan.seed} servers {name}")
        self.weather = CALM
        self.streams = {}
        self.requests = 0
        self.late_writes = 0
        """Under way right now."""
        self.dead = False
        self.edges = None
        """`LeaseEdges`, None in worlds without."""
        self._state_at = state_at
        self._fail = fail
        self._known = {}
        """Path -> the version that was last watched from."""
        self._blind = {}
        """Path -> until when its watches show nothing."""
        self._healed = asyncio.Event()

    # --- weather -----------------------------------------------------------------------------------

    def set_weather(self, weather):
        """Changes the weather; a cut-off may reset the watches or leave them hanging."""
        self.weather = weather
        if weather == REFUSING or (weather == SILENT and self.rng.random() < 0.3):
            self.cut_streams()
        if weather in (CALM, FLAKY):
            self._healed.set()
            self._healed.clear()

    def blind(self, path, seconds):
        """Watches of a resource show for so long nothing, and everything afterwards."""
        self._blind[path] = asyncio.get_running_loop().time() + seconds

    def heal(self):
        """Good for ever; whatever hung is reset."""
        self._blind.clear()
        self.set_weather(CALM)
        self.cut_streams()

    def cut_streams(self):
        for stream in list(self.streams):
            stream.cut()

    def _check(self, sent):
        if self.dead:
            raise NotSent("the process is dead")
        if self.weather == REFUSING:
            raise (Ambiguous("connection reset") if sent else NotSent("connection refused"))

    async def _silence(self, sent):
        """While nothing gets through. What has not arrived by then never will; an answer may."""
        while self.weather == SILENT:
            await self._healed.wait()
            if not sent or self.rng.random() < 0.7:
                raise Ambiguous("connection reset")
        self._check(sent)

    async def _blindness(self, path):
        left = self._blind.get(path, 0.0) - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)

    # --- requests ----------------------------------------------------------------------------------

    async def __call__(self, call, proceed):
        """The fault of koordsched.client.inmemory.InMemoryTransport."""
        self.requests += 1
        rng, flaky = self.rng, self.weather == FLAKY
        name = f"{self.name} {call.method} {call.path.rpartition('/api')[2]}"
        watch = call.query.get("watch") == "1"
        if watch:
            self._note_progress(call)
        self._check(False)
        fate = self._fate(call, watch) if flaky else "fine"
        if fate != "fine":
            self.trace(f"{name}: {fate}")
        if fate == "not sent" or (self.edges is not None and self.edges.loses(call)):
            raise NotSent("connection refused")
        is_late_write = fate == "late" and call.method != "GET"
        self.late_writes += is_late_write
        delay = rng.uniform(0, self.plan.latest) if fate == "late" else rng.uniform(0.0002, 0.004)
        if self.edges is not None:
            delay = max(delay, self.edges.delay(call))
        try:
            await asyncio.sleep(delay)
        finally:
            self.late_writes -= is_late_write
        await self._silence(False)
        if fate == "lost before":
            raise Ambiguous("connection lost after sending")
        if isinstance(fate, int):
            headers = {"retry-after": "1"} if fate == 429 and rng.random() < 0.5 else {}
            return fate, headers, STATUS % (fate, REFUSALS[fate])
        if call.method == "GET" and call.query.get("resourceVersion") and flaky and self._servers.random() < 0.05:
            self.trace(f"{name}: the server is behind")
            return 504, {"retry-after": "1"}, BEHIND
        if call.query.get("continue") and flaky and self._servers.random() < 0.1:
            self.trace(f"{name}: compacted while paging")
            return 410, {}, COMPACTED
        if call.method == "GET" and not watch and flaky:
            self._make_stale(call)
        given_up = call.method != "GET" and flaky and self._servers.random() < 0.04
        if given_up and self._servers.random() < 0.5:
            return self._give_up(name, "before")
        status, headers, body = await proceed()
        if given_up:
            return self._give_up(name, "after")
        if fate == "lost after":
            raise Ambiguous("connection lost after sending")
        delay = rng.uniform(1, 40) if fate == "slow" else rng.uniform(0.0002, 0.004)
        if self.edges is not None:
            delay = max(delay, self.edges.delay_of_answer(call))
        await asyncio.sleep(delay)
        await self._silence(True)
        if not isinstance(body, bytes):
            body = _Stream(self, body, call.path) if watch else body
        return status, headers, body

    def _give_up(self, name, when):
        self.trace(f"{name}: given up {when}")
        code = self._servers.choice(sorted(GIVEN_UP))
        return code, {}, GIVEN_UP[code]

    def _note_progress(self, call):
        """What a replica knows of a resource never goes back in time."""
        version = int(call.query.get("resourceVersion", "0"))
        what = (call.path, call.query.get("labelSelector"))
        before = self._known.get(what, 0)
        if version < before:
            self._fail(f"{self.name} watches {call.path} from {version} after it was at {before}")
        self._known[what] = version

    def _fate(self, call, watch):
        draw = self.rng.random()
        for share, fate in (
            (0.03, 429), (0.03, 500), (0.03, 503), (0.04, "not sent"), (0.04, "lost before"),
            (0.05, "lost after"), (0.04, "slow"), (0.08, "late"), (0.02, 409),
        ):  # fmt: skip
            draw -= share
            if draw < 0:
                return "fine" if fate == 409 and (call.method == "GET" or watch) else fate
        return "fine"

    def _make_stale(self, call):
        """A cache of the server may answer a list from any state that the client allows. Now and then a server, set
        back to a backup, say, answers from before that.
        """
        oldest = call.query.get("resourceVersion", "")
        if call.query.get("resourceVersionMatch") == "NotOlderThan" and oldest.isdecimal():
            is_past = self._servers.random() < 0.2
            state = self._state_at(call.path, 0 if is_past else int(oldest), self.rng)
            if state is not None:
                kind = "from the past" if state < int(oldest) else "stale"
                self.trace(f"{self.name} GET {call.path}: {kind} at {state}")
                call.query.update(resourceVersion=str(state), resourceVersionMatch="Exact")


class _Stream:
    """A watch on its way to the client: a buffer that the network fills when it likes."""

    def __init__(self, network, body, path):
        self._network = network
        self._path = path
        self._arrived = asyncio.Queue()
        self._pump = asyncio.get_running_loop().create_task(self._run(body))
        network.streams[self] = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        chunk = await self._arrived.get()
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    async def aclose(self):
        self._network.streams.pop(self, None)
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)

    def cut(self):
        """The connection is reset."""
        self._network.streams.pop(self, None)
        self._pump.cancel()
        self._arrived.put_nowait(Ambiguous("connection reset"))

    async def _run(self, body):
        try:
            await self._forward(body)
        except Exception as error:
            self._arrived.put_nowait(error)
        else:
            self._arrived.put_nowait(StopAsyncIteration())
        finally:
            self._network.streams.pop(self, None)
            await body.aclose()

    async def _forward(self, body):
        network, rng, past = self._network, self._network.rng, []
        async for chunk in body:
            await asyncio.sleep(rng.uniform(0.0002, 0.004))
            await network._blindness(self._path)
            await network._silence(True)
            if network.weather != FLAKY:
                self._arrived.put_nowait(chunk)
                past = [*past, chunk][-REMEMBERED:]
                continue
            draw = rng.random()
            if draw < 0.03:
                network.trace(f"{network.name} watch: cut within an event")
                self._arrived.put_nowait(chunk[: rng.randrange(len(chunk))])
                raise Ambiguous("connection reset")
            if draw < 0.05:
                network.trace(f"{network.name} watch: hangs")
                await network._healed.wait()
                raise Ambiguous("connection reset")
            if network._servers.random() < 0.03:
                network.trace(f"{network.name} watch: breaks")
                self._arrived.put_nowait(BROKEN)
                return
            if draw < 0.20:
                delay = rng.choice([0.1, 1, 10]) * rng.random()
                network.trace(f"{network.name} watch: late by {delay:.3f}")
                await asyncio.sleep(delay)
            self._arrived.put_nowait(chunk)
            if draw > 0.85 and past:
                network.trace(f"{network.name} watch: an old event once more")
                self._arrived.put_nowait(rng.choice(past))
            past = [*past, chunk][-REMEMBERED:]
