"""The terms of jobs: the records to consume again, their destination, and the progress. No I/O."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from services.sidecar.consuming.positions import AtOffset, AtTime, Edge
from services.sidecar.dead_letters.record import Origin, dead_letter_topic
from services.sidecar.records import Partition, RawRecord


class RefusedError(Exception):
    """The request cannot become a job; the text is a sentence with the reason."""


class JobState(Enum):
    """The state of a job."""

    PENDING = "pending"
    """Other jobs have to end first, or the job is held."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition, or of all of a topic."""

    topic: str
    partition: int | None = None
    start: AtOffset | AtTime | Edge = Edge.FIRST
    end: AtOffset | AtTime | Edge = Edge.LAST
    """Exclusive; the last edge is the log's end at the time of planning."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions that a record must fit; an empty condition fits every record."""

    reasons: frozenset[str] = frozenset()
    """The allowed values of the header dlq.reason."""
    keys: frozenset[bytes] = frozenset()
    offsets: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.reasons or self.keys or self.offsets)

    def takes(self, record: RawRecord) -> bool:
        return (
            (not self.offsets or record.offset in self.offsets)
            and (not self.keys or record.key in self.keys)
            and (not self.reasons or Origin.of(record.headers).reason in self.reasons)
        )


EVERYTHING = Filter()


@dataclass(frozen=True, slots=True)
class ToBackend:
    """The backend gets the records, in batches like those of its reactive consumer."""

    path: str = ""
    """The path of the backend; empty for its usual path."""
    last_retry: bool = False
    """A record that fails again does not become a dead letter."""


@dataclass(frozen=True, slots=True)
class ToTopic:
    """The records are written to a topic."""

    topic: str = ""
    """The name of the topic. If it is empty, each dead letter goes to the topic that it came from."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The request that a job carries out."""

    ranges: tuple[Range, ...]
    destination: ToBackend | ToTopic
    group: str = ""
    """The group that keeps the job's offsets; empty for a group of the job's own."""
    rate: float = 0.0
    """Records a second, at most; 0 for as fast as the destination takes them."""
    dry_run: bool = False
    """The job only counts records."""
    dead_letters: bool = False
    """The ranges are of the topics' dead letters."""
    filter: Filter = EVERYTHING

    def topic_of(self, range_: Range, extension: str) -> str:
        """The topic that has the records of a range."""
        return dead_letter_topic(range_.topic, extension) if self.dead_letters else range_.topic


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of a job in one partition."""

    partition: Partition
    start: int
    end: int
    """Exclusive."""
    position: int
    """The next offset: each record before it was acknowledged, or does not count."""
    records: int = 0
    """The number of acknowledged records."""
    failed: int = 0
    """The number of acknowledged records that failed: each became a dead letter, or was skipped."""
    planned: int | None = None
    """The number of records to come, if the job has counted them."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.end


@dataclass(slots=True)
class Job:
    """A job and its state."""

    id: str
    spec: JobSpec
    created: int
    """Milliseconds since the epoch."""
    by_control: bool = False
    """Whether control owns the job and keeps its state."""
    state: JobState = JobState.PENDING
    partitions: dict[Partition, PartitionProgress] = field(default_factory=dict)
    """The plan with its progress; empty until the job is planned."""
    description: str = ""
    """The result of an ended job, or the reason for its failure. For an open job, the reason for a wait, if any."""
    ended: int | None = None

    @property
    def group(self) -> str:
        return self.spec.group or f"replay-{self.id}"

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions.values())

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.partitions.values())


def check(spec: JobSpec, *, serves: Callable[[str], bool]) -> None:
    """Checks a request. RefusedError if the request makes no sense. `serves`: whether the backend gets a topic."""
    if not spec.ranges:
        raise RefusedError("name at least one topic")
    for one in spec.ranges:
        _check_range(one)
    _check_each_once(spec.ranges)
    if spec.rate < 0:
        raise RefusedError("rate can not be negative")
    if spec.filter.offsets and (len(spec.ranges) > 1 or spec.ranges[0].partition is None):
        raise RefusedError("offsets are chosen of one partition: name one range with its partition")
    match spec.destination:
        case ToTopic(""):
            if not spec.dead_letters:
                raise RefusedError("only dead letters know where they came from: name the topic that gets the records")
        case ToBackend():
            strange = next((one.topic for one in spec.ranges if not serves(one.topic)), None)
            if strange is not None:
                raise RefusedError(
                    "provided topic in request must match one of the topics in consuming topic list: the backend gets "
                    f"no records of {strange} (reactive_topics)"
                )


def _check_range(one: Range) -> None:
    if not one.topic:
        raise RefusedError("topic name can not be empty")
    if one.partition is not None and one.partition < 0:
        raise RefusedError("partition can not be negative")
    for name, place in (("start", one.start), ("end", one.end)):
        if isinstance(place, AtOffset):
            if place.offset < 0:
                raise RefusedError(f"replay {name} offset can not be negative")
            if one.partition is None:
                raise RefusedError(f"replay {name} offset is one of a partition: name the partition of {one.topic}")
    for kind, what in ((AtOffset, "offset"), (AtTime, "time")):
        if isinstance(one.start, kind) and isinstance(one.end, kind):
            start, end = _number(one.start), _number(one.end)
            if start > end:
                raise RefusedError(f"replay end {what} can not be less than start {what}")
            if start == end:
                raise RefusedError(f"replay end {what} can not be equal to start {what}")


def _check_each_once(ranges: Iterable[Range]) -> None:
    seen: set[tuple[str, int | None]] = set()
    for one in ranges:
        same = {(one.topic, one.partition), (one.topic, None)}
        if same & seen or (one.partition is None and any(topic == one.topic for topic, _ in seen)):
            raise RefusedError(f"{one.topic} is named twice: one range for each partition, or one for all of them")
        seen.add((one.topic, one.partition))


def _number(place: AtOffset | AtTime | Edge) -> int:
    return place.offset if isinstance(place, AtOffset) else place.ms if isinstance(place, AtTime) else place.value
