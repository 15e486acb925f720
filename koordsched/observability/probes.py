"""The endpoints that machines poll: health and metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from koordsched.observability.endpoint import Endpoint, not_found, text_response
from koordsched.observability.exposition import CONTENT_TYPE, render
from koordsched.observability.health import HealthAnswer, HealthEndpoint, HealthResults
from koordsched.observability.metric_registry import MetricRegistry
from koordsched.observability.podresources import PodResources


def health_endpoints(endpoint: HealthEndpoint) -> list[Endpoint]:
    """`/healthz` and `/healthz/<check>`, or those of livez or readyz; `?verbose` and `?exclude=<check>`."""

    async def whole(request: web.Request) -> web.Response:
        exclude = request.query.getall("exclude", [])
        return _health_response(endpoint.answer(verbose="verbose" in request.query, exclude=exclude))

    async def one(request: web.Request) -> web.Response:
        answer = endpoint.answer_one(request.match_info["check"])
        return _health_response(answer) if answer is not None else not_found()

    return [
        Endpoint(f"/{endpoint.name}", whole, plain=True),
        Endpoint(f"/{endpoint.name}/{{check}}", one, plain=True),
    ]


def metrics_endpoint(metrics: MetricRegistry, monotonic: Callable[[], float]) -> Endpoint:
    """/metrics alone."""

    async def handle(request: web.Request) -> web.Response:
        return _metrics_response(await render(metrics, monotonic))

    return Endpoint("/metrics", handle, plain=True)


def metric_endpoints(
    metrics: MetricRegistry,
    results: HealthResults,
    pods: PodResources,
    leads: Callable[[], bool],
    monotonic: Callable[[], float],
) -> list[Endpoint]:
    """/metrics, /metrics/slis, and /metrics/resources, which only the replica that `leads` fills."""

    async def slis(request: web.Request) -> web.Response:
        return _metrics_response(await render(results.metrics, monotonic))

    async def resources(request: web.Request) -> web.StreamResponse:
        if not leads():
            return web.Response()
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        async for piece in pods.render():
            await response.write(piece)
        await response.write_eof()
        return response

    return [
        metrics_endpoint(metrics, monotonic),
        Endpoint("/metrics/slis", slis, plain=True),
        Endpoint("/metrics/resources", resources),
    ]


def _health_response(answer: HealthAnswer) -> web.Response:
    return text_response(answer.text, 200 if answer.healthy else 500)


def _metrics_response(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
