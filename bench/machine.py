"""What a benchmark ran on: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec

import koordsched

_LIBRARIES = ("numpy", "msgspec", "orjson", "uvloop", "aiohttp", "httptools")


class Machine(msgspec.Struct):
    """`commit` ends in `+` where files differ from it; `load` is the load average before the run."""

    processor: str
    cores: int
    memory_mib: int
    system: str
    python: str
    koordsched: str
    commit: str
    libraries: dict[str, str]
    load: float


def describe() -> Machine:
    """This machine, now."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 0,
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        koordsched=koordsched.__version__,
        commit=_commit(),
        libraries={name: metadata.version(name) for name in _LIBRARIES},
        load=round(os.getloadavg()[0], 2),
    )


def version_of(executable: str) -> str:
    """What a program says of its version, in one line; empty if it does not, or is the interpreter of this one."""
    if executable == sys.executable:
        return ""
    try:
        said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.strip().partition("\n")[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    """The commit of the work tree that this file is in; empty outside of one."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "../koordsched", "../bench")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""
