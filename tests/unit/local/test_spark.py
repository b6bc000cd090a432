"""When a mesh on this machine has a pipeline, and what is said when it has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from local import cli, spark
from local.layout import Layout


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Java of this machine: of version 17, until a test writes another one."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    install(program, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(spark, "EXTRA", ())
    return program


def install(program: Path, version: str) -> None:
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n", encoding="utf-8")
    program.chmod(0o755)


def test_spark_runs_on_the_java_of_the_system(java: Path) -> None:
    assert spark.why_not() == ""


def test_a_java_that_is_too_old_is_none(java: Path) -> None:
    install(java, "11.0.2")
    assert "needs a Java 17 or newer" in spark.why_not()


def test_without_the_extra_it_is_said_how_to_install_it(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "EXTRA", ("no_such_package_at_all",))
    assert "make run PIPELINE=1" in spark.why_not()


def test_who_asks_for_a_pipeline_that_cannot_run_is_told_so(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(java, "11.0.2")
    result = CliRunner().invoke(cli.main, ["up", "--pipeline"])
    assert result.exit_code == 2
    assert "--pipeline: Spark needs a Java 17" in result.output


@pytest.mark.parametrize("has_pipeline", [True, False])
def test_a_mesh_has_the_row_where_it_can_run(has_pipeline: bool, tmp_path: Path) -> None:
    rows = {row.name for row in Layout(state=tmp_path, pipeline=has_pipeline).services()}
    assert ("pipeline" in rows) is has_pipeline
