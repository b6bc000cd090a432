"""What a person reads when Spark is missing, or has failed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from services.pipeline.__main__ import pipeline
from services.pipeline.commands import foreground
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark import class_data_sharing
from services.pipeline.spark.session import (
    SessionError,
    check_java,
    first_line,
    options_of,
    our_sentence,
    packed,
    worker_environment,
)


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
        "services.pipeline.kafka.positions.RecordsLostError: apples/0 begins at offset 3\n"
        "\tat org.apache.spark.Something(Something.scala:1)"
    )
    assert our_sentence(failure) == "apples/0 begins at offset 3"
    assert our_sentence(SessionError("no java")) == "no java"
    assert our_sentence(RuntimeError("first\nsecond")) is None
    assert first_line(RuntimeError("first\nsecond")) == "first"


def test_here_all_of_spark_stays_on_the_loopback_and_a_failed_task_has_a_second_try() -> None:
    settings = PipelineSettings()
    assert settings.master == "local[*,2]"
    options = options_of(settings)
    assert (options["spark.driver.host"], options["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


def test_pythons_that_spark_starts_here_are_this_one_and_pass_by_the_zip_that_spark_puts_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = worker_environment({"PYTHONPATH": str(tmp_path)})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"/spark/python/lib/pyspark.zip:{tmp_path}")
    code = "import os, sys; print(sys.executable, os.environ['OPENBLAS_NUM_THREADS'], *sys.path, sep='\\n')"
    run = subprocess.run([environment["PYSPARK_PYTHON"], "-c", code], capture_output=True, text=True, check=True)
    executable, threads_of_matrices, *path = run.stdout.splitlines()
    assert (executable, threads_of_matrices) == (sys.executable, "1")
    assert str(tmp_path) in path
    assert not [each for each in path if "pyspark" in each]


def test_on_a_cluster_spark_finds_its_own_address_unless_it_is_told() -> None:
    on_cluster = options_of(PipelineSettings(master="yarn"))
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & on_cluster.keys()
    told = options_of(PipelineSettings(master="yarn", driver_host="driver.example", driver_bind_address="0.0.0.0"))
    assert (told["spark.driver.host"], told["spark.driver.bindAddress"]) == ("driver.example", "0.0.0.0")


def test_sparks_own_properties_go_before_ours() -> None:
    properties = {"spark.executor.memory": "4g", "spark.sql.shuffle.partitions": "64"}
    options = options_of(PipelineSettings(spark_properties=properties))
    assert properties.items() <= options.items()


def test_secrets_of_kafkas_clients_are_secrets_to_spark() -> None:
    secret = re.compile(options_of(PipelineSettings())["spark.redaction.regex"])
    names = ["sasl.password", "ssl.key.pem", "ssl.key.password", "sasl.oauthbearer.client.secret"]
    assert all(secret.search(f"kafka.0.{name}") for name in [*names, "sasl.oauthbearer.config"])
    assert not any(secret.search(f"kafka.0.{name}") for name in ["bootstrap.servers", "sasl.username", "topics"])


def test_executors_get_what_their_tasks_import(tmp_path: Path) -> None:
    with zipfile.ZipFile(packed()) as shipped:
        names = set(shipped.namelist())
        shipped.extractall(tmp_path)
    assert {"mesh/__init__.py", "services/__init__.py", "services/pipeline/kafka/source.py"} <= names
    assert not [name for name in names if name.startswith(("services/control", "services/gateway", "tests"))]
    code = "import mesh.topics, services.pipeline.kafka.reader as reading; print(reading.__file__)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip().startswith(str(tmp_path))


def test_the_archive_of_classes_is_used_where_it_has_been_made(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    assert class_data_sharing.options_with(archive) == ""
    archive.touch()
    options = options_of(PipelineSettings(), class_data_sharing.options_with(archive))
    assert f"-XX:SharedArchiveFile={archive}" in options["spark.driver.extraJavaOptions"].split()
