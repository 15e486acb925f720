"""The API server of a simulation, and the record of who wrote what."""

import asyncio
from contextvars import Context

from koordsched.client.inmemory import InMemoryTransport
from koordsched.fakecluster.messages import Request, Response
from tests.embedded import Embedded

OUTSIDE = ""
"""Writer of what users, kubelets and controllers do."""


class Server(Embedded):
    """An embedded API server that knows which replica each write comes from."""

    def __init__(self, seed, trace):
        super().__init__(seed, call_later)
        self.trace = trace
        self.writer = OUTSIDE
        self.request = None
        """(method, path) of the request of a replica that is being served."""
        self.rights = set()
        """(group, resource, verb) of everything that replicas asked for, as a role would have to grant it."""

    def door(self, name, fault):
        """A replica's transport."""

        async def handler(method, path, query, headers, body):
            self.writer, self.request = name, (method, path)
            if path.startswith("/api"):  # what else a replica asks for, every account may
                self.rights.add(right_needed(method, path, query))
            try:
                started = self.server.start(Request(method, path, query, headers, body))
            finally:
                self.writer, self.request = OUTSIDE, None
            # Only what is read is answered later.
            response = started if isinstance(started, Response) else await started
            return response.status, response.headers, response.body

        return InMemoryTransport(handler, fault=fault)

    def find(self, api_version, kind):
        """The resource, None while the server does not know the kind."""
        found = [one for one in self.registry.resources() if (one.api_version, one.kind) == (api_version, kind)]
        return found[0] if found else None

    def state_at(self, path, oldest, rng):
        """A version between `oldest` and now at which a list can still be had; None if there is none."""
        resource = self.registry.find(*_parts(path))
        if resource is None:
            return None
        newest = self.registry.store.rv
        oldest = max(oldest, self.registry.collection(resource).compacted)
        return rng.randint(oldest, newest) if oldest <= newest else None

    def records(self, path):
        """Everything in a collection; nothing while the server does not know the kind."""
        resource = self.registry.find(*_parts(path))
        return list(self.registry.scan(resource)) if resource is not None else []

    def resource_of(self, path):
        """The resource of a collection's path."""
        return self.registry.resource(*_parts(path))

    def compact(self, path):
        """Forgets the past of a resource: watches that resume end with 410."""
        self.registry.collection(self.resource_of(path)).compact()

    # --- what users, kubelets and controllers do -------------------------------------------------------

    def objects(self, kind, api_version="v1"):
        """All objects of a kind, shared: read only."""
        return [record.obj() for record in self.registry.scan(self.resource(kind, api_version))]

    def change(self, kind, name, make, namespace="default", api_version="v1"):
        """Replaces an object by `make(copy)`; nothing if it is gone."""
        resource = self.resource(kind, api_version)
        if self.registry.peek(resource, namespace if resource.namespaced else None, name) is None:
            return
        record = self.registry.record(resource, namespace if resource.namespaced else None, name)
        thing = record.fresh()
        make(thing)
        self.registry.replace_record(resource, record, thing)

    def remove(self, kind, name, namespace="default", uid=None, grace=0, api_version="v1"):
        """Deletes an object, if it is there."""
        resource = self.resource(kind, api_version)
        namespace = namespace if resource.namespaced else None
        found = self.registry.peek(resource, namespace, name)
        if found is not None and uid in (None, found["metadata"]["uid"]):
            self.registry.delete(resource, namespace, name, grace_period_seconds=grace)


def call_later(delay, callback, *args):
    """A timer of the server's side: it goes off whatever becomes of the process whose request set it."""
    return asyncio.get_running_loop().call_later(delay, callback, *args, context=Context())


def _parts(path):
    """(group, version, plural) of a collection's path."""
    parts = path.strip("/").split("/")
    return ("", parts[1], parts[-1]) if parts[0] == "api" else (parts[1], parts[2], parts[-1])


def right_needed(method, path, query):
    """(group, resource with its subresource, verb) of a request."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = rest[0] if len(rest) < 3 else f"{rest[0]}/{rest[2]}"
    if method == "GET":
        return group, resource, "get" if len(rest) > 1 else "watch" if query.get("watch") == "1" else "list"
    return group, resource, {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
