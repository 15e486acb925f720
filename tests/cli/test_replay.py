"""`koordsched replay` on the command line, and a journal of real processes."""

import errno
import json
import os
import re
import ssl
import stat
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
import yaml

from koordsched.journal.frames import MAGIC, frame_of
from koordsched.journal.reading import Journal
from koordsched.journal.records import Attempt, Chosen, Consulted, Filtered, Refused, decode, encode
from tests.cli.clusters import run, run_json
from tests.cli.test_daemon import DEADLINE, free_port, options, refused, running
from tests.embedded import Embedded
from tests.journal.test_replay import busy, replace_struct
from tests.virtualtime import run as run_virtual


@pytest.fixture(scope="module")
def segments():
    async def main():
        return (await busy(Embedded(), seconds_per_segment=15)).journal.segments

    return run_virtual(main())


def write(path, segment):
    path.write_bytes(MAGIC + b"".join(frame_of(segment[at : at + 20]) for at in range(0, len(segment), 20)))


@pytest.fixture
def journal(segments, tmp_path):
    """The path of a journal of several segments."""
    path = tmp_path / "journal"
    for number, segment in enumerate(reversed(segments)):
        write(path.with_name(f"journal.{number}") if number else path, segment)
    return path


def test_every_decision_comes_out_the_same(journal, segments):
    result = run("replay", str(journal))
    assert result.exit_code == 0, result.output
    decisions = sum(isinstance(decode(data), Attempt) for segment in segments for data in segment)
    assert result.stdout.startswith(f"{decisions} decisions on ")
    assert re.search(
        r"\nEvery decision is the same(; \d+ choices? between equals taken from the record)?\.\n$", result.stdout
    )


def test_yaml_and_wide(journal):
    value = run_json("replay", str(journal))[1]
    shown = yaml.safe_load(run("replay", str(journal), "-o", "yaml").stdout)
    assert {**shown, "seconds": 0} == {**value, "seconds": 0}
    assert "Every decision is the same" in run("replay", str(journal), "-o", "wide").stdout


def test_json(journal, segments):
    code, answer = run_json("replay", str(journal))
    assert code == 0
    assert [name.rpartition("/")[2] for name in answer["segments"]] == [
        *(f"journal.{number}" for number in range(len(segments) - 1, 0, -1)),
        "journal",
    ]
    assert answer["divergence"] is None
    assert answer["damages"] == []
    assert answer["tally"]["closed"]
    assert answer["tally"]["preemptions"] == 2


def test_a_segment_by_itself(journal):
    code, answer = run_json("replay", f"{journal}.1")
    assert (code, len(answer["segments"])) == (0, 1)
    assert answer["tally"]["resumed"]


def test_until(journal):
    code, answer = run_json("replay", str(journal), "--until", "5")
    assert (code, answer["tally"]["decisions"]) == (0, 5)
    code, answer = run_json("replay", str(journal), "--until", "2030-01-01T00:00:02Z")
    assert code == 0
    assert 5 <= answer["tally"]["decisions"] <= 8


@pytest.mark.parametrize(
    "text, complaint",
    [("soon", "'soon' is neither a number of decisions nor a time"), ("2030-01-01T00:00:00", "lacks a time zone")],
)
def test_bad_limits(journal, text, complaint):
    result = run("replay", str(journal), "--until", text)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_decision_is_explained(journal):
    result = run("replay", str(journal), "--pod", "second")
    assert result.exit_code == 0, result.output
    first, second, *_ = result.stdout.splitlines()
    assert re.fullmatch(r"Decision \d+, 2030-01-01T00:00:\d\d\.\d{3}Z", first)
    assert second == "Pod default/second, profile default-scheduler"
    code, answer = run_json("replay", str(journal), "--pod", "default/second", "--until", "30")
    assert code == 0
    assert answer["pod"] == answer["decision"]["pod"] == "default/second"
    assert answer["decision"]["number"] <= 30


def test_no_decision_on_the_pod(journal):
    result = run("replay", str(journal), "--pod", "nobody")
    assert (result.exit_code, result.stderr) == (1, "error: no decision on pod default/nobody in the journal\n")


def test_a_difference_is_shown_and_ends_the_replay(journal, segments):
    number, at = next(
        (number, index)
        for number, segment in enumerate(reversed(segments))
        for index, data in enumerate(segment)
        if isinstance(decode(data), Refused | Chosen)
    )
    changed = list(segments[-1 - number])
    changed[at] = encode(Chosen("n7", 1, None))
    write(journal.with_name(f"journal.{number}") if number else journal, changed)
    result = run("replay", str(journal))
    assert result.exit_code == 3, result.output
    assert re.search(
        r"\nDecision \d+ differs: \S+, 2030-\S+\n  recorded: placed on n7 \(1 feasible\)\n  now:  ",
        result.stdout,
    )
    code, answer = run_json("replay", str(journal))
    assert code == 3
    assert answer["divergence"]["recorded"] == "placed on n7 (1 feasible)"


