"""The network transport end to end: every way to authenticate, over plain and TLS sockets, reads and writes alike."""

import asyncio
import base64
import json
import os
import shutil
import socket
import sys
from asyncio.trsock import TransportSocket
from pathlib import Path

import pytest
import uvloop
import yaml

from koordsched.client import execplugin
from koordsched.client import settings as settings_module
from koordsched.client.clock import SystemClock
from koordsched.client.connection import Connection
from koordsched.client.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    ConnectionConfigError,
    Gone,
    NotSent,
    raise_for_status,
)
from koordsched.client.network import KEEPALIVE, NetworkTransport
from koordsched.client.settings import source_of
from koordsched.client.transport import Request
from tests.client.httpserver import Authority, HttpServer, response


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def kubeconfig(tmp_path, server, user, cluster=None, **extra):
    """Writes a kubeconfig file; returns its name."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
        **extra,
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def text(name):
    return Path(name).read_text()


def b64(name):
    return base64.b64encode(Path(name).read_bytes()).decode()


async def exercise(transport, server):
    """A read, a write and a watch; returns what the server saw of each."""
    start = len(server.exchanges)
    async with asyncio.timeout(10):
        assert (await transport.request("GET", "/r", query={"limit": "5"})).status == 200
        assert (await transport.request("POST", "/w", body=b"{}")).status == 200
        async with transport.stream("/s", timeout=5) as stream:
            assert (stream.status, b"".join([c async for c in stream.chunks()])) == (200, b"{}")
    seen = server.exchanges[start:]
    assert [e.target for e in seen] == ["/r?limit=5", "/w", "/s"]
    return seen


@pytest.mark.parametrize("users", [[], [{"name": "other", "user": {"token": "secret"}}], [{"name": "u"}]])
async def test_a_user_that_is_not_there_is_anonymous(tmp_path, authority, users):
    async with HttpServer(authority.server_context()) as server:
        path = kubeconfig(tmp_path, server.url, {}, {"certificate-authority": "ca.crt"}, users=users)
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        for exchange in await exercise(transport, server):
            assert "authorization" not in exchange.headers
        await transport.close()


async def test_a_peer_that_vanishes_under_a_watch_is_noticed(monkeypatch):
    """Not when its time is over, but as soon as it does not answer the kernel any more."""
    options = {}
    original = TransportSocket.setsockopt

    def setsockopt(self, level, option, value):
        original(self, level, option, value)
        options[level, option] = self.getsockopt(level, option)

    monkeypatch.setattr(TransportSocket, "setsockopt", setsockopt)
    async with HttpServer() as server:
        server.answer = lambda exchange: exchange.reply(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}")
        transport = await NetworkTransport.open(SystemClock(), master=f"127.0.0.1:{server.port}")
        async with transport.stream("/s", timeout=5):
            assert options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
            assert [options[socket.IPPROTO_TCP, option] for option, _ in KEEPALIVE] == [15, 5, 3]
        await transport.close()


def exec_user(tmp_path, status):
    """A credential plugin that prints `status` and notes each of its runs in a file."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    script = tmp_path / "plugin.py"
    runs = str(tmp_path / "runs")
    script.write_text(f"open({runs!r}, 'a').write('x')\nprint({json.dumps(credential)!r})\n")
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script)],
            "interactiveMode": "Never",
        }
    }


USERS = {
    "anonymous": lambda a, p: {},
    "token": lambda a, p: {"token": "secret"},
    "token file": lambda a, p: {"tokenFile": (p / "t").write_text("secret\n") and "t"},
    "exec token": lambda a, p: exec_user(p, {"token": "secret"}),
    "basic": lambda a, p: {"username": "me", "password": "pw"},
}
EXPECTED = {"anonymous": None, "basic": "Basic " + base64.b64encode(b"me:pw").decode()}


