"""Files that are replaced as a whole."""

import os
from pathlib import Path

import pytest

from mesh.whole_files import replace_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "file"


def test_a_file_has_its_last_content_and_leaves_nothing_beside_it(path: Path) -> None:
    for content in (b"one and more", b"", b"two"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_only_its_owner_reads_it_whoever_read_the_one_before(path: Path) -> None:
    replace_file(path, b"open")
    path.chmod(0o644)
    replace_file(path, b"secret")
    assert path.stat().st_mode & 0o777 == 0o600


def test_who_reads_meanwhile_reads_to_the_end_what_was_there(path: Path) -> None:
    replace_file(path, b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new")
        assert reader.read() == b"old"


def test_a_disk_that_is_full_leaves_the_old_content_and_no_rest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]