def test_another_configuration(journal, tmp_path):
    profile = {
        "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
    }
    other = tmp_path / "other.yaml"
    api = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    other.write_text(yaml.safe_dump({**api, "profiles": [profile]}))
    result = run("replay", str(journal), "--config", str(other))
    assert result.exit_code == 0, result.output
    assert re.search(r"\d+ of \d+ decisions the same; \d+ elsewhere, 2 other victims", result.stdout)
    code, answer = run_json("replay", str(journal), "--config", str(other))
    assert code == 0
    assert answer["kinds"]["other victims"] == 2
    assert {change["kind"] for change in answer["changed"]} == set(answer["kinds"]) - {"same"}
    result = run("replay", str(journal), "--config", str(other), "--pod", "w1")
    assert result.exit_code == 2


def test_a_file_that_ends_within_a_frame(journal):
    data = journal.read_bytes()
    journal.write_bytes(data[:-5])
    result = run("replay", str(journal))
    assert result.exit_code == 0, result.output
    assert f"note: {journal}: the file ends within a frame at byte " in result.stderr
    assert "Every decision is the same" in result.stdout


def test_a_damaged_file(journal):
    data = bytearray(journal.read_bytes())
    data[-30] ^= 255
    journal.write_bytes(data)
    result = run("replay", str(journal))
    assert result.exit_code == 4, result.output
    assert "a damaged frame (wrong checksum) at byte " in result.stderr


def test_other_versions_are_named(segments, tmp_path):
    journal = tmp_path / "journal"
    header = replace_struct(decode(segments[0][0]), software={"koordsched": "0.0.1", "numpy": "1.0"})
    write(journal, [encode(header), *segments[0][1:]])
    result = run("replay", str(journal))
    assert result.exit_code == 0, result.output
    assert "note: recorded with koordsched 0.0.1, numpy 1.0; this is koordsched " in result.stderr


@pytest.mark.parametrize(
    "data, complaint",
    [
        (b"", "the file is empty"),
        (b"kind: Pod\n", "this is not a journal of koordsched"),
        (b"koordsched journal 9\n", "a journal of format 9; this version of koordsched reads format 4"),
    ],
)
def test_other_files(tmp_path, data, complaint):
    path = tmp_path / "journal"
    path.write_bytes(data)
    result = run("replay", str(path))
    assert (result.exit_code, result.stderr) == (1, f"error: {path}: {complaint}\n")


def test_no_file(tmp_path):
    path = tmp_path / "journal"
    result = run("replay", str(path))
    assert (result.exit_code, result.stderr) == (1, f"error: {path}: no such file\n")
    (tmp_path / "journal.1").write_bytes(b"")
    result = run("replay", str(path))
    assert (result.exit_code, result.stderr) == (1, f"error: {path}: no such file, but there is journal.1\n")


def test_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        result = run("replay", str(path))
        assert (result.exit_code, result.stderr) == (1, f"error: {path} is not a regular file\n")


def test_a_file_that_may_not_be_read(journal, monkeypatch):
    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    result = run("replay", str(journal))
    assert (result.exit_code, result.stderr) == (1, f"error: [Errno 13] Permission denied: '{journal}.3'\n")


def test_nothing_but_the_beginning_of_a_frame(tmp_path, segments):
    path = tmp_path / "journal"
    path.write_bytes(MAGIC + frame_of(segments[0][:1])[:-1])
    result = run("replay", str(path))
    assert result.exit_code == 1
    where = f"{path}: the file ends within a frame at byte {len(MAGIC)}"
    assert result.stderr == f"error: nothing can be replayed: {where}\n"


def test_a_journal_that_is_still_written(journal):
    data = journal.read_bytes()
    journal.write_bytes(data[:-1])
    result = run("replay", str(journal))
    assert result.exit_code == 0
    open_end, cut, *_ = result.stderr.splitlines()
    assert open_end == "note: the journal is incomplete: its process was killed, or is still writing"
    assert cut.startswith(f"note: {journal}: the file ends within a frame at byte ")


def test_a_missing_segment(journal, segments):
    assert len(segments) > 2
    journal.with_name("journal.1").unlink()
    result = run("replay", str(journal))
    assert result.exit_code == 4
    assert result.stderr == f"note: {journal}: the segment before it cannot be found; the rest was replayed\n"
    assert "Every decision is the same" in result.stdout


# --- real processes ----------------------------------------------------------------------------------


