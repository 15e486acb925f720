"""The real scheduler with NodeNUMAResource over the embedded API server, on virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager

from tests.embedded import scheduler_on
from tests.plugins.loadaware.running import api_server, remove, where
from tests.plugins.nodenumaresource.world import complete, configuration, cpuset_of

__all__ = ["api_server", "cluster", "condition_of", "cpus_of", "events_about", "put", "remove", "replace", "where"]

STATUS = "scheduling.koordinator.sh/resource-status"


@asynccontextmanager
async def cluster(*objects, args=None, points=None, document=None, **more):
    """An API server with these objects, and a scheduler that has seen everything."""
    embedded = api_server(*map(complete, objects))
    async with scheduler_on(embedded, document or configuration(args, **(points or {})), **more) as running:
        await asyncio.sleep(1)
        yield embedded, running


def put(embedded, thing):
    """A new object."""
    embedded.insert(complete(thing))


def replace(embedded, thing):
    """Writes an object anew; its identity stays."""
    resource = embedded.resource(thing["kind"], thing["apiVersion"])
    namespace = thing["metadata"].get("namespace", "default") if resource.namespaced else None
    record = embedded.registry.record(resource, namespace, thing["metadata"]["name"])
    stored = record.obj()
    metadata = {**stored["metadata"], **{k: thing["metadata"].get(k) or {} for k in ("labels", "annotations")}}
    embedded.registry.replace_record(resource, record, {**stored, **thing, "metadata": metadata})


def cpus_of(embedded, name):
    """The list of CPUs that was written on a pod, None without."""
    return cpuset_of(embedded.get("Pod", name))


def status_of(embedded, name):
    """What was written on a pod."""
    return json.loads(embedded.get("Pod", name)["metadata"].get("annotations", {}).get(STATUS, "null"))


def condition_of(embedded, name):
    """(reason, message) of a pod that waits."""
    (condition,) = [
        each for each in embedded.get("Pod", name)["status"].get("conditions", ()) if each["type"] == "PodScheduled"
    ]
    return condition.get("reason"), condition.get("message")


def events_about(embedded, kind, name, reason=None):
    """Notes of the events about an object, oldest first."""
    return [
        each["note"]
        for each in embedded.events()
        if (each["regarding"]["kind"], each["regarding"]["name"]) == (kind, name) and reason in (None, each["reason"])
    ]
