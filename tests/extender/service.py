"""A real extender on loopback: answers what a test tells it to, and remembers what it was asked."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager

from aiohttp import web

from tests.embedded import DEFAULT_CONFIG


class Service:
    """`answers`: verb -> JSON, or a function (sync or async) of the request's JSON that returns JSON or a response."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.url = ""

    def requests(self, verb):
        """The bodies of the requests of a verb."""
        return [body for asked, body in self.asked if asked == verb]

    async def handle(self, request):
        verb = request.match_info["verb"]
        body = await request.json()
        self.asked.append((verb, body))
        answer = self.answers[verb]
        if callable(answer):
            answer = answer(body)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


@asynccontextmanager
async def serving(service, tls: ssl.SSLContext | None = None):
    """Runs the service; its `url` has a path of its own."""
    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/ext/{verb}", service.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    service.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}/ext"
    try:
        yield service
    finally:
        await runner.cleanup()


def extended(*extenders, **more):
    """A configuration with these extenders."""
    return {**DEFAULT_CONFIG, "leaderElection": {"leaderElect": False}, "extenders": list(extenders), **more}


def extender(service, *verbs, **settings):
    """The settings of an extender that is asked these verbs."""
    named = {f"{verb}Verb": verb for verb in verbs}
    if "prioritize" in verbs:
        settings.setdefault("weight", 1)
    return {"urlPrefix": service.url, "nodeCacheCapable": True, **named, **settings}


def names_of(body):
    """The nodes of a request, whichever way it names them."""
    if body["NodeNames"] is not None:
        return body["NodeNames"]
    return [node["metadata"]["name"] for node in body["Nodes"]["items"]]


def everything(body):
    """The answer of a filter that refuses nothing."""
    return {"NodeNames": body["NodeNames"], "Nodes": body["Nodes"]}


def node_of(embedded, name):
    """The node of a pod, None while it has none."""
    return embedded.get("Pod", name)["spec"].get("nodeName")


def condition_of(embedded, name):
    """(reason, message) of PodScheduled=False, or None."""
    for condition in embedded.get("Pod", name)["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition["reason"], condition["message"]
    return None


def change(embedded, kind, name, edit):
    """Changes an object in place of its owner, and tells everybody who watches."""
    resource = embedded.resource(kind)
    record = embedded.registry.record(resource, "default" if resource.namespaced else None, name)
    thing = json.loads(json.dumps(record.obj()))  # parts of what is stored are shared
    edit(thing)
    embedded.registry.replace_record(resource, record, thing)
