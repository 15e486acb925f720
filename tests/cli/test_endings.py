"""How commands end that do not get to their own end."""

import errno
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.clusters import run

DEADLINE = 30.0

REFUSED = {
    "no such command": ["mistyped"],
    "no such command of a group": ["quota", "mistyped"],
    "no such option": ["run", "--mistyped"],
    "a missing argument": ["explain"],
    "a bad value": ["run", "--secure-port=x"],
    "options that exclude each other": ["replay", "x", "--pod=p", "--config=c"],
    "no configuration": ["run", "--config=/nowhere"],
    "no configuration to check": ["check-config", "/nowhere"],
    "no file": ["simulate", "-f", "/nowhere"],
    "no file of a plugin's command": ["numa", "-f", "/nowhere"],
    "no journal": ["replay", "/nowhere"],
    "no server": ["explain", "p", "--server=http://127.0.0.1:1"],
    "a bad option of the embedded server": ["fakecluster", "--omit=nothing"],
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED.keys())
def test_errors_look_the_same(arguments):
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert len(re.findall("^error: .", result.stderr, re.MULTILINE)) == 1
    assert re.search("^(Error|koordsched): |Traceback", result.stderr, re.MULTILINE) is None
    before = result.stderr.partition("error: ")[0]
    assert before.startswith("Usage: ") if result.exit_code == 2 else before == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulat"], "error: No such command 'simulat'. Did you mean 'simulate'?\n"),
        (["qouta"], "error: No such command 'qouta'. Did you mean 'quota'?\n"),
        (["checkconfig"], "error: No such command 'checkconfig'. Did you mean 'check-config'?\n"),
        (["xyz"], "error: No such command 'xyz'.\n"),
        (["quota", "tre"], "error: No such command 'tre'. Did you mean 'tree'?\n"),
    ],
)
def test_a_mistyped_command_is_guessed(arguments, said):
    result = run(*arguments)
    assert (result.exit_code, result.stderr.endswith(f"\n{said}")) == (2, True), result.stderr


def opened(fifo):
    """A writer's end, once there is a reader."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > end:
                raise
            time.sleep(0.02)


@pytest.fixture
def interrupts_heard():
    """A shell lets what it starts in the background ignore SIGINT, and what that starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_heard")
@pytest.mark.parametrize("arguments", [["simulate", "-f"], ["explain", "p", "-f"], ["numa", "-f"], ["check-config"]])
def test_ctrl_c_ends_a_command_as_shells_expect(tmp_path, arguments):
    fifo = tmp_path / "objects.yaml"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "koordsched", *arguments, str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            writer = opened(fifo)
            process.send_signal(signal.SIGINT)
            os.close(writer)  # a signal that came just before a read is noticed when the read ends
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert (process.returncode, out, err.strip()) == (130, "", "")
