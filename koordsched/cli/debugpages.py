"""Pages about decisions: what a pod would get now, what pods got, and the state behind both.

They show the scheduler's own state, so all of them require authorization.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

import msgspec
from aiohttp import web

from koordsched.cli.pluginpages import plugin_endpoints, returned
from koordsched.cluster.kinds import scheduled_object
from koordsched.cluster.pod import Pod
from koordsched.observability.endpoint import Endpoint, text_response
from koordsched.observability.escaping import printable
from koordsched.scheduling.answer import answer_for
from koordsched.scheduling.pendinggroups import pending_groups
from koordsched.scheduling.scheduler import Scheduler
from koordsched.scheduling.snapshot import snapshot

_MOST_DECISIONS = 1000
"""Decisions shown when no pod is named, unless `limit` says otherwise."""

_MOST_EVALUATED = 100
"""Kinds of pending pods that are evaluated per request: each takes milliseconds in which nothing is scheduled."""

_OBJECTS_AT_ONCE = 100
_PODS_AT_ONCE = 20_000

_encode = msgspec.json.Encoder().encode


def debug_endpoints(scheduler: Scheduler) -> list[Endpoint]:
    """/debug/explain, pending, decisions, overcommitment and snapshot; and those of plugins."""
    pages = _Pages(scheduler)
    return [
        Endpoint("/debug/explain", pages.explain),
        Endpoint("/debug/pending", pages.pending),
        Endpoint("/debug/decisions", pages.decisions),
        Endpoint("/debug/overcommitment", pages.overcommitment),
        Endpoint("/debug/snapshot", pages.snapshot),
        *plugin_endpoints(scheduler.profiles, scheduler.plugin_states.read_from_outside),
    ]


class _Pages:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    async def explain(self, request: web.Request) -> web.Response:
        """`?pod=namespace/name` of a pod that waits: every plugin's verdict and score on every node, as JSON.

        Also `?pod=reservation/name`, if there is no such pod, and `?pod=reservations.scheduling.koordinator.sh/name`.
        With `&advice=true` also what would have to change for it to be placed. For a pod that has a node: the decision.
        """
        key, refusal = _pod_key(request)
        if refusal is not None or not key:
            return refusal or text_response("no pod given: use ?pod=namespace/name\n", 400)
        scheduler = self._scheduler
        pod = await self._find(scheduler.pending_pods(), key)
        if pod is None:
            pod = await self._find(list(scheduler.cluster.assigned.values()), key)
        if pod is None:
            names = ", ".join(scheduler.profiles)
            what = f"no pod {printable(key)}" if scheduled_object(key) is None else f"no {printable(key)}"
            return text_response(f"{what} that this scheduler ({names}) has to place\n", 404)
        scheduler.plugin_states.read_from_outside()
        return _json(_encode(answer_for(scheduler, pod, advice=request.query.get("advice") == "true")))

    async def pending(self, request: web.Request) -> web.Response:
        """The pods that wait (`?namespace=N`: of that one), grouped by what they wait for and what would help."""
        scheduler = self._scheduler
        namespace = request.query.get("namespace", "")
        pods = [
            pod
            for pod in scheduler.pending_pods()
            if pod.uid not in scheduler.cluster.assigned
            and (not namespace or (pod.namespace == namespace and not pod.virtual))
        ]
        groups = pending_groups(
            pods,
            scheduler.profiles,
            scheduler.cluster,
            most_evaluated=_MOST_EVALUATED,
            recorded=scheduler.decisions.refusal,
        )
        return _json(_encode(await returned(groups, scheduler.plugin_states.read_from_outside)))

    async def decisions(self, request: web.Request) -> web.Response:
        """The last placements, and of each pod the last refusal, newest first: of one pod (`?pod=namespace/name`) or of
        all (`?limit=N`)."""
        key, refusal = _pod_key(request)
        if refusal is not None:
            return refusal
        limit = request.query.get("limit", str(_MOST_DECISIONS))
        if not limit.isdecimal() or len(limit) > 6:
            return text_response("limit must be a number\n", 400)
        decisions, most = self._scheduler.decisions, int(limit)
        placements, refusals = islice(decisions.of(key), most), islice(decisions.refusals(key), most)
        return _json(_encode({"decisions": list(placements), "refusals": list(refusals)}))

    async def overcommitment(self, request: web.Request) -> web.Response:
        """The nodes whose pods request more than the node has, by resource: milli-CPU, bytes, counts."""
        found = self._scheduler.cluster.overcommitments
        nodes = [
            {"node": name, "exceeded": [excess._asdict() for excess in found.on(name)]}
            for name in sorted(found.nodes())
        ]
        return _json(_encode({"nodes": nodes}))

    async def snapshot(self, request: web.Request) -> web.StreamResponse:
        """The cluster as the scheduler holds it: a List that `simulate` and `explain -f` accept."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"apiVersion":"v1","kind":"List","items":[')
        separator = b""
        objects = snapshot(self._scheduler.cluster, self._scheduler.pending_pods())
        while piece := [_encode(thing) for thing in islice(objects, _OBJECTS_AT_ONCE)]:
            await response.write(separator + b",\n".join(piece))
            separator = b",\n"
            await asyncio.sleep(0)
        await response.write(b"]}\n")
        await response.write_eof()
        return response

    @staticmethod
    async def _find(pods: Sequence[Pod], key: str) -> Pod | None:
        """The pod `namespace/name`, or the one that stands for `kind/name`; a long search yields to other tasks."""
        namespace, _, name = key.partition("/")
        other = scheduled_object(key)
        title = other[0].title(other[1]) if other is not None else ""
        found = None
        for start in range(0, len(pods), _PODS_AT_ONCE):
            for pod in islice(pods, start, start + _PODS_AT_ONCE):
                if pod.name == name and pod.namespace == namespace and not pod.virtual:
                    return pod
                if title and pod.virtual and pod.title == title:
                    found = pod
            await asyncio.sleep(0)
        return found


def _pod_key(request: web.Request) -> tuple[str, web.Response | None]:
    """`namespace/name` from the query, "" if none is given; or the response to one that has another form."""
    key = request.query.get("pod", "")
    if key and key.count("/") != 1:
        return "", text_response("pod must be given as namespace/name\n", 400)
    return key, None


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
