"""What `make audit` says about locked packages, with a program in the place of pip-audit that prints given results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.advisories import MAY_BE_UNCHECKED, UNCHECKED, WEAK, audit, exit_code

SAFE: dict[str, Any] = {"name": "uv", "version": "1", "vulns": []}
SKIPPED: dict[str, Any] = {"name": "uv", "skip_reason": "Dependency not found on PyPI and could not be audited: uv (1)"}
VULNERABLE: dict[str, Any] = {
    "name": "grpcio",
    "version": "1.2",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-2026-1"], "fix_versions": ["1.3"]}, {"id": "PYSEC-2"}],
}


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    for name in ("uv.txt", "dev.txt"):
        (tmp_path / name).touch()
    return tmp_path


def program(first: object, all_of_them: object, error: str = "") -> list[str]:
    """Prints `first` if it is asked about one lock, else `all_of_them`; a text as it stands, other things as JSON."""
    texts = [each if isinstance(each, str) else json.dumps({"dependencies": each}) for each in (first, all_of_them)]
    script = f"import sys; print({texts!r}[sys.argv.count('--requirement') - 1]); sys.exit({error!r})"
    return [sys.executable, "-c", script]


@pytest.mark.parametrize("first", [[SKIPPED], "Traceback", "[]", ""])
def test_packages_that_nobody_could_check_are_no_success(
    locks: Path, first: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(locks, program(first, [VULNERABLE], "ConnectionError: the name is unknown")) == UNCHECKED
    said = capsys.readouterr().out
    assert "NOT CHECKED: the advisory source was not reachable" in said
    assert "about uv" in said if first == [SKIPPED] else "the name is unknown" in said


def test_a_source_that_goes_away_is_said_too(locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(locks, program([SAFE], "", "ConnectionError: reset")) == UNCHECKED
    assert "NOT CHECKED: the advisory source went away (ConnectionError: reset)" in capsys.readouterr().out


def test_a_weakness_is_named_with_its_remedy_and_fails(locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {"name": "own-package", "skip_reason": "not found"}
    assert audit(locks, program([SAFE], [SAFE, VULNERABLE, unknown])) == WEAK
    assert capsys.readouterr().out.splitlines() == [
        "advisories: grpcio 1.2: PYSEC-1, CVE-2026-1; fixed in 1.3",
        "advisories: grpcio 1.2: PYSEC-2; no fixed version yet",
        "advisories: not checked, because the registry does not know them: own-package",
        "advisories: 2 packages checked, 2 known weaknesses",
    ]


def test_without_weaknesses_the_audit_succeeds(locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(locks, program([SAFE], [SAFE])) == 0
    assert capsys.readouterr().out == "advisories: 1 packages checked, 0 known weaknesses\n"


def test_packages_may_be_unchecked_where_the_caller_says_so_and_never_weak() -> None:
    assert [exit_code(found, [MAY_BE_UNCHECKED]) for found in (0, WEAK, UNCHECKED)] == [0, WEAK, 0]
    assert [exit_code(found, []) for found in (0, WEAK, UNCHECKED)] == [0, WEAK, UNCHECKED]
