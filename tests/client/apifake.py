"""A small API server in memory: collections with resource versions, paging, watches, compaction, optimistic locking."""

import asyncio
import json
from collections import defaultdict


def status_body(code, reason, message="", **details):
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    ).encode()


def reply(code, reason, message="", headers=None, **details):
    return code, headers or {}, status_body(code, reason, message, **details)


class FakeApi:
    """Objects by collection path and (namespace, name); `handler` serves them to an InMemoryTransport.

    Every change gets the next resource version and goes into the history that watches read from; `compact` forgets the
    history. `cut` ends all watches at once, as a dropped connection would.
    """

    def __init__(self):
        self.version = 10
        self.compacted = 0
        self.objects = defaultdict(dict)
        self.history = []
        self.changed = asyncio.Condition()
        self.epoch = 0
        self.requests = []
        self.streaming_lists = False
        self.refusals = {}

    # --- what happens on the server ---

    def put(self, collection, obj):
        """Creates or replaces an object; returns it as stored."""
        self.version += 1
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = self.objects[collection].get(key)
        uid = meta.get("uid") or (old["metadata"]["uid"] if old else f"uid-{self.version}")
        stored = {**obj, "metadata": {**meta, "uid": uid, "resourceVersion": str(self.version)}}
        self.objects[collection][key] = stored
        self._record(collection, "MODIFIED" if old else "ADDED", stored)
        return stored

    def remove(self, collection, namespace, name):
        self.version += 1
        old = self.objects[collection].pop((namespace, name))
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._record(collection, "DELETED", gone)

    def compact(self):
        self.compacted = self.version
        self.history.clear()

    def cut(self):
        self.epoch += 1
        self._wake()

    def _record(self, collection, kind, obj):
        self.history.append((self.version, collection, kind, obj))
        self._wake()

    def _wake(self):
        async def notify():
            async with self.changed:
                self.changed.notify_all()

        self._notifying = asyncio.ensure_future(notify())

    # --- HTTP ---

    async def handler(self, method, path, query, headers, body):
        self.requests.append((method, path, dict(query)))
        if path in self.refusals:
            return self.refusals[path]
        if path == "/version":
            return 200, {}, b'{"major":"1","minor":"36","gitVersion":"v1.36.0"}'
        if method == "GET" and query.get("watch") == "1":
            return self._watch(path, query)
        if method == "GET":
            return self._get(path, query)
        if method == "POST":
            return self._create(path, json.loads(body))
        if method == "PUT":
            return self._update(path, json.loads(body))
        return reply(405, "MethodNotAllowed")

    def _get(self, path, query):
        collection, _, name = path.rpartition("/")
        if "limit" not in query:
            for (_, known), obj in self.objects[collection].items():
                if known == name:
                    return 200, {}, json.dumps(obj).encode()
            return reply(404, "NotFound", f"{name} not found")
        wanted = query.get("resourceVersion")
        if wanted and int(wanted) > self.version:
            return reply(504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])
        start, version = 0, self.version
        if "continue" in query:
            start, version = (int(part) for part in query["continue"].split("@"))
            if version < self.compacted:
                return reply(410, "Expired", "The provided continue parameter is too old")
        items = [self._at(path, key, version) for key in sorted(self._keys_at(path, version))]
        end = start + int(query.get("limit", len(items)))
        meta = {"resourceVersion": str(version)}
        if end < len(items):
            meta["continue"] = f"{end}@{version}"
        return 200, {}, json.dumps({"kind": "List", "metadata": meta, "items": items[start:end]}).encode()

    def _keys_at(self, path, version):
        keys = set(self.objects[path])
        for at, collection, kind, obj in reversed(self.history):
            if at > version and collection == path:
                key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                if kind == "ADDED":
                    keys.discard(key)
                elif kind == "DELETED":
                    keys.add(key)
        return keys

    def _at(self, path, key, version):
        """The object as of `version`: lists of several pages are a snapshot."""
        current = self.objects[path].get(key)
        if current is not None and int(current["metadata"]["resourceVersion"]) <= version:
            return current
        for at, collection, _, obj in reversed(self.history):
            if at <= version and collection == path and self._key(obj) == key:
                return obj
        return current or next(obj for at, c, _, obj in self.history if c == path and self._key(obj) == key)

    @staticmethod
    def _key(obj):
        return (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    def _create(self, path, obj):
        if self._key(obj) in self.objects[path]:
            return reply(409, "AlreadyExists")
        return 201, {}, json.dumps(self.put(path, obj)).encode()

    def _update(self, path, obj):
        collection = path.rpartition("/")[0]
        old = self.objects[collection].get(self._key(obj))
        if old is None:
            return reply(404, "NotFound")
        if obj["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            return reply(409, "Conflict", "the object has been modified")
        return 200, {}, json.dumps(self.put(collection, obj)).encode()

    def _watch(self, path, query):
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streaming_lists:
            return reply(422, "Invalid", "sendInitialEvents is forbidden unless the WatchList feature gate is enabled")
        version = int(query.get("resourceVersion") or self.version)
        if version > self.version:
            return reply(504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])
        if not initial and version < self.compacted:
            return 200, {}, self._expired()
        return 200, {}, self._events(path, version, initial)

    async def _expired(self):
        yield self._line("ERROR", json.loads(status_body(410, "Expired", "too old resource version")))

    async def _events(self, path, version, initial):
        epoch = self.epoch
        if initial:
            version = self.version
            for obj in list(self.objects[path].values()):
                yield self._line("ADDED", obj)
            meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
            yield self._line("BOOKMARK", {"metadata": meta})
        while epoch == self.epoch:
            if version < self.compacted:
                async for line in self._expired():
                    yield line
                return
            news = [entry for entry in self.history if entry[0] > version and entry[1] == path]
            for at, _, kind, obj in news:
                yield self._line(kind, obj)
                version = at
            if not news and epoch == self.epoch:
                async with self.changed:
                    await self.changed.wait()

    @staticmethod
    def _line(kind, obj):
        return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"