class Api:
    """Requests to the server of a kubeconfig."""

    def __init__(self, kubeconfig):
        with open(kubeconfig) as file:
            document = yaml.safe_load(file)
        self._server = document["clusters"][0]["cluster"]["server"]
        self._token = document["users"][0]["user"].get("token", "")
        self._context = ssl._create_unverified_context()

    def __call__(self, method, path, body=None):
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._server}{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=DEADLINE) as answer:
            return json.load(answer)

    def create_pods(self, prefix, count, cpu):
        for number in range(count):
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
            meta = {"name": f"{prefix}{number}"}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
            self("POST", "/api/v1/namespaces/default/pods", body)

    def wait(self, condition):
        """Until it holds of the pods."""
        end = time.monotonic() + DEADLINE
        while not condition(pods := self("GET", "/api/v1/pods")["items"]):
            assert time.monotonic() < end, [(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in pods]
            time.sleep(0.05)


def settled(pods):
    """Every pod has a node, or was told why not."""
    return all(pod["spec"].get("nodeName") or pod["status"].get("conditions") for pod in pods)


def test_a_journal_of_real_processes(tmp_path):
    kubeconfig, journal = tmp_path / "kubeconfig", tmp_path / "journal"
    command = ("run", "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--journal", str(journal))
    with running("fakecluster", "--nodes", "3", "--kubeconfig-out", str(kubeconfig)) as server:
        server.wait_for("fakecluster ready")
        api = Api(kubeconfig)
        with running(*command, *options(free_port())) as first:
            first.wait_for("watching 3 nodes")
            api.create_pods("a", 20, "1")
            api.wait(lambda pods: len(pods) == 20 and settled(pods))
            assert first.end(SIGTERM)[0] == 0
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600
        with running(*command, *options(free_port())) as second:
            second.wait_for("watching 3 nodes")
            api.create_pods("b", 5, "1")
            api.wait(lambda pods: len(pods) == 25 and settled(pods))
            # What a killed process wrote so far is enough.
            size = journal.stat().st_size
            end = time.monotonic() + DEADLINE
            while journal.stat().st_size == size and time.monotonic() < end:
                time.sleep(0.05)
            second.end(SIGKILL)
    code, answer = run_json("replay", str(journal))
    assert code == 0, answer
    tally = answer["tally"]
    assert (tally["runs"], tally["closed"], tally["errors"]) == (2, False, 0)
    assert tally["decisions"] >= 20
    assert tally["bound"] == tally["placed"] > 0


class Extender(BaseHTTPRequestHandler):
    """Answers in a thread of this process: refuses node-0, prefers node-2."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        names = json.loads(self.rfile.read(int(self.headers["content-length"])))["NodeNames"]
        if self.path.endswith("/filter"):
            kept = [name for name in names if name != "node-0"]
            answer = {"NodeNames": kept, "FailedNodes": {"node-0": "not this one"} if "node-0" in names else {}}
        else:
            answer = [{"Host": name, "Score": 10 if name == "node-2" else 1} for name in names]
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *line):
        pass


@contextmanager
def extender():
    """The URL of one that runs until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Extender)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ext"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_journal_of_a_process_with_an_extender(tmp_path):
    kubeconfig, journal, configuration = tmp_path / "kubeconfig", tmp_path / "journal", tmp_path / "config.yaml"
    with extender() as url, running("fakecluster", "--nodes", "3", "--kubeconfig-out", str(kubeconfig)) as server:
        server.wait_for("fakecluster ready")
        asked = {"urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 2}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "extenders": [{**asked, "nodeCacheCapable": True}],
        }
        configuration.write_text(yaml.safe_dump(document))
        command = ("run", "--config", str(configuration), "--journal", str(journal))
        api = Api(kubeconfig)
        with running(*command, *options(free_port())) as scheduler:
            scheduler.wait_for("watching 3 nodes")
            api.create_pods("a", 12, "1")
            api.create_pods("huge", 1, "1000")
            api.wait(lambda pods: len(pods) == 13 and settled(pods))
            nodes = {pod["spec"].get("nodeName") for pod in api("GET", "/api/v1/pods")["items"]}
            assert scheduler.end(SIGTERM)[0] == 0
    assert "node-2" in nodes
    assert "node-0" not in nodes
    # Nobody answers any more.
    code, answer = run_json("replay", str(journal))
    assert (code, answer["divergence"]) == (0, None)
    tally = answer["tally"]
    assert (tally["placed"], tally["closed"], tally["errors"]) == (12, True, 0)
    assert tally["unschedulable"] >= 1
    records = list(Journal(journal))
    at = next(number for number, record in enumerate(records) if isinstance(record, Consulted))
    said = Filtered((), None, ())  # nobody is refused
    records[at] = replace_struct(records[at], answer=said)
    write(journal, [encode(record) for record in records])
    code, answer = run_json("replay", str(journal))
    assert code == 3
    assert answer["divergence"]["recorded"] == f"asks {url} to prioritize 2 nodes"
    assert answer["divergence"]["repeated"] == f"asks {url} to prioritize 3 nodes, among them node-0"
    result = run("replay", str(journal), "--pod", "a0")
    assert result.exit_code == 0, result.output
    assert "note: HTTP extenders took part." in result.stderr


# --- starting ------------------------------------------------------------------------------------------

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
    "current-context": "none",
}


@pytest.mark.parametrize(
    "name, complaint",
    [
        ("missing/journal", "error: --journal: [Errno 2] No such file or directory: "),
        ("kubeconfig", "kubeconfig: this is not a journal of koordsched"),
    ],
)
def test_journals_that_cannot_be_begun(tmp_path, name, complaint):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    code, lines = refused("--kubeconfig", str(kubeconfig), "--journal", str(tmp_path / name), *options(0))
    assert code == 1
    assert complaint in lines[-1]


def test_a_size_that_is_none():
    result = run("run", "--journal-max-size", "big")
    assert result.exit_code == 2
    assert "big" in result.stderr
