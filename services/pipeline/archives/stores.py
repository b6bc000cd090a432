"""Where Parquet is, for those who read or write it without Spark: any URL that Hadoop knows, by pyarrow or fsspec.

Hadoop's settings of a store are not known here, so what the store wants to know stands in `options`, in the words of
the library that opens it: pyarrow's for `s3`, `s3a` (S3FileSystem) and `hdfs`, fsspec's for all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from services.pipeline.positions import StreamError

S3_SCHEMES = ("s3", "s3a", "s3n")
PARALLEL_REQUESTS = 16
LOCAL_SCHEMES = ("", "file")


class StoreError(StreamError):
    """The store can't be opened; the message says why."""


@dataclass(frozen=True, slots=True)
class Store:
    """A folder somewhere; plain data, to be pickled."""

    folder: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of values, true, false and JSON's objects are taken as such, all others as text; among them may be secrets."""

    def open(self) -> OpenStore:
        parts = urlsplit(self.folder)
        options = {name: _value(text) for name, text in self.options.items()}
        try:
            if parts.scheme in LOCAL_SCHEMES:
                return OpenStore(fs.LocalFileSystem(), parts.path.rstrip("/"))
            if parts.scheme in S3_SCHEMES:
                return OpenStore(fs.S3FileSystem(**options), f"{parts.netloc}{parts.path}".rstrip("/"))
            if parts.scheme == "hdfs":
                return OpenStore(
                    fs.HadoopFileSystem(parts.hostname or "default", parts.port or 0, **options), parts.path.rstrip("/")
                )
            import fsspec

            other, path = fsspec.core.url_to_fs(self.folder, **options)
            return OpenStore(fs.PyFileSystem(fs.FSSpecHandler(other)), path.rstrip("/"))
        except (OSError, ImportError, TypeError, ValueError) as error:
            raise StoreError(f"the folder {self.folder} can't be opened: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A folder; paths are below it."""

    files: fs.FileSystem
    root: str

    def infos(self, path: str = "", *, recursive: bool = True) -> list[fs.FileInfo]:
        """What is below `path`; nothing where there is no such folder."""
        return list(
            self.files.get_file_info(
                fs.FileSelector(f"{self.root}/{path}".rstrip("/"), recursive=recursive, allow_not_found=True)
            )
        )

    def names(self, path: str = "", *, recursive: bool = True) -> list[str]:
        """The files' paths, sorted."""
        return sorted(self.below(each) for each in self.infos(path, recursive=recursive) if each.is_file)

    def below(self, info: fs.FileInfo) -> str:
        return str(info.path).removeprefix(self.root).lstrip("/")

    def open(self, path: str) -> Any:
        """For reading at any place; FileNotFoundError."""
        return self.files.open_input_file(f"{self.root}/{path}")

    def create(self, path: str) -> Any:
        """For writing, with the folders that lead there; what stood there is replaced."""
        full = f"{self.root}/{path}"
        self.files.create_dir(full.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(full)

    def text(self, path: str) -> str:
        with self.open(path) as file:
            return bytes(file.read()).decode()


def in_parallel() -> ThreadPoolExecutor:
    """For questions to a store, which are mostly waiting."""
    return ThreadPoolExecutor(PARALLEL_REQUESTS, "archive")


def _value(text: str) -> Any:
    """A key of digits is text, too."""
    return json.loads(text) if text in ("true", "false") or text.startswith("{") else text
