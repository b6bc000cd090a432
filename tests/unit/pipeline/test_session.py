"""What a person reads when Spark is missing, or has failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from services.pipeline.__main__ import pipeline
from services.pipeline.commands import foreground
from services.pipeline.session import SessionError, check_java, first_line, our_sentence


def pretend_java(folder: Path, version: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n", encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.3", "25"])
def test_java_that_is_new_enough(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


def test_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SessionError, match=rf"Java 17 or newer of the system \({tmp_path}/bin/java is 11\)"):
        check_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionError, match="no java on PATH, no JAVA_HOME"):
        check_java()


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground, "EXTRA", ("no_such_package",))
    result = CliRunner().invoke(pipeline, ["run", "archive", "apples", "--to", "folder"])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith(
        "Error: no_such_package not installed: install the extra `pipeline`"
    )


def test_our_own_sentence_is_found_in_sparks_traces() -> None:
    failure = RuntimeError(
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "kafka_source.py", line 1, in latestOffset\n'
        "services.pipeline.positions.RecordsLostError: apples/0 begins at offset 3\n"
        "\tat org.apache.spark.Something(Something.scala:1)"
    )
    assert our_sentence(failure) == "apples/0 begins at offset 3"
    assert our_sentence(SessionError("no java")) == "no java"
    assert our_sentence(RuntimeError("first\nsecond")) is None
    assert first_line(RuntimeError("first\nsecond")) == "first"
