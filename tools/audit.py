"""Looks for known vulnerabilities in everything that requirements.lock names: `make audit`.

Ends with 1 if there is one, and with 0 and a line that says so if nobody could be asked: a vulnerability service that
cannot be reached, or does not know the packages (a mirror of an index has the files, not the advisories), is no reason
for a build to fail, nor to claim that all is well. AUDIT_SERVICE=osv asks osv.dev instead of PyPI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"

SERVICES = {"pypi": "https://pypi.org", "osv": "https://api.osv.dev"}
ANSWER_WITHIN = 10
"""Seconds that a single request may take."""
LIMIT = 180.0
"""Seconds for all of it."""

UNREACHABLE = ("ConnectionError", "ProxyError", "ServiceError", "Timeout", "timed out")
"""What pip-audit's complaint has in it when nobody answers."""


class Finding(NamedTuple):
    """A vulnerability of a package that is in the lock."""

    package: str
    version: str
    identifier: str
    fixed_in: list[str]

    def __str__(self) -> str:
        fixed = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "not fixed yet"
        return f"{self.package} {self.version}: {self.identifier}, {fixed}"


def command(service: str) -> list[str]:
    """pip-audit over the lock as it stands: nothing is resolved, installed or built."""
    return [
        *(sys.executable, "-m", "pip_audit"),
        *("--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--no-deps"),
        *("--vulnerability-service", service, "--timeout", str(ANSWER_WITHIN)),
        *("--format", "json", "--progress-spinner", "off"),
    ]


def judged(report: dict[str, Any]) -> tuple[list[Finding], list[str], int]:
    """The findings, the packages that the service does not know, and how many it does."""
    findings: list[Finding] = []
    unknown: list[str] = []
    known = 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unknown.append(package["name"])
            continue
        known += 1
        name, version = package["name"], package["version"]
        findings += [Finding(name, version, found["id"], found["fix_versions"]) for found in package["vulns"]]
    return findings, unknown, known


def skipped(why: str) -> int:
    """Says that nothing was audited."""
    print(f"audit: SKIPPED, nothing was audited: {why}")
    return 0


def main() -> int:
    """The exit code."""
    service = os.environ.get("AUDIT_SERVICE", "pypi")
    if service not in SERVICES:
        print(f"audit: AUDIT_SERVICE={service}: one of {', '.join(SERVICES)} is needed", file=sys.stderr)
        return 2
    address = SERVICES[service]
    try:
        done = subprocess.run(command(service), capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return skipped(f"{address} did not answer within {LIMIT:.0f} s")
    try:
        findings, unknown, known = judged(json.loads(done.stdout))
    except (json.JSONDecodeError, KeyError):
        lines = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"]
        if any(sign in done.stderr for sign in UNREACHABLE):
            return skipped(f"{address} cannot be reached ({lines[-1][:200]})")
        print(f"audit: {done.stderr}", file=sys.stderr)
        return 2
    if not known:
        return skipped(f"{address} knows none of the {len(unknown)} packages; is it a mirror without advisories?")
    for finding in findings:
        print(f"audit: {finding}")
    print(f"audit: {len(findings)} vulnerabilities in {known} packages ({address})")
    if unknown:
        print(f"audit: not known there: {', '.join(unknown)}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
