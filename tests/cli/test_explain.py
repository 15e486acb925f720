"""`koordsched explain`: the answer for programs, the tables for people, and asking a running scheduler."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from koordsched.cli.explanation_table import print_explanation
from koordsched.engine.explain import Explanation
from koordsched.fakecluster.tls import self_signed
from tests.cli.clusters import bound, node, pod, run, run_json, write

SCORES = {
    # LeastAllocated, per resource free * 100 // capacity; containers without a memory request count 200Mi.
    # n1: 3 of 4 CPUs free: 75, memory 7992Mi of 8192Mi: 97; mean 86. n2: 1 of 4: 25, 7792Mi: 95; mean 60.
    "n1": {"raw": 86, "normalized": 86, "weight": 1, "weighted": 86},
    "n2": {"raw": 60, "normalized": 60, "weight": 1, "weighted": 60},
}
FIT_ONLY = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled:
      - {name: PrioritySort}
      - {name: TaintToleration, weight: 3}
      - {name: NodeResourcesFit}
      - {name: DefaultBinder}
"""


@pytest.fixture
def fit_only(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(FIT_ONLY)
    return str(path)


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    return write(
        tmp_path / "cluster.yaml",
        node("n1"),
        node("n2"),
        node("n3", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        node("n4", cpu="500m"),
        bound("b", "n2", "2"),
        pod("a"),
        pod("big", "6"),
    )


def test_schema(cluster: str, fit_only: str) -> None:
    code, answer = run_json("explain", "default/a", "-f", cluster, "--config", fit_only)
    taints = {"raw": 0, "normalized": 100, "weight": 3, "weighted": 300}
    assert code == 0
    assert answer["nodes"] == [
        {
            "name": name,
            "feasible": True,
            "plugin": "",
            "reasons": [],
            "status": "",
            "scores": {"TaintToleration": taints, "NodeResourcesFit": SCORES[name]},
            "total": 300 + SCORES[name]["weighted"],
            "details": {},
        }
        for name in ("n1", "n2")
    ] + [
        {
            "name": "n3",
            "feasible": False,
            "plugin": "TaintToleration",
            "reasons": ["node(s) had untolerated taint(s)"],
            "status": "UnschedulableAndUnresolvable",
            "scores": {},
            "total": None,
            "details": {},
        },
        {
            "name": "n4",
            "feasible": False,
            "plugin": "NodeResourcesFit",
            "reasons": ["Insufficient cpu"],
            "status": "UnschedulableAndUnresolvable",
            "scores": {},
            "total": None,
            "details": {},
        },
    ]
    del answer["nodes"]
    assert answer.pop("advice")["verdict"] == "fits"
    assert answer == {
        "pod": "default/a",
        "profile": "default-scheduler",
        "anyOf": ["n1"],
        "message": "",
        "reason": "",
        "job": None,
        "rejectedBy": "",
        "refusal": None,
        "gatedBy": "",
        "nominatedNode": None,
        "victims": [],
        "scored": True,
        "virtual": False,
        "notes": {},
    }


def test_pending(cluster: str, fit_only: str) -> None:
    _, answer = run_json("explain", "big", "-f", cluster, "--config", fit_only)  # the namespace is default
    assert answer["anyOf"] == []
    assert answer["message"] == "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient cpu."
    assert answer["advice"] == {
        "verdict": "never",
        "text": "No node could run this pod, even if empty.",
        "emptyNode": "",
        "remedies": [
            {
                "node": "n1",
                "nodes": 3,
                "changes": [{"plugin": "NodeResourcesFit", "text": "a node with 6 cpu (this one has 4)"}],
            },
            {
                "node": "n3",
                "nodes": 1,
                "changes": [
                    {"plugin": "TaintToleration", "text": "a toleration of taint gpu=yes:NoSchedule"},
                    {"plugin": "NodeResourcesFit", "text": "a node with 6 cpu (this one has 4)"},
                ],
            },
        ],
    }


def test_a_bound_pod_is_explained_as_if_it_were_pending(cluster: str, fit_only: str) -> None:
    result = run("explain", "default/b", "-f", cluster, "--config", fit_only)
    assert "note: the pod is on node n2; explained as if it were pending and not there" in result.stderr
    # Without itself on n2, n1 and n2 are equally good.
    assert "Goes to any of n1, n2: 2 of 4 nodes feasible." in result.stdout


def test_tables(cluster: str, fit_only: str) -> None:
    result = run("explain", "default/a", "-f", cluster, "--config", fit_only)
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "Pod default/a, profile default-scheduler",
        "Goes to n1: 2 of 4 nodes feasible.",
        "",
        "NODE  TOTAL  NodeResourcesFit x1",
        "n1      386                   86",
        "n2      360                   60",
        "(score = normalised x weight; the raw score in brackets if it is different)",
        "The same on all of them: TaintToleration 300",
        "",
        "REFUSED  PLUGIN            REASONS                           NODES",
        "      1  NodeResourcesFit  Insufficient cpu                  n4",
        "      1  TaintToleration   node(s) had untolerated taint(s)  n3",
    ]
    result = run("explain", "default/big", "-f", cluster, "--config", fit_only)
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[-4:] == [
        "No node could run this pod, even if empty.",
        "NODES  CLOSEST  IT WOULD NEED",
        "    3  n1       a node with 6 cpu (this one has 4)",
        "    1  n3       a toleration of taint gpu=yes:NoSchedule; a node with 6 cpu (this one has 4)",
    ]


def test_five_thousand_nodes_fit_on_a_screen(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", pod("a"), pod("big", "100"))
    for name, lines in (("a", 20), ("big", 10)):
        result = run("explain", name, "-f", file, "--nodes", "5000")
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) <= lines
    assert "5000  NodeResourcesFit  Insufficient cpu  node-0000, node-0001, node-0002 and 4997 more" in result.stdout


def test_the_namespace_may_be_given_as_to_kubectl(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), pod("a", namespace="shop"))
    for arguments in (["shop/a"], ["a", "-n", "shop"], ["a", "--namespace=shop"]):
        assert run_json("explain", *arguments, "-f", file)[1]["pod"] == "shop/a"
    twice = run("explain", "shop/a", "-n", "shop", "-f", file)
    assert twice.exit_code == 2
    assert "the namespace is given twice: shop/a and -n shop" in twice.stderr


