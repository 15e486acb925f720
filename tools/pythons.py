"""Runs a part of the tests on every Python from 3.11 to 3.14 that there is: `make test-all-pythons`.

The Python that runs this is left out: `make test` covers it. One that is not installed gets a line, no more. Each gets
an environment of its own, `.venv-3.x`, from requirements.lock; it is made again only when the lock changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
MINORS = range(11, 15)

SMOKE = (
    "tests/config",
    "tests/cluster",
    "tests/queue",
    "tests/framework",
    "tests/scheduling/test_core_cases.py",
    "tests/cli/test_daemon.py",
)
"""What is run: parsing, state, queue, evaluation, the scheduler on an embedded cluster, and the process with its loop,
sockets, signals and certificates."""

INSTALL_WITHIN = 600
TEST_WITHIN = 600
"""Seconds, per Python."""


class Failed(Exception):
    """What went wrong, for the user."""


def find(minor: int) -> Path | None:
    """The interpreter of version 3.`minor`: from the path, or the newest of pyenv's."""
    name = f"python3.{minor}"
    candidates = [Path(found)] if (found := shutil.which(name)) else []
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(versions.glob(f"3.{minor}.*/bin/{name}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((path for path in candidates if answers(path, minor)), None)


def answers(python: Path, minor: int) -> bool:
    """Whether it runs and is of this version: what pyenv puts on the path may be there and refuse."""
    try:
        done = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == str(minor).encode()


def run(what: str, command: list[str | Path], within: float) -> str:
    """What a command printed. Raises Failed."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=within, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: not within {within:.0f} s") from None
    if done.returncode:
        raise Failed(f"{what}:\n{(done.stdout + done.stderr).strip()[-4000:]}")
    return done.stdout


def environment(python: Path, minor: int) -> Path:
    """The interpreter in an environment that has everything in the lock. Raises Failed."""
    folder = ROOT / f".venv-3.{minor}"
    inside, stamp = folder / "bin" / "python", folder / ".locked"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return inside
    run("venv", [python, "-m", "venv", "--clear", folder], INSTALL_WITHIN)
    pip: list[str | Path] = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run("install", [*pip, "--only-binary=:all:", "--require-hashes", "-r", LOCK], INSTALL_WITHIN)
    stamp.write_text(digest)
    return inside


def test(python: Path, minor: int) -> str:
    """The last line of pytest. Raises Failed."""
    inside = environment(python, minor)
    workers = os.environ.get("WORKERS", "2")
    output = run(
        "tests",
        [inside, "-m", "pytest", "-q", "-n", workers, "-m", "not slow", "-p", "no:cacheprovider", *SMOKE],
        TEST_WITHIN,
    )
    return output.strip().splitlines()[-1]


def main() -> int:
    """1 if a Python that there is fails."""
    failed = False
    for minor in MINORS:
        label = f"python 3.{minor}"
        if minor == sys.version_info.minor:
            print(f"{label}: this one, see make test", flush=True)
        elif (python := find(minor)) is None:
            print(f"{label}: skipped, not installed", flush=True)
        else:
            began = time.monotonic()
            try:
                print(f"{label}: {test(python, minor)}", flush=True)
            except Failed as problem:
                failed = True
                print(f"{label}: FAILED after {time.monotonic() - began:.0f} s: {problem}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
