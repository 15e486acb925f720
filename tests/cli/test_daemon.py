"""`koordsched run` as a process: how it starts, what it says when it cannot, how it ends."""

import asyncio
import gc
import json
import os
import platform
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from koordsched import __version__
from koordsched.cli.run import run as run_command
from koordsched.client.clock import SystemClock
from koordsched.client.errors import raise_for_status
from koordsched.client.network import NetworkTransport
from koordsched.plugins import IN_TREE
from tests.cli.clusters import run

DEADLINE = 30.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A running command whose output is read as it comes."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "koordsched", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
        self.lines = []
        self._arrived = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def wait_for(self, text):
        """The first line from now on that has the text in it."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                line = self._arrived.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                line = None
            assert line is not None, f"no {text!r} in:\n" + "\n".join(self.lines)
            self.lines.append(line)
            if text in line:
                return line

    def end(self, number=None):
        """(exit code, all output) after a signal, if one is given."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        while (line := self._arrived.get(timeout=DEADLINE)) is not None:
            self.lines.append(line)
        return code, self.lines


@contextmanager
def running(*arguments):
    process = Process(*arguments)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(DEADLINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """An embedded cluster of two nodes; the path of its kubeconfig."""
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    with running("fakecluster", "--nodes", "2", "--kubeconfig-out", str(kubeconfig)) as process:
        process.wait_for("fakecluster ready")
        yield str(kubeconfig)


def get(url):
    """(status, text)"""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, context=context, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def poll(url, wanted):
    """Asks until the answer has this status."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            answer = get(url)
        except OSError as error:
            answer = (0, str(error))
        if answer[0] == wanted:
            return answer
        assert time.monotonic() < end, answer
        time.sleep(0.05)


async def ask(kubeconfig, method, path, body=None):
    """What the API server answers."""
    transport = await NetworkTransport.open(SystemClock(), kubeconfig=kubeconfig)
    try:
        return json.loads(raise_for_status(await transport.request(method, path, body=body)).body)
    finally:
        await transport.close()


def options(port, *more):
    return ("--bind-address=127.0.0.1", f"--secure-port={port}", *more)


def refused(*arguments):
    """(exit code, lines) of a daemon that does not get as far as to serve; in this process, which is quick."""
    thresholds = gc.get_threshold()
    try:
        result = run("run", *arguments)
    finally:
        gc.set_threshold(*thresholds)
    return result.exit_code, result.output.splitlines()


CANNOT_START = [
    (["--kubeconfig=/nowhere"], "error: kubeconfig /nowhere: No such file or directory"),
    (["--master=http://host:0"], "error: server address 'http://host:0' is not of the form http(s)://host:port"),
    (["--tls-cert-file=/nowhere", "--tls-private-key-file=/nowhere"], "cannot serve with /nowhere"),
    (["--tls-cipher-suites=ROT13"], "unknown or unsupported cipher suite 'ROT13'"),
    (["--bind-address=ü"], "error: 'ü' is neither an address nor a host name"),
    (["--client-ca-file=/dev/null"], "error: the client CA bundle cannot be read: "),
    (["--client-ca-file=/nowhere"], "error: --client-ca-file /nowhere: No such file or directory"),
    (["--allow-metric-labels=x"], "--allow-metric-labels: 'x' is not of the form <metric>,<label>=<value>"),
    (["--config=/nowhere"], "/nowhere"),
]


@pytest.mark.parametrize("flags, expected", CANNOT_START, ids=lambda value: str(value)[:40])
def test_what_keeps_it_from_starting_is_one_line(flags, expected):
    connection = [] if any("kubeconfig" in flag or "master" in flag for flag in flags) else ["--master=127.0.0.1:1"]
    code, lines = refused(*options(free_port()), *connection, *flags)
    said = [line for line in lines if "not implemented" not in line]
    assert code == 1
    assert len(said) == 1, said
    assert expected in said[0]


def test_extenders_that_cannot_work_keep_it_from_starting(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "extenders: [{urlPrefix: https://ext, filterVerb: filter, tlsConfig: {caFile: /nowhere}}]\n"
    )
    code, lines = refused("--master=127.0.0.1:1", *options(free_port()), f"--config={config}")
    assert code == 1
    assert lines[-1].startswith("error: couldn't build extenders: https://ext: cannot load the certificates")


def test_a_plugin_that_is_not_implemented_keeps_it_from_starting(tmp_path, monkeypatch):
    without = {name: factory for name, factory in IN_TREE.items() if name != "GangScheduling"}
    monkeypatch.setattr("koordsched.cli.starting.IN_TREE", without)
    config = tmp_path / "config.yaml"
    profile = {"schedulerName": "gpus", "plugins": {"permit": {"enabled": [{"name": "GangScheduling"}]}}}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(json.dumps({**kind, "profiles": [profile]}))
    result = CliRunner().invoke(run_command, ["--master=127.0.0.1:1", f"--config={config}"])
    assert result.exit_code == 1
    assert " ".join(result.output.split()).endswith(
        "plugins that are not implemented: GangScheduling (profiles: gpus); remove them from the "
        "configuration, or start with --allow-unimplemented-plugins: then they do nothing"
    )


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running("run", "--master=127.0.0.1:1", *options(port)) as process:
            code, lines = process.end()
            assert code == 1
            assert lines[-1].startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
            assert "address already in use" in lines[-1]


def test_an_unreachable_server_is_waited_for_and_told_about():
    port, nobody = free_port(), free_port()
    with running("run", f"--master=127.0.0.1:{nobody}", *options(port)) as process:
        process.wait_for("Serving on")
        base = f"https://127.0.0.1:{port}"
        assert poll(f"{base}/healthz", 200) == (200, "ok")
        assert get(f"{base}/livez") == (200, "ok")
        status, text = get(f"{base}/readyz")
        assert (status, "[-]sched-handler-sync failed" in text) == (500, True)
        process.wait_for("cannot reach the API server")
        code, lines = process.end(signal.SIGTERM)
        assert code == 0
        assert sum("cannot reach the API server" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("flag", "gates"),
    [
        ("--feature-gates=MultiQuotaTree=false", "as by default"),
        ("--feature-gates=MultiQuotaTree=true,PodLevelResources=false", "MultiQuotaTree=true,PodLevelResources=false"),
    ],
)
def test_it_says_what_starts(tmp_path, flag, gates):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: one}, {schedulerName: two}]\n"
    )
    port = free_port()
    with running("run", f"--master=127.0.0.1:{port}", *options(free_port()), f"--config={config}", flag) as process:
        line = process.wait_for(" starts; ")
    versions = f"koordsched {__version__} (python {platform.python_version()}, numpy {np.__version__})"
    assert line[0] == "I"
    assert line.partition("] ")[2] == (
        f"{versions} starts; API server: http://127.0.0.1:{port}; profiles: one, two; feature gates: {gates}"
    )


def test_a_whole_life(cluster, tmp_path):
    port = free_port()
    base = f"https://127.0.0.1:{port}"
    certificates = tmp_path / "certificates"
    flags = (f"--kubeconfig={cluster}", f"--cert-dir={certificates}", "--leader-elect-resource-name=a-whole-life")
    with running("run", *options(port, *flags)) as process:
        process.wait_for("successfully acquired lease")
        poll(f"{base}/readyz", 200)
        assert sorted(path.name for path in certificates.iterdir()) == ["kube-scheduler.crt", "kube-scheduler.key"]
        shown = json.loads(get(f"{base}/configz")[1])["componentconfig"]
        assert shown["leaderElection"]["resourceName"] == "a-whole-life"
        assert f"\nkubeconfig={cluster}\n" in get(f"{base}/flagz")[1]
        assert 'leader_election_master_status{name="a-whole-life"} 1.0' in get(f"{base}/metrics")[1]
        process.process.send_signal(signal.SIGUSR2)
        process.wait_for("Cache comparison: cache and API server agree")
        process.wait_for("Node name: node-0")
        process.wait_for("Dump of scheduling queue: activeQ:0; backoffQ:0; unschedulablePods:0")
        code, _ = process.end(signal.SIGTERM)
        assert code == 0
        with pytest.raises(OSError, match="refused"):
            get(f"{base}/healthz")


def test_objects_come_in_protobuf_and_go_in_json(cluster, tmp_path):
    """Over HTTP, from a server that is asked for nothing else."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {acceptContentTypes: application/vnd.kubernetes.protobuf}
leaderElection: {leaderElect: false}
"""
    )
    port = free_port()
    with running("run", *options(port, f"--kubeconfig={cluster}", f"--config={configuration}")) as process:
        poll(f"https://127.0.0.1:{port}/readyz", 200)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        made = {"metadata": {"name": "encoded"}, "spec": {"containers": [container]}}
        pods = "/api/v1/namespaces/default/pods"
        asyncio.run(ask(cluster, "POST", pods, json.dumps(made).encode()))
        end = time.monotonic() + DEADLINE
        while "nodeName" not in (pod := asyncio.run(ask(cluster, "GET", f"{pods}/encoded")))["spec"]:
            assert time.monotonic() < end, pod
            time.sleep(0.05)
        events = "/apis/events.k8s.io/v1/namespaces/default/events"
        uid = pod["metadata"]["uid"]
        while not (
            told := [e for e in asyncio.run(ask(cluster, "GET", events))["items"] if e["regarding"]["uid"] == uid]
        ):
            assert time.monotonic() < end, pod
            time.sleep(0.05)
        assert [(e["reason"], e["type"], e["eventTime"][-1]) for e in told] == [("Scheduled", "Normal", "Z")]
        process.process.send_signal(signal.SIGUSR2)
        process.wait_for("Cache comparison: cache and API server agree")
        assert process.end(signal.SIGTERM)[0] == 0
    asyncio.run(ask(cluster, "DELETE", f"{pods}/encoded"))


@pytest.fixture
def hangups_heard():
    """Whoever runs the tests under nohup has its children ignore SIGHUP, and so does koordsched then."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_heard")
