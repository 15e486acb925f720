"""`make audit`: a finding fails, a clean report passes, and whatever kept it from asking is said, quickly."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
assert _SPEC is not None
audit: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["audit"] = audit
assert _SPEC.loader is not None
_SPEC.loader.exec_module(audit)

CLEAN = {"name": "yarl", "version": "1.0", "vulns": []}
FLAW = {"name": "aiohttp", "version": "3.9.0", "vulns": [{"id": "PYSEC-2024-24", "fix_versions": ["3.9.2"]}]}
UNFIXED = {"name": "idna", "version": "3.0", "vulns": [{"id": "GHSA-1", "fix_versions": []}]}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}


def script(*packages: dict[str, Any]) -> str:
    """A program that reports so about the packages, as pip-audit does: 1 if there is a finding."""
    report = json.dumps({"dependencies": packages, "fixes": []})
    return f"print({report!r}); raise SystemExit({int(any(package.get('vulns') for package in packages))})"


def refuse(message: str) -> str:
    return f"import sys; print({message!r}, file=sys.stderr); raise SystemExit(1)"


UNREACHABLE = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded\n"
    "pip_audit._service.interface.ConnectionError: Could not connect to PyPI's vulnerability feed"
)


@pytest.mark.parametrize(
    "program, code, said",
    [
        pytest.param(script(CLEAN), 0, "audit: 0 vulnerabilities in 1 packages (https://pypi.org)", id="clean"),
        pytest.param(script(CLEAN, FLAW), 1, "audit: aiohttp 3.9.0: PYSEC-2024-24, fixed in 3.9.2", id="finding"),
        pytest.param(script(UNFIXED), 1, "audit: idna 3.0: GHSA-1, not fixed yet", id="no fix"),
        pytest.param(script(CLEAN, UNKNOWN), 0, "audit: not known there: ours", id="one unknown"),
        pytest.param(script(UNKNOWN), 0, "SKIPPED, nothing was audited: https://pypi.org knows none", id="all unknown"),
        pytest.param(refuse(UNREACHABLE), 0, "SKIPPED, nothing was audited: https://pypi.org cannot", id="unreachable"),
        pytest.param("import time; time.sleep(60)", 0, "did not answer within 1 s", id="silent"),
        pytest.param(refuse("unrecognized arguments: --format"), 2, "unrecognized arguments", id="broken"),
        pytest.param("print('{}')", 2, "audit: ", id="another format"),
    ],
)
def test_outcomes(
    program: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AUDIT_SERVICE", raising=False)
    monkeypatch.setattr(audit, "command", lambda service: [sys.executable, "-c", program])
    monkeypatch.setattr(audit, "LIMIT", 1.0 if "sleep" in program else 60.0)
    assert audit.main() == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_an_unknown_service_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AUDIT_SERVICE", "nvd")
    assert audit.main() == 2
    assert "one of pypi, osv" in capsys.readouterr().err


def test_everything_in_the_lock_is_asked_about() -> None:
    command = audit.command("osv")
    assert command[command.index("--requirement") + 1] == str(ROOT / "requirements.lock")
    assert "--disable-pip" in command  # nothing of what is audited is run


def test_continuous_integration_audits() -> None:
    assert "make audit || failed=1" in (ROOT / ".ci" / "run").read_text().splitlines()
