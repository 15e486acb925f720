"""The endpoints over real sockets: contents, who may see them, TLS."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from cryptography import x509

from koordsched.api import core
from koordsched.cluster.state import ClusterState
from koordsched.observability.access import AccessControl, LookupFailed, PathSet, User, user_of_certificate
from koordsched.observability.endpoint import Endpoint, text_response
from koordsched.observability.health import PING, HealthCheck, HealthEndpoint, HealthResults
from koordsched.observability.metrics import Metrics
from koordsched.observability.pages import configz, debug_pages, flagz, statusz
from koordsched.observability.podresources import PodResources
from koordsched.observability.probes import health_endpoints, metric_endpoints
from koordsched.observability.server import EndpointServer, Listener
from koordsched.observability.servingtls import (
    CertificateFiles,
    ServingError,
    TLSOptions,
    self_signed,
    serving_context,
    trust_clients,
)
from tests.observability.certificates import NOW, Authority


class Scheduler:
    """What the endpoints show."""

    def __init__(self) -> None:
        self.leads = True
        self.failure: str | None = None
        self.verbosity: list[int] = []
        self.metrics = Metrics(process_metrics=False)
        self.cluster = ClusterState()
        results = HealthResults()
        wire = {
            "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }
        pod = self.cluster.pods.build(msgspec.convert(wire, core.Pod))
        self.endpoints: list[Endpoint] = [
            *health_endpoints(HealthEndpoint("healthz", [PING], results)),
            *health_endpoints(HealthEndpoint("livez", [], results)),
            *health_endpoints(
                HealthEndpoint("readyz", [HealthCheck("sched-handler-sync", lambda: self.failure)], results)
            ),
            *metric_endpoints(
                self.metrics,
                results,
                PodResources(lambda: [pod], self.cluster.table.resource_names),
                lambda: self.leads,
                lambda: 0.0,
            ),
            configz(lambda: {"kind": "KubeSchedulerConfiguration", "parallelism": 16}),
            statusz("kube-scheduler", "1.36.0", "1.36", 1893456000.0, lambda: 1893456000.0 + 90061),
            flagz("kube-scheduler", {"v": "2", "config": "/etc/x", "bearer-token": "hush", "secure-port": "0"}),
            *debug_pages(self.verbosity.append),
        ]


def insecure_client() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@asynccontextmanager
async def serving(endpoints: list[Endpoint], listener: Listener) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session and the base address of a running server."""
    server = EndpointServer(endpoints, [listener])
    await server.start()
    (host, port) = server.addresses[0]
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"{'https' if listener.tls else 'http'}://{host}:{port}"
    finally:
        await server.stop()


def open_to_all() -> AccessControl:
    return AccessControl(None, None, allowed_paths=["*"])


async def get(endpoints: list[Endpoint], path: str, method: str = "GET", **request: Any) -> tuple[int, str, Any]:
    tls = serving_context(TLSOptions(), NOW)
    async with (
        serving(endpoints, Listener("127.0.0.1", 0, tls, open_to_all())) as (session, base),
        session.request(method, base + path, ssl=insecure_client(), **request) as response,
    ):
        return response.status, await response.text(), response.headers


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/healthz", 200, "ok"),
        ("/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n"),
        ("/healthz/ping", 200, "ok"),
        ("/healthz/other", 404, "404 page not found\n"),
        ("/livez?verbose=1", 200, "[+]ping ok\nlivez check passed\n"),
        ("/readyz", 500, "[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"),
        ("/readyz?exclude=sched-handler-sync", 200, "ok"),
        ("/readyz/sched-handler-sync", 500, "internal server error: pods missing\n"),
        ("/readyz/ping", 200, "ok"),
        ("/configz", 200, '{"componentconfig":{"kind":"KubeSchedulerConfiguration","parallelism":16}}'),
        (
            "/statusz",
            200,
            "\nkube-scheduler statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting "
            "compatibility guarantees and is for debugging purposes only.\n\n"
            "Started: Tue Jan  1 00:00:00 UTC 2030\nUp: 25 hr 01 min 01 sec\nPython version: *\n"
            "Binary version: 1.36.0\nEmulation version: 1.36\n",
        ),
        (
            "/flagz",
            200,
            "\nkube-scheduler flags\nWarning: This endpoint is not meant to be machine parseable, has no formatting "
            "compatibility guarantees and is for debugging purposes only.\n\n"
            "bearer-token=CLASSIFIED\nconfig=/etc/x\nsecure-port=0\nv=2\n",
        ),
        ("/", 404, "404 page not found\n"),
        ("/debug/pprof/", 404, "404 page not found\n"),
        ("/debug/flags/v", 406, "unsupported http method\n"),
    ],
)
async def test_pages(path: str, status: int, text: str) -> None:
    scheduler = Scheduler()
    scheduler.failure = "pods missing"
    answer, body, headers = await get(scheduler.endpoints, path)
    before, star, after = text.partition("*")
    assert answer == status
    assert body == text if not star else (body.startswith(before) and body.endswith(after))
    assert headers["Cache-Control"] == "no-cache, private"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Server"] == "koordsched"