def test_the_end_of_the_terminal_is_an_orderly_end(cluster):
    flags = (f"--kubeconfig={cluster}", "--leader-elect-resource-name=hung-up")
    with running("run", *options(free_port(), *flags)) as process:
        process.wait_for("successfully acquired lease")
        assert process.end(signal.SIGHUP)[0] == 0
    with running("run", *options(free_port(), *flags)) as process:
        process.wait_for("successfully acquired lease")  # at once: it was given back
        assert process.end(signal.SIGTERM)[0] == 0


@contextmanager
def logging_in(folder, *more):
    """A daemon that cannot do anything yet: its credential plugin waits for a log-in."""
    waiting, plugin, kubeconfig = folder / "waiting", folder / "plugin", folder / "kubeconfig"
    plugin.write_text(f"#!/bin/sh\necho $$ > {waiting}.new && mv {waiting}.new {waiting}\nexec sleep 60\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    with running("run", *options(free_port()), f"--kubeconfig={kubeconfig}", *more) as process:
        end = time.monotonic() + DEADLINE
        while not waiting.exists():
            assert time.monotonic() < end, process.lines
            time.sleep(0.02)
        try:
            yield process
        finally:
            os.kill(int(waiting.read_text()), signal.SIGKILL)


def test_a_second_signal_ends_it_at_once(tmp_path):
    with logging_in(tmp_path) as process:
        process.process.send_signal(signal.SIGTERM)
        process.process.send_signal(signal.SIGINT)
        process.process.wait(DEADLINE)
    code, lines = process.end()
    assert (code, lines[-1]) == (1, "error: stopped immediately by a second signal")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=lambda number: number.name)
