"""Writes requirements.lock from pyproject.toml: `make lock`.

pip-compile chooses the versions and looks up the digests; this script puts what runs, what builds and what
develops into sections, so that the image can take the first one alone. With --keep the versions that are in the
lock stay, and only what is new is chosen.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = """\
# Every package, exactly, with the digests of its files: what make installs (pip checks them).
# Written by `make lock`. The image takes the first section alone.
"""
SECTIONS = ("run", "build", "develop")


def compiled(*options: str, source: Path) -> dict[str, str]:
    """Package name -> its lines, as pip-compile writes them."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock"
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--strip-extras"]
        command += ["--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--allow-unsafe"]
        subprocess.run([*command, *options, "--output-file", str(output), str(source)], check=True)
        text = output.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {entry.partition("==")[0]: without_comments(entry) for entry in entries if "==" in entry.split("\n")[0]}


def without_comments(entry: str) -> str:
    """The lines of an entry that say something to pip."""
    return "".join(line for line in entry.splitlines(keepends=True) if line.strip() and not line.startswith("#"))


def main() -> None:
    """Compiles the three sections and writes the file."""
    project = ROOT / "pyproject.toml"
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.txt"
        if "--keep" in sys.argv:
            kept.write_text("\n".join(re.findall(r"^\S+==\S+", LOCK.read_text(encoding="utf-8"), re.MULTILINE)))
        else:
            kept.touch()
        everything = compiled("--extra", "dev", "--constraint", str(kept), source=project)
        pins = Path(folder) / "pins.txt"
        pins.write_text("".join(f"{entry.split()[0]}\n" for entry in everything.values()))
        run = compiled("--constraint", str(pins), source=project)
        requirements = Path(folder) / "build.in"
        build_system = tomllib.loads(project.read_text(encoding="utf-8"))["build-system"]
        requirements.write_text("\n".join(build_system["requires"]))
        build = compiled("--constraint", str(kept), source=requirements)
    develop = {name: entry for name, entry in everything.items() if name not in run}
    parts = [HEADER]
    for section, entries in zip(SECTIONS, (run, build, develop), strict=True):
        parts.append(f"\n# --- to {section}\n")
        parts += [entries[name] for name in sorted(entries)]
    LOCK.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