@pytest.mark.parametrize("kind", USERS)
async def test_credentials_over_tls(tmp_path, authority, kind):
    async with HttpServer(authority.server_context()) as server:
        user = USERS[kind](authority, tmp_path)
        path = kubeconfig(tmp_path, server.url, user, {"certificate-authority": "ca.crt"})
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        for exchange in await exercise(transport, server):
            assert exchange.headers.get("authorization") == EXPECTED.get(kind, "Bearer secret")
        await transport.close()


@pytest.mark.parametrize("form", ["files", "data", "exec"])
async def test_client_certificates(tmp_path, authority, form):
    certificate, key = authority.issue("scheduler")
    user = {
        "files": {"client-certificate": certificate, "client-key": key},
        "data": {"client-certificate-data": b64(certificate), "client-key-data": b64(key)},
        "exec": exec_user(
            tmp_path,
            {"clientCertificateData": text(certificate), "clientKeyData": text(key)},
        ),
    }[form]
    async with HttpServer(authority.server_context(client_certificates=True)) as server:
        cluster = {"certificate-authority-data": b64(authority.ca_file)}
        transport = await NetworkTransport.open(
            SystemClock(), kubeconfig=kubeconfig(tmp_path, server.url, user, cluster)
        )
        for exchange in await exercise(transport, server):
            assert exchange.peer_name() == "scheduler"
        await transport.close()


@pytest.mark.parametrize(
    ("cluster", "dns", "accepted"),
    [
        ({}, (), False),
        ({"insecure-skip-tls-verify": True}, (), True),
        ({"certificate-authority": "ca.crt"}, (), True),
        ({"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"}, ("kubernetes",), True),
        ({"certificate-authority": "ca.crt", "tls-server-name": "other"}, ("kubernetes",), False),
    ],
)
async def test_the_server_is_verified_unless_told_otherwise(tmp_path, authority, cluster, dns, accepted):
    async with HttpServer(authority.server_context(dns=dns)) as server:
        path = kubeconfig(tmp_path, server.url, {"token": "secret"}, cluster)
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        if accepted:
            await exercise(transport, server)
        else:
            for method in ("GET", "POST"):
                with pytest.raises(NotSent, match=r"(?i)certificate"):
                    await transport.request(method, "/x")
            assert server.exchanges == [], "no token for a server that is not who it says"
        await transport.close()


async def test_in_cluster(tmp_path, authority):
    (tmp_path / "token").write_text("from-pod\n")
    async with HttpServer(authority.server_context()) as server:
        source = source_of(
            clock=SystemClock(),
            environ={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)},
            token_file=str(tmp_path / "token"),
            ca_file=authority.ca_file,
        )
        transport = NetworkTransport(await Connection.open(source, SystemClock()), SystemClock())
        for exchange in await exercise(transport, server):
            assert exchange.headers["authorization"] == "Bearer from-pod"
        await transport.close()


async def test_master_alone_and_over_a_kubeconfig(tmp_path):
    async with HttpServer() as server:
        bare = await NetworkTransport.open(SystemClock(), master=f"127.0.0.1:{server.port}")
        await exercise(bare, server)
        await bare.close()
        path = kubeconfig(tmp_path, "http://127.0.0.1:1", {"token": "secret"})
        moved = await NetworkTransport.open(SystemClock(), kubeconfig=path, master=server.url)
        for exchange in await exercise(moved, server):
            assert exchange.headers["authorization"] == "Bearer secret"
        await moved.close()


class SteppedClock(SystemClock):
    offset = 0.0

    def monotonic(self):
        return super().monotonic() + self.offset


async def test_a_token_file_is_read_again(tmp_path):
    token = tmp_path / "t"
    token.write_text("old")
    async with HttpServer() as server:
        clock = SteppedClock()
        path = kubeconfig(tmp_path, server.url, {"tokenFile": str(token)})
        transport = await NetworkTransport.open(clock, kubeconfig=path)
        token.write_text("new")
        assert [e.headers["authorization"] for e in await exercise(transport, server)] == ["Bearer old"] * 3
        clock.offset = settings_module.TOKEN_FILE_RELOAD + 1
        await exercise(transport, server)
        assert [e.headers["authorization"] for e in await exercise(transport, server)] == ["Bearer new"] * 3
        token.unlink()
        clock.offset *= 3
        await exercise(transport, server)
        assert [e.headers["authorization"] for e in await exercise(transport, server)] == ["Bearer new"] * 3
        await transport.close()