def test_a_signal_without_a_meaning_is_ignored(tmp_path, number):
    with logging_in(tmp_path, "-v=4") as process:
        process.process.send_signal(number)
        process.wait_for(f"{number.name} is ignored")
        process.process.send_signal(signal.SIGTERM)
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(DEADLINE) == 1  # not -number


def test_a_standby_shows_no_queues_until_it_leads(cluster):
    pods, names = "/api/v1/namespaces/default/pods", ["waiting-0", "waiting-1", "waiting-2"]
    spec = {"nodeSelector": {"name": "nowhere"}, "containers": [{"name": "c", "image": "i"}]}
    for name in names:
        asyncio.run(ask(cluster, "POST", pods, json.dumps({"metadata": {"name": name}, "spec": spec}).encode()))

    def waiting(port):
        """Pods by queue and whether it leads, as /metrics says."""
        text = get(f"https://127.0.0.1:{port}/metrics")[1]
        queues = re.findall(r'^scheduler_pending_pods\{queue="(\w+)"\} (\S+)$', text, re.MULTILINE)
        leads = re.search(r'^leader_election_master_status\{name="pair"\} (\S+)$', text, re.MULTILINE)
        return {queue: float(number) for queue, number in queues}, float(leads[1])

    def until_tried(port):
        end = time.monotonic() + DEADLINE
        while (found := waiting(port)) != ({"active": 0, "backoff": 0, "gated": 0, "unschedulable": 3}, 1):
            assert time.monotonic() < end, found
            time.sleep(0.05)

    flags = (f"--kubeconfig={cluster}", "--leader-elect-resource-name=pair")
    first, second = free_port(), free_port()
    with running("run", *options(first, *flags)) as leader:
        leader.wait_for("successfully acquired lease")
        with running("run", *options(second, *flags)) as standby:
            standby.wait_for("watching 2 nodes")
            until_tried(first)
            assert waiting(second) == ({}, 0)
            assert leader.end(signal.SIGTERM)[0] == 0
            standby.wait_for("successfully acquired lease")
            queues, leads = waiting(second)
            assert (sum(queues.values()), leads) == (3, 1)
            until_tried(second)
            assert standby.end(signal.SIGTERM)[0] == 0
    for name in names:
        asyncio.run(ask(cluster, "DELETE", f"{pods}/{name}"))


