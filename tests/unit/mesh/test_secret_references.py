"""References to secrets are resolved, and what is missing is named without the secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.secret_references import LARGEST_FILE, UnresolvedReferenceError, resolve, resolve_property


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2")
    assert resolve("${env:BROKER_PASSWORD}") == "hunter2"


def test_from_a_file_without_the_end_of_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    assert resolve(f"${{file:{tmp_path}/password}}") == "hunter2"


@pytest.mark.parametrize("value", ["plain", "", "a ${env:HOME}", "${env:}", "${vault:x}", "${file:relative}"])
def test_what_is_no_reference_stays(value: str) -> None:
    assert resolve(value) == value


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("hunter2" * LARGEST_FILE)
    (tmp_path / "binary").write_bytes(b"hunter2\xff\xfe")
    for reference, said in (
        ("${env:NOT_THERE_AT_ALL}", "environment variable"),
        ("${env:EMPTY}", "is empty"),
        (f"${{file:{tmp_path}/empty}}", "is empty"),
        ("${file:/not/there}", "No such file"),
        (f"${{file:{tmp_path}}}", "directory"),
        (f"${{file:{tmp_path}/large}}", "larger than"),
        (f"${{file:{tmp_path}/binary}}", "not text"),
    ):
        with pytest.raises(UnresolvedReferenceError, match=said) as fault:
            resolve(reference)
        assert reference in str(fault.value)
        assert "hunter2" not in str(fault.value)


def test_what_a_property_refers_to_is_missed_by_the_propertys_name() -> None:
    with pytest.raises(UnresolvedReferenceError, match=r"^sasl\.password: \$\{file:/no/such\} can't be read"):
        resolve_property("sasl.password", "${file:/no/such}")
