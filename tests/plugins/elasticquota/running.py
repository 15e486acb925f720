"""The real scheduler with quotas over the embedded API server, and what happens there."""

import asyncio
from contextlib import asynccontextmanager

from tests.embedded import Embedded, scheduler_on
from tests.parity.koord import custom_resources
from tests.plugins.elasticquota.objects import API_VERSION
from tests.plugins.elasticquota.world import configuration


@asynccontextmanager
async def cluster(*objects, args=None):
    """An API server with these objects, and a scheduler that has seen them."""
    embedded = Embedded()
    for thing in custom_resources():
        embedded.insert(thing)
    for name in ("default", "quotas"):
        embedded.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for thing in objects:
        embedded.insert(thing)
    async with scheduler_on(embedded, configuration(args)) as running:
        await asyncio.sleep(1)
        yield embedded, running


def where(embedded, name):
    """The node of a pod, None while it waits."""
    return embedded.get("Pod", name)["spec"].get("nodeName")


def remove(embedded, thing):
    """Deletes an object at once."""
    resource = embedded.resource(thing["kind"], thing["apiVersion"])
    metadata = thing["metadata"]
    namespace = metadata.get("namespace") if resource.namespaced else None
    embedded.registry.delete(resource, namespace, metadata["name"], grace_period_seconds=0)


def replace(embedded, thing):
    """Writes a quota anew."""
    resource = embedded.resource("ElasticQuota", API_VERSION)
    record = embedded.registry.record(resource, thing["metadata"]["namespace"], thing["metadata"]["name"])
    stored = record.obj()
    embedded.registry.replace_record(resource, record, {**stored, "spec": thing["spec"]})


def relabel(embedded, kind, name, **labels):
    """Changes labels of an object in `default`."""
    resource = embedded.resource(kind, "v1")
    record = embedded.registry.record(resource, "default", name)
    stored = record.obj()
    metadata = {**stored["metadata"], "labels": {**stored["metadata"]["labels"], **labels}}
    embedded.registry.replace_record(resource, record, {**stored, "metadata": metadata})