def test_a_lost_lease_ends_the_process(cluster):
    flags = (f"--kubeconfig={cluster}", "--leader-elect-resource-name=lost")
    with running("run", *options(free_port(), *flags)) as process:
        process.wait_for("successfully acquired lease")
        taken = json.dumps({"spec": {"holderIdentity": "another", "leaseTransitions": 5}}).encode()
        server = yaml.safe_load(Path(cluster).read_text())["clusters"][0]["cluster"]["server"]
        request = urllib.request.Request(
            f"{server}/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lost",
            taken,
            {"Content-Type": "application/merge-patch+json"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            assert answer.status == 200
        process.wait_for("Leaderelection lost")
        assert process.end()[0] == 1


def test_a_standby_with_a_delayed_cache_lists_nothing(cluster, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\ndelayCacheUntilActive: true\n"
        "leaderElection: {resourceName: delayed}\n"
    )
    flags = (f"--kubeconfig={cluster}", f"--config={config}")
    first, second = free_port(), free_port()
    with running("run", *options(first, *flags)) as leader:
        leader.wait_for("watching 2 nodes")
        with running("run", *options(second, *flags)) as standby:
            standby.wait_for("new leader elected")
            assert get(f"https://127.0.0.1:{second}/healthz") == (200, "ok")
            assert get(f"https://127.0.0.1:{second}/readyz")[0] == 500
            assert get(f"https://127.0.0.1:{second}/metrics/resources") == (200, "")
            assert leader.end(signal.SIGTERM)[0] == 0
            standby.wait_for("watching 2 nodes")
            poll(f"https://127.0.0.1:{second}/readyz", 200)
            assert standby.end(signal.SIGTERM)[0] == 0
