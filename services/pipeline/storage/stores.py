"""Access to Parquet without Spark, for readers and writers: any URL that Hadoop knows, by pyarrow or fsspec.

Hadoop's settings of a store are not known here. So `options` holds the settings of the store, with the names of the
library that opens it. That is pyarrow for `s3`, `s3a` (S3FileSystem) and `hdfs`, and fsspec for all other schemes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from services.pipeline.kafka.positions import StreamError

S3_SCHEMES = ("s3", "s3a", "s3n")
PARALLEL_REQUESTS = 16
LOCAL_SCHEMES = ("", "file")


class StoreError(StreamError):
    """The store can't be opened; the message says why."""


@dataclass(frozen=True, slots=True)
class Store:
    """A folder in a store; plain data that can be pickled."""

    folder: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """A value that is true, false or a JSON object is parsed; all others stay text. Values may be secrets."""

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
    """An open folder; all paths are below it."""

    files: fs.FileSystem
    root: str

    def infos(self, path: str = "", *, recursive: bool = True) -> list[fs.FileInfo]:
        """Files and folders below `path`; none if the folder does not exist."""
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
        """Opens the file for reading with seek; FileNotFoundError."""
        return self.files.open_input_file(f"{self.root}/{path}")

    def create(self, path: str) -> Any:
        """Opens the file for writing and makes its folders; an existing file is replaced."""
        full = f"{self.root}/{path}"
        self.files.create_dir(full.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(full)

    def text(self, path: str) -> str:
        with self.open(path) as file:
            return bytes(file.read()).decode()


def in_parallel() -> ThreadPoolExecutor:
    """A thread pool for requests to a store, which mostly wait."""
    return ThreadPoolExecutor(PARALLEL_REQUESTS, "archive")


def _value(text: str) -> Any:
    """Parses true, false and JSON objects; anything else stays text, even if it has digits only."""
    return json.loads(text) if text in ("true", "false") or text.startswith("{") else text
