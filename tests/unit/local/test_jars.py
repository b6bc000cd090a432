"""The lock of Kafka's jars and the cache that it fills."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from local import jars
from local.jars import Jar, JarError


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jar:
    """A lock of one jar, whose content is `the jar`."""
    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"the jar").hexdigest())
    lock = tmp_path / "lock"
    lock.write_text(f"# a comment\n{jar}\n", encoding="ascii")
    monkeypatch.setattr(jars, "locked_jars", lambda: _read(lock))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return jar


_read = jars.locked_jars


def repository_with(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(jar: Jar, repository: Path) -> Path:
        repository.mkdir(parents=True, exist_ok=True)
        path = repository / jar.filename
        path.write_bytes(content)
        return path

    monkeypatch.setattr(jars, "_download", download)


def test_the_lock_names_kafka_and_its_log() -> None:
    artifacts = {(jar.artifact, jar.version) for jar in jars.locked_jars()}

    assert len(artifacts) == 45
    assert {("kafka_2.13", "4.4.0"), ("kafka-clients", "4.4.0"), ("log4j-slf4j-impl", "2.25.5")} <= artifacts


def test_what_is_missing_is_fetched_once(one_jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository_with(b"the jar", monkeypatch)

    assert list(jars.fetch_missing(tmp_path / "cache")) == [one_jar]
    assert list(jars.fetch_missing(tmp_path / "cache")) == []
    assert (tmp_path / "cache" / "jars" / "thing-1.0.jar").read_bytes() == b"the jar"


def test_another_jar_than_the_locked_one_is_refused(
    one_jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository_with(b"another jar", monkeypatch)

    with pytest.raises(JarError, match=r"org\.example:thing:1\.0: .* the lock says"):
        list(jars.fetch_missing(tmp_path / "cache"))

    assert jars.missing_jars(tmp_path / "cache") == [one_jar]
