"""The data of Spark's tasks, and the phases of their reading: first the archive, then Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field

from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError, SetbackError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.offsets import Held, left
from services.pipeline.copying.origins import Origin, RecordReader
from services.pipeline.copying.routes import Route
from services.pipeline.copying.transforms import Shape
from services.pipeline.kafka.positions import Place, RecordsLostError, Span, StreamError, UnreachableError
from services.pipeline.kafka.reader import SpanReader


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of a lane, from the plan."""

    place: Place
    """The partition, with the topic's name for clients."""
    route: Route
    note: Note
    held: Held
    target_partitions: int
    batch_bytes: int
    """The most bytes of one batch that the target accepts."""


@dataclass(frozen=True, slots=True)
class LaneTask:
    """One run of a lane. Plain data, no secrets."""

    number: int
    transactional_id: str
    source: str
    target: str
    """`source` and `target` are names of clusters."""
    parts: tuple[Part, ...]
    copy: bytes
    """The serialized ReplayToTopic."""
    rate: float
    """The lane's share of the rate; 0: no limit."""
    timeout_s: float
    stall_timeout_s: float

    def to_topic(self) -> replays.ReplayToTopic:
        return replays.ReplayToTopic.FromString(self.copy)


@dataclass(frozen=True, slots=True)
class Access:
    """The access to clusters and archive; contains secrets."""

    clusters: Mapping[str, Mapping[str, str]] = field(repr=False)
    """librdkafka's properties by cluster name."""
    archive: Origin | None


@dataclass(frozen=True, slots=True)
class Phase:
    """Spans of one reader."""

    reader: AbstractContextManager[RecordReader]
    parts: Mapping[Place, Part]
    """By topic and partition, with the names of this reader."""
    spans: tuple[Span, ...]
    is_kafka: bool


def phases(task: LaneTask, notes: Mapping[Place, Note], access: Access) -> Iterator[Phase]:
    """The spans to read after these notes."""
    only = task.to_topic().archive == replays.REPLAY_ARCHIVE_ONLY
    archived: dict[Span, Part] = {}
    in_kafka: dict[Span, Part] = {}
    for part in task.parts:
        todo = left(part.place, notes[part.place], part.held, part.route.source_topic, archive_only=only)
        archived |= {todo.archived: part} if todo.archived else {}
        in_kafka |= {todo.in_kafka: part} if todo.in_kafka else {}
    if archived and access.archive is not None:
        yield _phase(access.archive.reader(), archived, is_kafka=False)
    if in_kafka:
        reader = SpanReader(access.clusters[task.source], task.stall_timeout_s)
        yield _phase(closing(reader), in_kafka, is_kafka=True)


def _phase(reader: AbstractContextManager[RecordReader], found: Mapping[Span, Part], *, is_kafka: bool) -> Phase:
    parts = {(span.topic, span.partition): part for span, part in found.items()}
    return Phase(reader, parts, tuple(found), is_kafka)


def judged(error: StreamError, task: LaneTask) -> CopyError | SetbackError:
    """Converts an error of a reader to an error of the copy."""
    if isinstance(error, UnreachableError):
        return SetbackError(str(error))
    if isinstance(error, RecordsLostError) and task.to_topic().archive != replays.REPLAY_ARCHIVE_ONLY:
        if any(part.held.archived is not None for part in task.parts):
            return SetbackError(f"{error}; the next attempt looks for it in the archive")
        return CopyError(f"{error}; a replay from an archive, or of what is left, may help")
    return CopyError(str(error))


def count_lane(task: LaneTask, access: Access) -> dict[Place, int]:
    """The number of records of each partition that would be copied. Writes nothing. CopyError, SetbackError."""
    try:
        return _counted(task, access)
    except StreamError as error:
        raise judged(error, task) from error


def _counted(task: LaneTask, access: Access) -> dict[Place, int]:
    copy = task.to_topic()
    shapes = {part.place: Shape(part.route, copy, part.target_partitions) for part in task.parts}
    counts = dict.fromkeys(shapes, 0)
    for phase in phases(task, {part.place: part.note for part in task.parts}, access):
        with phase.reader as reader:
            for batch in reader.read(phase.spans):
                if batch is not None:
                    place = phase.parts[batch.topic, batch.partition].place
                    counts[place] += sum(map(shapes[place].takes, batch.records))
    return counts
