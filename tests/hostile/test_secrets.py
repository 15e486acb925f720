"""Tokens, passwords and keys are in no log, no page, no event and no error."""

import asyncio
import base64
import io
import logging
from pathlib import Path

import pytest
import yaml

from koordsched import config
from koordsched.cli.debugdump import write_dump
from koordsched.cli.endpoint import Endpoint
from koordsched.cli.starting import _write_config
from koordsched.client.clock import SystemClock
from koordsched.client.errors import ClientError
from koordsched.client.network import NetworkTransport
from koordsched.client.settings import read_kubeconfig
from koordsched.config.secrets import CLASSIFIED, without_secrets
from koordsched.observability.logging import LogOptions, set_up_logging
from tests.embedded import DEFAULT_CONFIG
from tests.observability.certificates import Authority
from tests.plugins.objects import container, node, pod
from tests.scheduling.serving import embedded_with_users, free_port, serving
from tests.waiting import until

TOKEN, PASSWORD = "t0ken-of-nobody-else", "pa55word-of-nobody-else"
PAGES = """/healthz /livez /readyz /readyz?verbose /metrics /metrics/slis /metrics/resources /configz /statusz /flagz /
    /debug/explain?pod=default/p&advice=true /debug/decisions /debug/overcommitment /debug/snapshot /debug/stacks"""


@pytest.fixture
def key_pair(tmp_path):
    """A certificate and its key, PEM."""
    return tuple(Path(path).read_bytes() for path in Authority().client(tmp_path, "client"))


class Everything:
    """All that is logged, at the highest verbosity."""

    def __enter__(self):
        self._stream = io.StringIO()
        root = logging.getLogger()
        self._control = set_up_logging(
            LogOptions(verbosity=10), monotonic=asyncio.get_running_loop().time, stream=self._stream, root=root
        )
        return self

    def __exit__(self, *exception):
        self._control.close(10)

    @property
    def text(self):
        return self._stream.getvalue()


def assert_secret(text, *secrets):
    for secret in secrets:
        for form in (secret, base64.b64encode(secret.encode()).decode()):
            assert form not in text
        # A PEM's lines may be told apart.
        for line in secret.splitlines():
            assert len(line) < 40 or line not in text


async def test_pages_logs_and_events_of_a_scheduler_with_extenders(key_pair):
    certificate, key = key_pair
    port = free_port()
    extender = {
        "urlPrefix": f"https://alice:{PASSWORD}@127.0.0.1:{port}/x",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {
            "insecure": True,
            "certData": base64.b64encode(certificate).decode(),
            "keyData": base64.b64encode(key).decode(),
        },
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [extender],
    }
    configuration = config.load(yaml.safe_dump(document))
    embedded = embedded_with_users()
    embedded.insert(node("alder"))
    with Everything() as logged:
        async with serving(embedded, configuration=configuration) as running:
            embedded.insert(pod("p", container(cpu="1")))
            await until(lambda: any(e["reason"] == "FailedScheduling" for e in embedded.events()), "the failure")
            shown = [(await running.client.get(path))[1] for path in PAGES.split()]
            assert sum(map(len, shown)) > 10_000
            await write_dump(running.scheduler, running.transport)
        told = str(embedded.events()) + str(embedded.get("Pod", "p"))
    assert f"https://alice:{CLASSIFIED}@127.0.0.1:{port}/x/filter" in told
    for text in (*shown, told, logged.text, str(config.configz(configuration))):
        assert_secret(text, PASSWORD, key.decode(), "Bearer scheduler")
    # What is written to be read again keeps them.
    assert PASSWORD in config.dump(configuration)


def kubeconfig(path, user, server):
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    Path(path).write_text(yaml.safe_dump(document))
    return str(path)


USERS = {
    "token": {"token": TOKEN},
    "token that no header may carry": {"token": f"{TOKEN}\n{TOKEN}"},
    "password": {"username": "alice", "password": PASSWORD},
    "key that is none": {
        "client-certificate-data": "eA==",
        "client-key-data": base64.b64encode(TOKEN.encode()).decode(),
    },
    "broken key": {"client-certificate-data": "eA==", "client-key-data": f"%{TOKEN}%"},
    "plugin that fails": {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "false",
            "env": [{"name": "SECRET", "value": TOKEN}],
            "interactiveMode": "Never",
        }
    },
}


@pytest.mark.parametrize("name", USERS)
async def test_connections_that_do_not_come_about(name, tmp_path):
    server = f"https://127.0.0.1:{free_port()}"
    path = kubeconfig(tmp_path / "kubeconfig", USERS[name], server)
    texts = []
    with Everything() as logged:
        try:
            texts.append(repr(await read_kubeconfig(path, None, "", SystemClock())))
            transport = await NetworkTransport.open(SystemClock(), kubeconfig=path)
            try:
                await transport.request("GET", "/api/v1/pods")
            finally:
                texts.append(repr(vars(transport)) + transport.server)
                await transport.close()
        except ClientError as error:
            texts += [str(error), repr(error)]
            logging.getLogger("koordsched.test").error("as the command says it", exc_info=error)
    assert any(texts)
    for text in (*texts, logged.text):
        assert_secret(text, TOKEN, PASSWORD)


def test_whoever_asks_a_scheduler():
    endpoint = Endpoint.open("http://127.0.0.1:1", kubeconfig=None, token=TOKEN, ca_file=None, verify=True)
    assert endpoint.authorization == f"Bearer {TOKEN}"
    assert_secret(repr(endpoint), TOKEN)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/x", "http://h/x"),
        ("http://alice@h:1/x", "http://alice@h:1/x"),
        ("https://alice:pw@h:1/x?y=z#f", "https://alice:CLASSIFIED@h:1/x?CLASSIFIED#f"),
        ("https://h/x?token=secret", "https://h/x?CLASSIFIED"),
        ("https://alice:p:w@h", "https://alice:CLASSIFIED@h"),
        ("https://alice:p@w@h/x", "https://alice:CLASSIFIED@h/x"),
        ("https://:pw@h/x", "https://:CLASSIFIED@h/x"),
        ("http://alice:pw@[::1", "CLASSIFIED@[::1"),
        ("http://[::1", "http://[::1"),
        ("", ""),
    ],
)
def test_passwords_and_queries_in_urls(url, shown):
    assert without_secrets(url) == shown


@pytest.mark.parametrize("there_before", [False, True])
def test_a_written_configuration_is_its_owners_alone(there_before, tmp_path):
    path = tmp_path / "written.yaml"
    if there_before:
        path.write_text("x" * 100_000)
        path.chmod(0o644)
    _write_config(config.load(yaml.safe_dump(DEFAULT_CONFIG)), str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text())["kind"] == "KubeSchedulerConfiguration"