@pytest.mark.parametrize("operation", ["request", "write", "stream"])
async def test_refused_credentials_are_renewed_once(tmp_path, operation):
    async with HttpServer() as server:
        path = kubeconfig(tmp_path, server.url, exec_user(tmp_path, {"token": "one"}))
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        exec_user(tmp_path, {"token": "two"})

        def answer(exchange):
            exchange.reply(response(200 if exchange.headers["authorization"] == "Bearer two" else 401))

        server.answer = answer
        if operation == "request":
            status = (await transport.request("GET", "/x")).status
        elif operation == "write":
            status = (await transport.request("PATCH", "/x", body=b"{}")).status
        else:
            async with transport.stream("/x") as stream:
                status = stream.status
        assert status == 200
        assert [e.headers["authorization"] for e in server.exchanges] == ["Bearer one", "Bearer two"]
        assert (tmp_path / "runs").read_text() == "xx"
        await transport.close()


@pytest.mark.parametrize("operation", ["request", "write", "stream"])
async def test_an_identity_provider_that_hangs_up_costs_no_more_than_the_old_credentials(tmp_path, operation):
    """Whoever waits for new credentials gets the server's word on the old ones, and nothing is left waiting."""

    def user(issuer, expiry):
        claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).decode()
        config = {"client-id": "c", "client-secret": "s", "refresh-token": "r", "idp-issuer-url": issuer}
        return {"auth-provider": {"name": "oidc", "config": {**config, "id-token": f"e30=.{claims}.sig"}}}

    async with HttpServer() as server, HttpServer() as provider:
        provider.answer = lambda exchange: exchange.hang_up()
        server.answer = lambda exchange: exchange.reply(response(401))
        path = kubeconfig(tmp_path, server.url, user(provider.url, 4_000_000_000))
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        kubeconfig(tmp_path, server.url, user(provider.url, 1_000_000_000))
        async with asyncio.timeout(5):
            if operation == "request":
                status = (await transport.request("GET", "/x")).status
            elif operation == "write":
                status = (await transport.request("PATCH", "/x", body=b"{}")).status
            else:
                async with transport.stream("/x") as stream:
                    status = stream.status
        assert status == 401
        assert len(provider.exchanges) >= 1
        await transport.close()


async def test_a_replaced_client_certificate_is_used_for_new_connections(tmp_path, authority):
    certificate, key = authority.issue("first")
    async with HttpServer(authority.server_context(client_certificates=True)) as server:
        user = {"client-certificate": str(tmp_path / "c"), "client-key": str(tmp_path / "k")}
        shutil.copy(certificate, tmp_path / "c")
        shutil.copy(key, tmp_path / "k")
        clock = SteppedClock()
        path = kubeconfig(tmp_path, server.url, user, {"certificate-authority": "ca.crt"})
        transport = await NetworkTransport.open(clock, kubeconfig=path)
        assert {e.peer_name() for e in await exercise(transport, server)} == {"first"}
        certificate, key = authority.issue("second")
        shutil.copy(certificate, tmp_path / "c")
        shutil.copy(key, tmp_path / "k")
        clock.offset = settings_module.CERTIFICATE_RELOAD + 1
        await exercise(transport, server)
        assert {e.peer_name() for e in await exercise(transport, server)} == {"second"}
        await transport.close()


