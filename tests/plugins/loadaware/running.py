"""The real scheduler with LoadAwareScheduling over the embedded API server, on virtual time."""

import asyncio
from contextlib import asynccontextmanager

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.loadaware.objects import API_VERSION
from tests.plugins.loadaware.world import configuration

API_VERSIONS = {"Node": "v1", "Pod": "v1", "NodeMetric": API_VERSION}


def api_server(*objects):
    """An API server with these objects; they may be functions of the time."""
    embedded = Embedded()
    for thing in custom_resources():
        embedded.insert(thing)
    embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    for thing in objects:
        embedded.insert(thing(embedded.clock.wall()) if callable(thing) else thing)
    return embedded


@asynccontextmanager
async def cluster(*objects, args=None, points=None, **more):
    """That server, and a scheduler that has seen everything."""
    embedded = api_server(*objects)
    async with scheduler_on(embedded, configuration(args, **(points or {})), **more) as running:
        await asyncio.sleep(1)
        yield embedded, running


def where(embedded, name):
    """The node of a pod, None while it waits."""
    return embedded.get("Pod", name)["spec"].get("nodeName")


def remove(embedded, thing):
    """Deletes an object at once."""
    resource = embedded.resource(thing["kind"], thing["apiVersion"])
    namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
    embedded.registry.delete(resource, namespace, thing["metadata"]["name"], grace_period_seconds=0)


def replace(embedded, thing):
    """Writes an object anew; its identity stays."""
    resource = embedded.resource(thing["kind"], thing["apiVersion"])
    namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
    record = embedded.registry.record(resource, namespace, thing["metadata"]["name"])
    stored = record.obj()
    metadata = {**stored["metadata"], **{k: thing["metadata"].get(k) or {} for k in ("labels", "annotations")}}
    changed = {key: thing[key] for key in ("spec", "status") if key in thing}
    embedded.registry.replace_record(resource, record, {**stored, **changed, "metadata": metadata})