def test_unknown_pod(cluster: str) -> None:
    result = run("explain", "default/bi", "-f", cluster)
    assert result.exit_code == 1
    assert result.stderr == "error: no pod default/bi for this scheduler in the input; there is default/big\n"
    result = run("explain", "other/a", "-f", cluster)
    assert "(schedulerName must be one of default-scheduler)" in result.stderr


def test_what_a_plugin_says_about_its_refusal_is_shown() -> None:
    out = Console(file=StringIO(), width=100)
    refusal = {"quota": "team-a", "exceeded": ["cpu"]}
    explanation = Explanation("ns/p", "koord", [], [], message="m", reason="R", rejected_by="Quota", refusal=refusal)
    print_explanation(out, explanation, None, 5)
    assert isinstance(out.file, StringIO)
    text = "Pod ns/p, profile koord\nR: m\n\nQuota says:\n  quota: team-a\n  exceeded:\n  - cpu\n"
    assert out.file.getvalue() == text


# --- a running scheduler ---------------------------------------------------------------------------------------

EXPLANATION = {
    "pod": "ns/p",
    "profile": "default-scheduler",
    "nodes": [{"name": "n1", "feasible": True}],
    "anyOf": ["n1"],
    "later": "fields that this version does not know are skipped",
}


class _Scheduler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Bearer secret":
            self._answer(401, b"Unauthorized")
        elif self.path.startswith("/debug/explain?pod=ns%2Fsecret"):
            self._answer(403, b'{"kind":"Status","apiVersion":"v1","message":"forbidden: User \\"u\\"","code":403}')
        elif self.path != "/debug/explain?pod=ns%2Fp&advice=true":
            self._answer(404, b'no pending pod "x"')
        else:
            self._answer(200, orjson.dumps(EXPLANATION))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def serving(tls: ssl.SSLContext) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Scheduler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(address, file with the authority) of an endpoint that wants the token `secret`."""
    tls, authority = self_signed("127.0.0.1", 1_780_000_000.0)
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    path.write_bytes(authority)
    with serving(tls) as address:
        yield address, str(path)


def test_a_running_scheduler_is_asked(endpoint: tuple[str, str]) -> None:
    address, authority = endpoint
    for trust in (["--ca-file", authority], ["--insecure-skip-tls-verify"]):
        code, answer = run_json("explain", "ns/p", "--server", address, "--token", "secret", *trust)
        assert (code, answer["pod"], answer["anyOf"], answer["advice"]) == (0, "ns/p", ["n1"], None)


def test_credentials_of_a_kubeconfig(endpoint: tuple[str, str], tmp_path: Path) -> None:
    address, authority = endpoint
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: secret}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    arguments = ["explain", "ns/p", "--server", address, "--ca-file", authority, "--kubeconfig", str(kubeconfig)]
    assert run_json(*arguments)[0] == 0
    assert run(*arguments, "--token", "other").exit_code == 1


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (
            ["ns/p", "--token", "secret"],
            "certificate (use --ca-file with its CA, or --insecure-skip-tls-verify)",
        ),
        (
            ["ns/p", "--insecure-skip-tls-verify"],
            "401 Unauthorized: Unauthorized (credentials: --token or --kubeconfig)",
        ),
        (["ns/x", "--insecure-skip-tls-verify", "--token", "secret"], '404 Not Found: no pending pod "x"'),
        (
            ["ns/secret", "--insecure-skip-tls-verify", "--token", "secret"],
            '/debug/explain: 403 Forbidden: forbidden: User "u" (credentials: --token or --kubeconfig)\n',
        ),
        (["ns/p", "--ca-file", "/nowhere"], "cannot load the certificates: [Errno 2] No such file or directory"),
        (["ns/p", "--kubeconfig", "/nowhere"], "kubeconfig /nowhere: No such file or directory"),
    ],
)
def test_refusals(endpoint: tuple[str, str], arguments: list[str], complaint: str) -> None:
    result = run("explain", *arguments, "--server", endpoint[0])
    assert result.exit_code == 1
    assert complaint in result.stderr


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--config", "c.yaml", "--server", "https://127.0.0.1:1"], "--config has no effect with --server"),
        (["--nodes", "3", "--server", "https://127.0.0.1:1"], "--nodes has no effect with --server"),
        (["--token", "t"], "--token has no effect without --server"),
        (["-f", "x.yaml", "--context", "c"], "--context has no effect with -f"),
        (["-f", "x.yaml", "--like", "n", "--node-template", "t"], "--like and --node-template cannot be used together"),
        (["-f", "x.yaml", "--server", "https://127.0.0.1:1"], "--server has no effect with -f"),
        (["-f", "x.yaml", "--insecure-skip-tls-verify"], "--insecure-skip-tls-verify has no effect with -f"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments: list[str], complaint: str) -> None:
    for command in (["explain", "ns/p"], ["quota", "tree"]):
        result = run(*command, *arguments)
        assert result.exit_code == 2
        assert complaint in result.stderr


def test_a_token_that_no_header_may_carry() -> None:
    for token in ("two\nlines", "schlüssel"):
        result = run("explain", "ns/p", "--server", "https://127.0.0.1:1", "--token", token)
        assert (result.exit_code, result.stderr) == (
            1,
            "error: --token contains characters that are not allowed in a header\n",
        )


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
def test_another_server_there(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=say)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = run("explain", "ns/p", "--server", address)
        thread.join()
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {address}: this is not the response of a scheduler: ")
    assert result.stderr.count("\n") == 1


def test_no_server_there() -> None:
    result = run("explain", "ns/p", "--server", "https://127.0.0.1:1")
    assert (result.exit_code, result.stderr) == (1, "error: https://127.0.0.1:1: [Errno 111] Connection refused\n")
