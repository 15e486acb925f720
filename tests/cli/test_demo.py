"""`koordsched demo` as users start it, and that nothing of it stays behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import orjson
import pytest

from tests import depth
from tests.packaging.kubectl import KUBECTL

DEADLINE = 90.0
COMMAND = (sys.executable, "-m", "koordsched", "demo")


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "deadline exceeded"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(depth.quick and KUBECTL is not None, reason="run as the README shows it, with kubectl")
def test_outcome_is_the_expected_one() -> None:
    done = subprocess.run([*COMMAND, "--burst", "100"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-2:]
    assert re.fullmatch(
        r"Deployment demo/burst: 100 pods created, placed and bound in [\d.]+ s \([\d,]+ pods/s\)", last[0]
    )
    assert last[1] == "297 pods placed, 9 pending, each for the reason expected."
    for pid in re.findall(r"process (\d+)", done.stdout):
        assert not alive(int(pid))
    shown = done.stdout.partition("busy-0 looks empty: ")[2].splitlines()
    assert shown[0] == "pods request 0.05 CPUs. By its report it is not; load-aware avoids it:"
    # After the report: total, measured, estimated for recent pods, use, threshold, that for production.
    cells = [re.split(r", \d+ s", line)[1].split(maxsplit=7) for line in shown[2:5]]
    assert [line.split()[0] for line in shown[2:5]] == ["busy-0", "quiet-0", "quiet-1"]
    assert cells[0] == ["cpu", "8.0", "6.0", "0.0", "76%", "65%", "-", "refuses pods"]
    assert [each[:3] for each in cells[1:]] == [["cpu", "8.0", "0.2"]] * 2
    assert shown[6].startswith("  cpu 81% of 8 (threshold 65%): 6 measured + ")
    cpus = done.stdout.partition("large-2 gives pods CPUs of their own:\n")[2].splitlines()
    assert [line.split(maxsplit=1) for line in map(str.rstrip, cpus[1:4])] == [
        ["demo/ledger", "0-3,32-35"],
        ["demo/stream", "16-31"],
        ["demo/statements", "shares 4-15,36-63"],
    ]
    assert cpus[4] == "demo/model wants 26 CPUs in whole cores. 40 CPUs are free, 24 of them in whole cores."
    gpus = done.stdout.partition("large-1 and large-3 give pods GPUs, and NICs next to them:\n")[2].splitlines()
    assert [re.split(r"\s{2,}", line.rstrip()) for line in gpus[1:5]] == [
        ["large-1", "demo/captions", "0 (50 %)", "-"],
        ["large-1", "demo/search", "0 (50 %)", "-"],
        ["large-1", "demo/tuning", "2, 3", "3 (0000:53:00.2), 4 (0000:54:00.2)"],
        ["large-3", "demo/pretraining", "0, 1, 2, 3, 4, 5, 6, 7", "-"],
    ]
    assert "  partition 4,5: bandwidth 200Gi, not 300Gi" in gpus
    reserved = shown_after(done.stdout, "reservation-demo keeps room for pods labelled app=pod-demo:")
    node = reserved[0][1].rpartition(" ")[2]
    assert reserved[:3] == [
        ["created", f"Available, with cpu 500m, memory 800Mi on {node}"],
        ["default/pod-demo-0", f"on {node}, uses cpu 200m, memory 400Mi of it"],
        ["deleted", "default/pod-demo-0 runs on"],
    ]
    claims = shown_after(done.stdout, "large-0 has two cards that pods claim, and one that can be partitioned:")
    assert claims[:5] == [
        ["demo/render-a", "card.example.com/large-0/card-0", "ran, and was deleted"],
        ["demo/render-b", "card.example.com/large-0/card-1", "runs"],
        ["demo/render-c", "card.example.com/large-0/card-0", "waited until demo/render-a was deleted"],
        ["demo/preview-a", "card.example.com/large-0/split-0-half-0", "runs on a half"],
        ["demo/preview-b", "card.example.com/large-0/split-0-half-1", "runs on a half"],
    ]
    assert "While demo/render-c waited: 0/100 nodes are available: 1 cannot allocate all claims, " in done.stdout
    gangs = shown_after(done.stdout, "9 nodes in three racks run gangs, as a whole or not at all:")
    assert [row[:2] for row in gangs[:4]] == [
        ["demo/training", "6"],
        ["demo/rendering", "4"],
        ["demo/indexing", "6"],
        ["demo/urgent", "4"],
    ]
    assert re.fullmatch(r"has to be in one rack: rack-([abc])-0, rack-\1-1, rack-\1-2", gangs[0][2])
    assert re.fullmatch(r"waited [\d.]+ s, until demo/rendering had ended", gangs[2][2])
    assert gangs[3][2] == "has 2 pods of demo/scavenger evicted"


def shown_after(output: str, title: str) -> list[list[str]]:
    """The rows of the table with that title, by cells."""
    lines = output.partition(f"{title}\n")[2].splitlines()
    return [re.split(r"\s{2,}", line.rstrip()) for line in lines[1:]]


@contextmanager
def kept(tmp_path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A demonstration that has come to its end and was told to stay; and its output."""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "--keep", "--burst", "0", *more],
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    try:
        wait(lambda: b"Ctrl-C ends it" in log.read_bytes() or process.poll() is not None)
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)], ids=lambda n: str(n)
)
def test_children_never_stay(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with kept(tmp_path) as (process, log):
        children = [int(pid) for pid in re.findall(r"process (\d+)", log.read_text())]
        assert len(children) == 2
        assert all(map(alive, children))
        process.send_signal(number)
        assert process.wait(DEADLINE) == code
    wait(lambda: not any(map(alive, children)))


@pytest.mark.slow
def test_a_child_that_dies_ends_the_demonstration(tmp_path: Path) -> None:
    with kept(tmp_path) as (process, log):
        cluster, scheduler = (int(pid) for pid in re.findall(r"process (\d+)", log.read_text()))
        os.kill(scheduler, signal.SIGKILL)
        assert process.wait(DEADLINE) == 1
        assert "scheduler ended with exit code -9" in log.read_text()
    wait(lambda: not alive(cluster))


def test_a_port_in_use_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr


@pytest.mark.slow
def test_what_it_suggests_works(tmp_path: Path) -> None:
    """The commands shown at the end; and a snapshot of the running scheduler explains the same offline."""
    with kept(tmp_path) as (_, log):
        suggested = [line.strip() for line in log.read_text().splitlines() if " --kubeconfig " in line]
        for command in suggested if KUBECTL else ():
            subprocess.run(command, shell=True, check=True, timeout=DEADLINE)
        koordsched = next(line.split() for line in suggested if "koordsched explain" in line)
        live = orjson.loads(subprocess.check_output([*koordsched, "-o", "json"], timeout=DEADLINE))
        assert live["message"].startswith(
            "0/100 nodes are available: 6 node(s) had untolerated taint(s), 94 Insufficient"
        )
        assert (live["advice"]["verdict"], len(live["nodes"])) == ("never", 100)
        (load,) = (line.split() for line in suggested if "koordsched load nodes" in line)
        report = orjson.loads(subprocess.check_output([*load, "-o", "json"], timeout=DEADLINE))
        assert [node["node"] for node in report["nodes"] if node["refuses"]] == ["busy-0"]
        server = koordsched[koordsched.index("--server") + 1]
        snapshot = tmp_path / "snapshot.json"
        with urlopen(f"{server}/debug/snapshot", context=ssl._create_unverified_context()) as answer:
            snapshot.write_bytes(answer.read())
        offline = [*koordsched[: koordsched.index("--server")], "-f", str(snapshot), "-o", "json"]
        # What it recorded is the running scheduler's alone.
        assert (live.pop("node"), live.pop("decision"), live.pop("rejection")["message"]) == ("", None, live["message"])
        assert orjson.loads(subprocess.check_output(offline, timeout=DEADLINE)) == live


@pytest.mark.slow
def test_what_a_demonstration_left_behind_goes_on(tmp_path: Path) -> None:
    """Also when it was killed; and no other demonstration begins there."""
    data, kubeconfig = tmp_path / "data", tmp_path / "again"
    with kept(tmp_path, "--data", str(data)) as (process, _):
        process.kill()
        process.wait()
    again = subprocess.run([*COMMAND, "--data", str(data)], capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert f"koordsched fakecluster --data {data}" in again.stderr
    server = subprocess.Popen(
        [*COMMAND[:-1], "fakecluster", "--data", str(data), "--kubeconfig-out", str(kubeconfig), "--port", "0"]
    )
    try:
        wait(lambda: kubeconfig.exists() and kubeconfig.read_bytes() != b"")
        command = [*COMMAND[:-1], "pending", "--kubeconfig", str(kubeconfig)]
        pending = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "demo/impossible" in pending.stdout, pending.stderr
    finally:
        server.kill()
        server.wait()
