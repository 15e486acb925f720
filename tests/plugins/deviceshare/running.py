"""The real scheduler with DeviceShare over the embedded API server, on virtual time."""

import asyncio
import json
from contextlib import asynccontextmanager

from tests.embedded import scheduler_on
from tests.plugins.deviceshare.world import ALLOCATED, DEVICES, NUMA, PROFILE, configuration, profile
from tests.plugins.loadaware.running import api_server, remove, where
from tests.plugins.nodenumaresource.running import condition_of, replace

__all__ = ["cluster", "complete", "condition_of", "given", "held", "put", "remove", "replace", "where"]


def complete(thing):
    """A pod as the API server has it: with the name of its scheduler and a phase."""
    if thing["kind"] != "Pod":
        return thing
    spec = {"schedulerName": PROFILE, **thing["spec"]}
    status = thing.get("status", {"phase": "Running" if spec.get("nodeName") else "Pending"})
    return {**thing, "spec": spec, "status": status}


@asynccontextmanager
async def cluster(*objects, document=None, plugins=(), fault=None, **options):
    """An API server with these objects, and a scheduler that has seen everything. `options`: of the profile."""
    embedded = api_server(*map(complete, objects))
    if plugins:  # which are enabled at all their points, in place of others that are
        both = {"enabled": [{"name": name} for name in (NUMA, DEVICES)]}
        options |= dict.fromkeys(("preFilter", "filter", "score", "reserve", "preBind"), both)
    document = document or configuration(profile(**options))
    async with scheduler_on(embedded, document, plugins=plugins, fault=fault) as running:
        await asyncio.sleep(1)
        yield embedded, running


def put(embedded, thing):
    """A new object."""
    embedded.insert(complete(thing))


def given(embedded, name):
    """{type: [minors]} by a pod's annotation, None without."""
    text = embedded.get("Pod", name)["metadata"].get("annotations", {}).get(ALLOCATED)
    return None if text is None else {kind: [each["minor"] for each in listed] for kind, listed in by_type(text)}


def by_type(text):
    return json.loads(text).items()


def held(running, name="n"):
    """{(type, minor): amounts in use} by the scheduler's books."""
    scheduler = running.scheduler
    columns = next(
        profile.plugins[DEVICES] for profile in scheduler.profiles.values() if DEVICES in profile.plugins
    ).columns
    row = scheduler.cluster.table.row_of[name]
    return {
        (kind, minor): tuple(amounts)
        for kind, column in columns.used.items()
        for minor, amounts in enumerate(columns.by_minor(column, kind, slice(row, row + 1))[0].tolist())
        if any(amounts)
    }
