"""kubectl, where there is one, and an embedded API server for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
DEADLINE = 30.0


def kubectl(*arguments: str) -> str:
    """What kubectl prints. Fails with its complaint."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def api_server(folder: Path, nodes: int = 2) -> Iterator[str]:
    """Runs one; gives its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "koordsched", "fakecluster", "--nodes", str(nodes)]
    process = subprocess.Popen([*command, "--kubeconfig-out", str(kubeconfig)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + DEADLINE
        while not (kubeconfig.exists() and kubeconfig.stat().st_size):
            assert process.poll() is None, "the API server ended"
            assert time.monotonic() < end, "the API server does not start"
            time.sleep(0.02)
        yield str(kubeconfig)
    finally:
        process.terminate()
        process.wait(DEADLINE)