async def test_a_server_that_comes_back_with_another_authority_is_trusted_once_the_kubeconfig_says_so(tmp_path):
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
    clock = SteppedClock()
    first = await HttpServer(Authority(tmp_path / "a").server_context()).start()
    cluster = {"certificate-authority-data": b64(tmp_path / "a" / "ca.crt")}
    transport = await NetworkTransport.open(clock, kubeconfig=kubeconfig(tmp_path, first.url, {}, cluster))
    await exercise(transport, first)
    await first.stop()
    second = await HttpServer(Authority(tmp_path / "b").server_context()).start(first.port)
    for method in ("GET", "POST"):
        with pytest.raises(NotSent, match=r"(?i)certificate"):
            await transport.request(method, "/x")
        kubeconfig(tmp_path, second.url, {}, {"certificate-authority-data": b64(tmp_path / "b" / "ca.crt")})
    clock.offset = settings_module.SHORTEST_RENEWAL + 1
    with pytest.raises(NotSent):
        await transport.request("POST", "/x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await exercise(transport, second)
    await transport.close()
    await second.stop()


async def test_failures_of_reads_are_sorted_like_those_of_writes():
    server = await HttpServer().start()
    transport = await NetworkTransport.open(SystemClock(), master=server.url)
    server.answer = lambda exchange: exchange.hang_up()
    with pytest.raises(Ambiguous):
        await transport.request("GET", "/x")
    server.answer = lambda exchange: exchange.reply(response(200, b"x" * 99)[:-50])
    with pytest.raises(Ambiguous, match=r"no answer within 0\.3 s"):
        await transport.request("GET", "/x", timeout=0.3)

    async def read():
        async with transport.stream("/x", timeout=0.3) as stream:
            return [chunk async for chunk in stream.chunks()]

    with pytest.raises(Ambiguous, match=r"no answer within 0\.3 s"):
        await read()
    await server.stop()
    for operation in (lambda: transport.request("GET", "/x"), lambda: transport.request("POST", "/x"), read):
        with pytest.raises(NotSent):
            await operation()
    await transport.close()
    with pytest.raises(NotSent):
        await transport.request("POST", "/x")


async def test_through_a_proxy(tmp_path):
    """Writes go the same way as reads where a proxy is configured."""
    async with HttpServer() as proxy:
        path = kubeconfig(tmp_path, "http://api.invalid:6443", {"token": "secret"}, {"proxy-url": proxy.url})
        transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
        assert (await transport.request("GET", "/x")).status == 200
        assert (await transport.request("POST", "/x", body=b"{}")).status == 200
        sent = asyncio.get_running_loop().create_future()
        transport.send(Request("POST", "/y", b"{}"), sent.set_result)
        assert (await sent).status == 200
        assert [(e.method, e.target) for e in proxy.exchanges] == [
            ("GET", "http://api.invalid:6443/x"),
            ("POST", "http://api.invalid:6443/x"),
            ("POST", "http://api.invalid:6443/y"),
        ]
        await transport.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("{", "is not YAML"),
        ("just text", "not a kubeconfig file"),
        ("{}", "no current-context"),
        ("current-context: a", "contexts"),
        ("{current-context: a, contexts: []}", "Expected object with name a"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: x}}]}", "clusters"),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x}}], clusters: [{name: x, cluster: {}}]}",
            "its cluster is empty",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x}}],"
            " clusters: [{name: x, cluster: {server: 'ftp://h'}}]}",
            "not of the form",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}],"
            " clusters: [{name: x, cluster: {server: 'https://h'}}], users: [{name: u, user: {tokenFile: nope}}]}",
            "nope",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}],"
            " clusters: [{name: x, cluster: {server: 'https://h', certificate-authority-data: '!'}}],"
            " users: [{name: u, user: {token: t}}]}",
            "cannot load the certificates",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}],"
            " clusters: [{name: x, cluster: {server: 'https://h'}}],"
            ' users: [{name: u, user: {token: "a\\r\\nX-Evil: 1"}}]}',
            "not allowed in a header",
        ),
        (
            "{current-context: a, contexts: [{name: a, context: {cluster: x, user: u}}],"
            " clusters: [{name: x, cluster: {server: 'https://h'}}],"
            " users: [{name: u, user: {exec: {apiVersion: v1, command: /does/not/exist}}}]}",
            "/does/not/exist",
        ),
    ],
)
async def test_unusable_settings_say_what_is_wrong_where(tmp_path, text, message):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConnectionConfigError) as caught:
        await NetworkTransport.open(SystemClock(), kubeconfig=str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


HANGS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
CREDENTIAL = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}


