"""A folder through Hadoop, as Spark sees it: for the code that writes there."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from services.pipeline.kafka.positions import Position
from services.pipeline.storage.layout import CHECKPOINT, last_batch, position_of

UNFINISHED = ".unfinished"


class HadoopFolder:
    """A folder of any store that Hadoop knows; paths are below it. Errors are py4j's."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._jvm: Any = session._jvm
        self.root = folder.rstrip("/")
        self._files = self._path("").getFileSystem(session._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}")

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def matching(self, pattern: str) -> list[str]:
        """Files and folders that match, sorted; each path has as many parts as the pattern."""
        return [path for path, _size in self.sizes(pattern)]

    def sizes(self, pattern: str) -> list[tuple[str, int]]:
        """Like `matching`, with the size of each file in bytes; 0 for folders."""
        depth = pattern.count("/") + 1
        found = [
            ("/".join(str(each.getPath().toUri().getPath()).split("/")[-depth:]), int(each.getLen()))
            for each in self._files.globStatus(self._path(pattern)) or ()
        ]
        return sorted(found)

    def read(self, path: str) -> str:
        stream = self._files.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Writes the whole text; if the process is killed meanwhile, no file appears at `path`."""
        stream = self._files.create(self._path(path + UNFINISHED), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._delete(path)
        self._rename(path + UNFINISHED, path)

    def committed_batch(self) -> int | None:
        """The last batch that the stream with this checkpoint has committed."""
        return last_batch(self.matching(f"{CHECKPOINT}/commits/*"))

    def committed_position(self) -> Position:
        """The position of the stream with this checkpoint, from the last batch that Spark has committed."""
        done = self.committed_batch()
        return position_of(self.read(f"{CHECKPOINT}/offsets/{done}")) if done is not None else {}

    def unfinished_batch(self) -> int | None:
        """The batch that the stream with this checkpoint has planned and not committed."""
        planned = last_batch(self.matching(f"{CHECKPOINT}/offsets/*"))
        return planned if planned != self.committed_batch() else None

    def make(self, path: str) -> None:
        self._files.mkdirs(self._path(path))

    def move(self, path: str, to: str) -> None:
        """Moves a file to a path that no other file ever has: a file at `to` comes from an attempt that was cut off."""
        if self.exists(to):
            self._delete(path)
        else:
            self._rename(path, to)

    def delete(self, path: str) -> None:
        """Deletes the path with all that is below it; does nothing if the path does not exist."""
        self._delete(path)

    def _rename(self, path: str, to: str) -> None:
        if not self._files.rename(self._path(path), self._path(to)):
            raise OSError(f"{self.root}/{path} could not be renamed to {to}")

    def _delete(self, path: str) -> None:
        there = self._path(path)
        if not self._files.delete(there, True) and self._files.exists(there):
            raise OSError(f"{self.root}/{path} could not be deleted: the store refused without saying why")
