"""Files that are replaced or removed as a whole: a reader, after a crash too, finds the old content or the new one."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, *content: bytes) -> None:
    """When this returns, the pieces of the content are on disk, for its owner's eyes only. OSError from the disk.

    The folder is made if it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_files(paths: Iterable[Path]) -> None:
    """When this returns, no file of these names comes back after a crash. OSError from the disk."""
    for path in paths:
        path.unlink(missing_ok=True)
        if path.parent.exists():
            _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The new name of the file, too, has to be on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FileVersion = tuple[int, int, int]
"""Inode, time of change in nanoseconds, size in bytes."""


def file_version(path: Path) -> FileVersion | None:
    """Another value whenever the file has changed; None for a file that does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
