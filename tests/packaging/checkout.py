"""A clean clone of the repository, and a shell in it that has a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDPOINT = ":10259"
"""What documents call the port of the scheduler's endpoints."""


def clone(directory: Path) -> Path:
    """What a clone would have, with the changes that are not committed yet."""
    target = directory / "clone"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(ROOT / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name, follow_symlinks=False)
    return target


def install(checkout: Path, port: int) -> Path:
    """What `make venv` leaves, without its packages: make finds nothing to install. Returns its bin.

    pip takes nothing from its index. `koordsched` serves at a port of its own; the output of background jobs
    is in a file.
    """
    binaries = checkout / ".venv" / "bin"
    binaries.mkdir(parents=True)
    write_program(
        binaries / "koordsched",
        f"""
export PYTHONPATH={checkout}:{checkout}/.venv/site
case "$1 $*" in
  fakecluster\\ *) exec > {checkout.parent}/cluster.log 2>&1 ;;
  run\\ *--write-config-to*) ;;
  run\\ *) set -- "$@" --bind-address 127.0.0.1 --secure-port {port}; exec > {checkout.parent}/scheduler.log 2>&1 ;;
esac
exec {sys.executable} -m koordsched "$@"
""",
    )
    (binaries / "python").symlink_to(sys.executable)
    options = f"--no-deps --no-build-isolation --no-index --target {checkout}/.venv/site"
    write_program(binaries / "pip", f'\nexec {sys.executable} -m pip "$@" {options}\n')
    for stamp in (".locked", ".installed"):
        (binaries.parent / stamp).touch()
    return binaries


def write_program(path: Path, script: str) -> None:
    """A program of the shell's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh{script}")
    path.chmod(0o755)


def docker(binaries: Path, record: Path) -> None:
    """A docker that only notes what it is told to build and to push."""
    write_program(binaries / "docker", f'\necho "$@" >> {record}\n')


def environment(*binaries: Path, kubeconfig: str) -> dict[str, str]:
    """Of a shell that finds these programs before others, and no other koordsched; not of one within make."""
    path = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if folder and not (Path(folder) / "koordsched").exists()
    ]
    foreign = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if name not in foreign},
        "PATH": os.pathsep.join([*map(str, binaries), *path]),
        "KUBECONFIG": kubeconfig,
    }
