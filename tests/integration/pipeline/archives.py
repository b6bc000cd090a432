"""An archive under test: written by the job, read by pyarrow, which knows nothing of Spark."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet
from pyspark.sql import SparkSession

from services.pipeline.archives import job as archive
from services.pipeline.archives.compaction import CompactionRules, compact
from services.pipeline.archives.folder import FolderArchive
from services.pipeline.driver_protocol.acceptances import Acceptances
from services.pipeline.kafka.positions import Span
from services.pipeline.kafka.source import GATEWAY, KafkaSource
from services.pipeline.storage.hadoop import HadoopFolder
from services.pipeline.storage.layout import CHECKPOINT
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import Content, Orchard, Place

HOLDS_S = 200.0
JOIN_S = 60.0
OFTEN = timedelta(milliseconds=100)


class Archive:
    """A folder, and the job that writes it."""

    def __init__(self, session: SparkSession, bootstrap: str, folder: Path) -> None:
        self._session = session
        self._bootstrap = bootstrap
        self.folder = folder

    def at(self, folder: Path) -> Archive:
        """The same job, elsewhere."""
        return Archive(self._session, self._bootstrap, folder)

    def run(
        self,
        *topics: str,
        max_batch_rows: int = 10_000,
        accept_loss: bool = False,
        accept_loss_of: tuple[str, ...] = (),
        rules: CompactionRules | None = None,
    ) -> archive.Written:
        source = replace(self._source(topics, max_batch_rows, accept_loss), accept_loss_of=accept_loss_of)
        return archive.run(self._session, source, str(self.folder), rules=rules)

    def run_until(
        self,
        condition: Callable[[], bool],
        *topics: str,
        every: timedelta | None = OFTEN,
        rules: CompactionRules | None = None,
        acceptances: Acceptances | None = None,
    ) -> archive.Written:
        """A run, continuous unless `every` is None, that is told to stop when `condition` holds."""
        stopping = threading.Event()
        source = self._source(topics, 10_000, False)
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(
                archive.run,
                self._session,
                source,
                str(self.folder),
                every=every,
                stopping=stopping,
                rules=rules,
                compact_every=OFTEN,
                acceptances=acceptances,
            )
            try:
                wait_until(lambda: job.done() or condition(), "the archive holds what it should", HOLDS_S)
            finally:
                stopping.set()
            return job.result(JOIN_S)

    def compact(self, rules: CompactionRules) -> int:
        """By hand, beside no job; returns the number of days."""
        return compact(self._session, HadoopFolder(self._session, str(self.folder)), rules)

    def _source(self, topics: tuple[str, ...], max_batch_rows: int, accept_loss: bool) -> KafkaSource:
        return KafkaSource(
            topics=topics,
            clusters={GATEWAY: {"bootstrap.servers": self._bootstrap}},
            max_batch_rows=max_batch_rows,
            stall_timeout_s=10.0,
            request_timeout_s=10.0,
            accept_loss=accept_loss,
        )

    def forget_last_commit(self) -> None:
        """As after a kill between the write of a batch and the note that it is written."""
        commits = self.folder / CHECKPOINT / "commits"
        last = max((each for each in commits.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)

    def records(self, generation: int = 0) -> dict[Place, Content]:
        return read_back(self.folder, generation)

    def records_by_the_reader(self) -> dict[Place, Content]:
        return read_by_the_reader(self.folder)

    def files(self, day: str) -> list[Path]:
        return sorted(self.folder.glob(f"day={day}/batch=*/*.parquet"))


@dataclass(frozen=True, slots=True)
class TwoDays:
    """Records of two days, archived in several batches; those who change the folder take a copy of it."""

    orchard: Orchard
    """It may have grown since."""
    records: Mapping[Place, Content]
    """Those that are archived."""
    archive: Archive

    def copied_to(self, folder: Path) -> Archive:
        shutil.copytree(self.archive.folder, folder)
        return self.archive.at(folder)


def read_back(folder: Path, generation: int | None = None) -> dict[Place, Content]:
    """What a reader finds of one generation, or of all; each offset once, in the folder of its day."""
    if not folder.exists():
        return {}
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(folder, partitioning="hive").to_table().to_pylist()
    rows = [row for row in rows if generation in (None, row["generation"])]
    times = Counter(Place(row["topic"], row["partition"], row["offset"]) for row in rows)
    assert not [place for place, count in times.items() if count > 1], "offsets that stand there more than once"
    assert all(row["day"] == row["timestamp"].date().isoformat() for row in rows)
    return {Place(row["topic"], row["partition"], row["offset"]): _content(row) for row in rows}


def read_by_the_reader(folder: Path | str) -> dict[Place, Content]:
    """What those find who copy records."""
    return dict(reading(folder))


def reading(folder: Path | str) -> Iterator[tuple[Place, Content]]:
    """Record by record, as those read who copy; in the order of their offsets, each once."""
    archived = FolderArchive(str(folder))
    extents = archived.extents(archived.topics())
    spans = [Span(topic, partition, log.start, log.end) for (topic, partition), log in extents.items()]
    positions: dict[tuple[str, int], int] = {}
    with archived.origin.reader() as reader:
        for batch in reader.read(spans):
            for record in batch.records if batch else ():
                partition = record.topic(), record.partition()
                assert record.offset() >= positions.get(partition, 0), "in order, and each once"
                positions[partition] = record.offset() + 1
                headers = tuple(record.headers() or ())
                content = Content(record.key(), record.value(), headers, record.timestamp()[1])
                yield Place(*partition, record.offset()), content


def places_in_file(path: Path) -> list[Place]:
    """In the file's own order."""
    rows = pyarrow.parquet.read_table(path, columns=["topic", "partition", "offset"], partitioning=None).to_pylist()
    return [Place(**row) for row in rows]


def _content(row: dict[str, Any]) -> Content:
    since_epoch = row["timestamp"] - datetime.fromtimestamp(0, UTC)
    return Content(
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"]),
        timestamp_ms=since_epoch // timedelta(milliseconds=1),
    )
