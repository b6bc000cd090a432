"""A log file that is kept within bounds, whatever others do to it."""

import errno
import os
from pathlib import Path
from unittest import mock

import orjson
import pytest

from services.sidecar.auditing.events import AuditType, audit_record
from services.sidecar.auditing.file_target import FileTarget
from services.sidecar.auditing.target_queue import NotWrittenError
from services.sidecar.auditing.text import AuditText


def file_target(path: Path, *, max_bytes: int = 10**9, archives: int = 2) -> FileTarget:
    return FileTarget(path, max_bytes=max_bytes, archives=archives)


def write(target: FileTarget, *topics: str) -> None:
    target.write([AuditText("s").line(audit_record(AuditType.PRODUCER, topic, 0, 0)) for topic in topics])


def topics(path: Path) -> list[str]:
    return [orjson.loads(line)["topic"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "sidecar-audit.log"


def test_lines_are_added_to_what_is_there(path: Path) -> None:
    for topic in ("a", "b"):
        target = file_target(path)
        write(target, topic)
        target.close(0)
    assert topics(path) == ["a", "b"]
    assert oct(path.stat().st_mode & 0o007) == "0o0"  # keys are not for everybody


def test_a_full_file_makes_way_and_the_oldest_goes(path: Path) -> None:
    target = file_target(path, max_bytes=1)
    for topic in ("a", "b", "c", "d"):
        write(target, topic)
    names = [path, path.with_name("sidecar-audit.log.1"), path.with_name("sidecar-audit.log.2")]
    assert [topics(name) for name in names] == [["d"], ["c"], ["b"]]
    assert len(list(path.parent.iterdir())) == 3
    target.close(0)


def test_without_archives_a_full_file_begins_again(path: Path) -> None:
    target = file_target(path, max_bytes=1, archives=0)
    write(target, "a")
    write(target, "b")
    assert (topics(path), len(list(path.parent.iterdir()))) == (["b"], 1)
    target.close(0)


def test_a_file_that_somebody_moved_away_is_made_anew(path: Path) -> None:
    target = file_target(path)
    write(target, "a")
    path.rename(path.with_name("theirs"))
    write(target, "b")
    assert (topics(path), topics(path.with_name("theirs"))) == (["b"], ["a"])
    target.close(0)


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    target = file_target(path)
    write(target, "a")
    real = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[: len(data) - 50])

    with mock.patch.object(os, "write", half), pytest.raises(NotWrittenError, match="No space left on device"):
        write(target, "b")
    assert topics(path) == ["a"]
    write(target, "b")
    assert topics(path) == ["a", "b"]
    target.close(0)


def test_a_folder_that_cannot_be_made_is_said_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    target = file_target(tmp_path / "log" / "sidecar-audit.log")
    with pytest.raises(NotWrittenError, match=r"sidecar-audit.log: "):
        write(target, "a")