@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_hangs_up_is_no_error(tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a page that comes piece by piece."""
    caplog.set_level(logging.DEBUG)
    ended = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 100_000)
        finally:
            ended.set()

    context = serving_context(TLSOptions(), NOW) if tls else None
    listener = Listener("127.0.0.1", 0, context, open_to_all())
    async with serving([Endpoint("/endless", endless, plain=True)], listener) as (session, base):
        response = await session.get(f"{base}/endless", ssl=insecure_client())
        await response.content.readexactly(1000)
        response.close()
        await ended.wait()
    said = [record for record in caplog.records if record.name.startswith(("aiohttp", "koordsched"))]
    assert [record.levelname for record in said if record.exc_info] == []
    (line,) = [record for record in said if "hung up" in record.getMessage()]
    assert line.levelno == logging.DEBUG
    assert line.getMessage().startswith("127.0.0.1 hung up before the end of /endless: ")


async def test_a_lost_connection_to_another_server_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(request: web.Request) -> web.StreamResponse:
        raise ConnectionResetError("by the API server")

    status, _, _ = await get([Endpoint("/failing", failing)], "/failing")
    assert status == 500
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["by the API server"]


async def test_metrics() -> None:
    scheduler = Scheduler()
    scheduler.metrics.attempt("scheduled", "default-scheduler", 0.01)
    status, body, headers = await get(scheduler.endpoints, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0\n' in body


async def test_slis() -> None:
    endpoints = Scheduler().endpoints
    tls = serving_context(TLSOptions(), NOW)
    async with serving(endpoints, Listener("127.0.0.1", 0, tls, open_to_all())) as (session, base):
        await (await session.get(f"{base}/livez", ssl=insecure_client())).read()
        async with session.get(f"{base}/metrics/slis", ssl=insecure_client()) as response:
            assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0\n' in await response.text()


@pytest.mark.parametrize(("leads", "series"), [(True, 1), (False, 0)])
async def test_pod_resources_are_the_leaders(leads: bool, series: int) -> None:
    scheduler = Scheduler()
    scheduler.leads = leads
    status, body, _ = await get(scheduler.endpoints, "/metrics/resources")
    assert (status, body.count('pod="web"'), body == "") == (200, series, not leads)


@pytest.mark.parametrize(
    ("body", "status", "text", "set_to"),
    [
        ("4", 200, "successfully set klog.logging.verbosity to 4\n", [4]),
        ("x", 400, "failed set klog.logging.verbosity: verbosity must be a number, not 'x'\n", []),
        ("-1", 400, "failed set klog.logging.verbosity: verbosity must not be negative: -1\n", []),
        ("9" * 10_000, 400, None, []),
    ],
)
async def test_verbosity(body: str, status: int, text: str | None, set_to: list[int]) -> None:
    scheduler = Scheduler()
    answer, answered, _ = await get(scheduler.endpoints, "/debug/flags/v", "PUT", data=body)
    assert (answer, scheduler.verbosity) == (status, set_to)
    assert text is None or answered == text


async def test_stacks() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(waits_for_ever()) for _ in range(3)]
    status, body, _ = await get(Scheduler().endpoints, "/debug/stacks")
    for task in tasks:
        task.cancel()
    assert status == 200
    assert "3 x test_stacks.<locals>.waits_for_ever\n" in body
    assert "thread MainThread" in body


async def test_more_can_be_mounted() -> None:
    async def explain(request: web.Request) -> web.Response:
        return text_response(request.match_info["pod"])

    endpoints = [*Scheduler().endpoints, Endpoint("/explain/{namespace}/{pod}", explain)]
    assert (await get(endpoints, "/explain/shop/web"))[:2] == (200, "web")
    assert (await get(endpoints, "/explain/shop/web", "HEAD"))[:2] == (200, "")
    assert (await get(endpoints, "/explain/shop/web", "POST"))[0] == 405


async def authenticate(token: str) -> User | None:
    if token == "down":
        raise LookupFailed("connection refused")
    names = {"good": User("jane", groups=("devs",)), "root": User("root", groups=("system:masters",))}
    return names.get(token)


async def authorize(user: User, verb: str, path: str) -> bool:
    if path == "/flagz":
        raise LookupFailed("the API server answered 500")
    return (user.name, verb, path) == ("jane", "get", "/metrics")


FORBIDDEN = (
    '{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{}",'
    '"reason":"Forbidden","code":403}}\n'
)
UNAUTHORIZED = (
    '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized",'
    '"reason":"Unauthorized","code":401}\n'
)


@pytest.mark.parametrize(
    ("path", "authorization", "status", "text"),
    [
        ("/healthz", None, 200, "ok"),
        ("/readyz", None, 200, "ok"),
        ("/livez", None, 200, "ok"),
        ("/healthz", "Bearer good", 200, "ok"),
        ("/healthz", "Bearer bad", 401, UNAUTHORIZED),
        ("/healthz", "Bearer down", 401, UNAUTHORIZED),
        ("/metrics", "Bearer good", 200, None),
        ("/metrics", "bearer  good ", 200, None),
        ("/metrics", "Bearer root", 200, None),
        (
            "/metrics",
            None,
            403,
            FORBIDDEN.format('forbidden: User \\"system:anonymous\\" cannot get path \\"/metrics\\"'),
        ),
        ("/metrics", "Basic Zm9v", 403, None),
        ("/configz", "Bearer good", 403, FORBIDDEN.format('forbidden: User \\"jane\\" cannot get path \\"/configz\\"')),
        ("/healthz/ping", None, 403, None),
        ("/nothing", None, 403, None),
        ("/nothing", "Bearer root", 404, "404 page not found\n"),
        (
            "/flagz",
            "Bearer good",
            500,
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal Server Error: '
            '\\"/flagz\\": the API server answered 500","reason":"InternalError","code":500}\n',
        ),
    ],
)
async def test_access(path: str, authorization: str | None, status: int, text: str | None) -> None:
    tls = serving_context(TLSOptions(), NOW)
    headers = {"Authorization": authorization} if authorization else {}
    listener = Listener("127.0.0.1", 0, tls, AccessControl(authenticate, authorize))
    async with (
        serving(Scheduler().endpoints, listener) as (session, base),
        session.get(base + path, headers=headers, ssl=insecure_client()) as response,
    ):
        body = await response.text()
    assert response.status == status
    assert text is None or body == text
    assert response.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/metrics", 403)])
async def test_without_access_control_only_health_is_open(path: str, status: int) -> None:
    tls = serving_context(TLSOptions(), NOW)
    async with (
        serving(Scheduler().endpoints, Listener("127.0.0.1", 0, tls)) as (session, base),
        session.get(base + path, ssl=insecure_client()) as response,
    ):
        assert response.status == status


@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz", 200), ("/metrics", 200), ("/metrics/resources", 404), ("/configz", 404), ("/debug/stacks", 404)],
)
async def test_the_plain_listener_shows_little(path: str, status: int) -> None:
    async with (
        serving(Scheduler().endpoints, Listener("127.0.0.1", 0)) as (session, base),
        session.get(base + path) as response,
    ):
        assert response.status == status


async def test_client_certificates(tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority()
    seen: list[User] = []

    async def note(user: User, verb: str, path: str) -> bool:
        seen.append(user)
        return True

    tls = serving_context(TLSOptions(), NOW, client_ca=authority.pem)
    async with serving(Scheduler().endpoints, Listener("127.0.0.1", 0, tls, AccessControl(None, note))) as (
        session,
        base,
    ):
        context = insecure_client()
        context.load_cert_chain(*authority.client(tmp_path, "admin", "ops", "devs"))
        async with session.get(f"{base}/configz", ssl=context) as response:
            assert response.status == 200
        context = insecure_client()
        context.load_cert_chain(*stranger.client(tmp_path, "mallory"))
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{base}/configz", ssl=context)
        async with session.get(f"{base}/configz", ssl=insecure_client()) as response:
            assert response.status == 200
    assert seen[0] == User("admin", groups=("ops", "devs", "system:authenticated"))
    assert [user.name for user in seen] == ["admin", "system:anonymous"]


@pytest.mark.parametrize(
    ("certificate", "user"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "ops"),),)}, None),
        ({"subject": ((("commonName", "x"),),)}, User("x", groups=("system:authenticated",))),
    ],
)
def test_user_of_certificate(certificate: Any, user: User | None) -> None:
    assert user_of_certificate(certificate) == user


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", True),
        ("/healthz/", True),
        ("/healthz/ping", False),
        ("/debug/x", True),
        ("/debu", False),
        ("/", False),
    ],
)
def test_path_sets(path: str, allowed: bool) -> None:
    assert (path in PathSet(["/healthz", "/debug/*"])) is allowed


def test_the_certificate_of_our_own_is_for_localhost(tmp_path: Path) -> None:
    async def main() -> None:
        options = TLSOptions(cert_dir=str(tmp_path / "certs"))
        tls = serving_context(options, NOW, ["scheduler.example.com"])
        trusting = ssl.create_default_context(cafile=str(tmp_path / "certs" / "kube-scheduler.crt"))
        async with (
            serving(Scheduler().endpoints, Listener("127.0.0.1", 0, tls)) as (session, base),
            session.get(f"{base}/healthz", ssl=trusting) as response,
        ):
            assert response.status == 200
        # The next start uses the same files.
        before = (tmp_path / "certs" / "kube-scheduler.crt").read_bytes()
        serving_context(options, NOW)
        assert (tmp_path / "certs" / "kube-scheduler.crt").read_bytes() == before
        assert (tmp_path / "certs" / "kube-scheduler.key").stat().st_mode & 0o777 == 0o600

    asyncio.run(main())


async def test_replaced_certificate_files_are_used(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def replace() -> None:
        pair = self_signed([], NOW)
        certificate.write_bytes(pair[0])
        key.write_bytes(pair[1])

    replace()
    options = TLSOptions(cert_file=str(certificate), key_file=str(key))
    tls = serving_context(options, NOW)
    files = CertificateFiles(tls, options)
    async with serving(Scheduler().endpoints, Listener("127.0.0.1", 0, tls)) as (_, base):
        assert files.reload_if_changed() is False
        certificate.unlink()
        assert files.reload_if_changed() is False
        replace()
        assert files.reload_if_changed() is True
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with aiohttp.ClientSession() as session, session.get(f"{base}/healthz", ssl=trusting) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TLSOptions(cert_file="a"), "must be given together"),
        (TLSOptions(cert_file="/nonexistent/a", key_file="/nonexistent/b"), "cannot serve with /nonexistent/a"),
        (TLSOptions(min_version="TLS12"), "unknown version 'TLS12', use one of VersionTLS10"),
        (TLSOptions(cipher_suites=["NULL"]), "unknown or unsupported cipher suite 'NULL'"),
        (TLSOptions(cert_dir="/proc/nothing"), "cannot write a certificate to /proc/nothing"),
    ],
)
def test_bad_tls_options(options: TLSOptions, message: str) -> None:
    with pytest.raises(ServingError, match=message):
        serving_context(options, NOW)


def test_bad_client_ca() -> None:
    with pytest.raises(ServingError, match="client CA bundle cannot be read"):
        serving_context(TLSOptions(), NOW, client_ca=b"garbage")


@pytest.mark.parametrize("bundle", [b"", b"\n", b"\xff"])
def test_empty_client_ca(bundle: bytes) -> None:
    with pytest.raises(ServingError, match="client CA bundle cannot be read"):
        trust_clients(serving_context(TLSOptions(), NOW), bundle)


@pytest.mark.parametrize(
    ("options", "limit", "accepted"),
    [
        (TLSOptions(), lambda c: setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2), True),
        (
            TLSOptions(min_version="VersionTLS13"),
            lambda c: setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2),
            False,
        ),
        (
            TLSOptions(cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]),
            lambda c: (
                setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2),
                c.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256"),
            ),
            False,
        ),
    ],
)
async def test_versions_and_ciphers(
    options: TLSOptions, limit: Callable[[ssl.SSLContext], Any], accepted: bool
) -> None:
    client = insecure_client()
    limit(client)
    listener = Listener("127.0.0.1", 0, serving_context(options, NOW))
    async with serving(Scheduler().endpoints, listener) as (session, base):
        if accepted:
            async with session.get(f"{base}/healthz", ssl=client) as response:
                assert response.status == 200
        else:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(f"{base}/healthz", ssl=client)


async def test_a_port_in_use_is_told() -> None:
    async with serving([], Listener("127.0.0.1", 0)) as (_, base):
        port = int(base.rsplit(":", 1)[1])
        server = EndpointServer([], [Listener("127.0.0.1", 0), Listener("127.0.0.1", port)])
        with pytest.raises(ServingError, match=f"cannot listen on 127.0.0.1:{port}"):
            await server.start()
        assert server.addresses == []


def test_our_certificate_lasts_a_year() -> None:
    certificate = x509.load_pem_x509_certificate(self_signed(["10.0.0.1", "a.example"], NOW)[0])
    assert certificate.not_valid_after_utc - NOW.replace(microsecond=0) == datetime.timedelta(days=365)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "a.example"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "10.0.0.1"]
