"""What Hadoop answers to a delete is heeded: it says no where others raise."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

from services.pipeline.storage.hadoop import HadoopFolder


class Files:
    """A file system that has one path, and refuses to delete it."""

    def __init__(self, there: str) -> None:
        self._there = there

    def delete(self, path: str, is_recursive: bool) -> bool:
        assert is_recursive
        return False

    def exists(self, path: str) -> bool:
        return path == self._there


class Folder(HadoopFolder):
    """Without a JVM."""

    def __init__(self, files: Any) -> None:
        self.root = "s3a://fruit"
        self._files = files

    def _path(self, path: str) -> str:
        return path


def test_a_delete_that_is_refused_is_an_error() -> None:
    with pytest.raises(OSError, match="s3a://fruit/day=1 could not be deleted: the store refused without saying why"):
        Folder(Files("day=1")).delete("day=1")


def test_nothing_is_deleted_where_nothing_is() -> None:
    Folder(Files("day=1")).delete("day=2")