def plugin(tmp_path, program):
    """A kubeconfig with a credential plugin that is this program."""
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    return kubeconfig(tmp_path, "http://h", {"exec": {**section, "args": ["-c", program, str(tmp_path / "pid")]}})


async def test_a_credential_plugin_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(execplugin, "TIMEOUT", 2.0)
    with pytest.raises(ConnectionConfigError, match="no credentials within 2 s"):
        await NetworkTransport.open(SystemClock(), kubeconfig=plugin(tmp_path, HANGS))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('log in first')", "exec: process returned 1. log in first"),
        ("print('{')", "exec: its output is not JSON"),
        ("print('[]')", "not an ExecCredential with a status"),
        (f"print({json.dumps(CREDENTIAL | {'apiVersion': 'other/v1'})!r})", "its output is of other/v1"),
        (f"print({json.dumps(CREDENTIAL | {'status': {}})!r})", "neither token nor clientCertificateData"),
        (
            f"print({json.dumps(CREDENTIAL | {'status': {'clientCertificateData': 'c'}})!r})",
            "a certificate without its key",
        ),
        (
            f"print({json.dumps(CREDENTIAL | {'status': {'token': 't', 'expirationTimestamp': 'soon'}})!r})",
            "credential plugin",
        ),
    ],
)
async def test_a_credential_plugin_without_credentials_says_why(tmp_path, program, message):
    with pytest.raises(ConnectionConfigError) as caught:
        await NetworkTransport.open(SystemClock(), kubeconfig=plugin(tmp_path, program))
    assert message in str(caught.value)


async def test_a_credential_plugin_that_complains_at_length_is_heard(tmp_path):
    program = f"import sys; sys.stderr.write('x' * 1000000); print({json.dumps(CREDENTIAL)!r})"
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=plugin(tmp_path, program))
    await transport.close()


async def test_a_relative_credential_plugin_is_beside_the_kubeconfig(tmp_path):
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nprint({json.dumps(CREDENTIAL)!r})\n")
    script.chmod(0o755)
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/plugin"}
    transport = await NetworkTransport.open(
        SystemClock(), kubeconfig=kubeconfig(tmp_path, "http://h", {"exec": section})
    )
    await transport.close()


async def test_outside_a_cluster_the_message_says_what_to_give():
    with pytest.raises(ConnectionConfigError, match="no --kubeconfig and no --master given"):
        await NetworkTransport.open(SystemClock(), environ={})


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "reason", "retry_after"),
    [
        (409, (), b'{"reason":"Conflict","message":"changed"}', Conflict, "Conflict", None),
        (410, (), b'{"reason":"Expired","message":"old"}', Gone, "Expired", None),
        (500, (), b"<html>oops</html>", ApiError, "", None),
        (503, ("Retry-After: 3",), b"", ApiError, "", 3.0),
        (429, (), b'{"reason":"TooManyRequests","details":{"retryAfterSeconds":7}}', ApiError, "TooManyRequests", 7.0),
        (429, ("Retry-After: soon",), b"\xff", ApiError, "", None),
    ],
)
async def test_status_bodies_become_errors(status, headers, body, kind, reason, retry_after):
    async with HttpServer() as server:
        server.answer = lambda exchange: exchange.reply(response(status, body, *headers))
        transport = await NetworkTransport.open(SystemClock(), master=server.url)
        for method in ("GET", "POST"):
            with pytest.raises(kind) as caught:
                raise_for_status(await transport.request(method, "/x"))
            error = caught.value
            assert (error.status, error.reason, error.retry_after) == (status, reason, retry_after)
        await transport.close()


@pytest.mark.parametrize("form", ["files", "exec"])
def test_client_certificates_on_the_loop_of_production(tmp_path, authority, form):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_client_certificates(tmp_path, authority, form))


def test_a_credential_plugin_that_hangs_is_ended_on_the_loop_of_production(tmp_path, monkeypatch):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_credential_plugin_that_hangs_is_ended(tmp_path, monkeypatch))
