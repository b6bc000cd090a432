"""Jobs as messages of the contract between services: control sends these, and the state file has them."""

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge
from services.sidecar.jobs.job import (
    Filter,
    Job,
    JobSpec,
    JobState,
    PartitionProgress,
    Range,
    RefusedError,
    ToBackend,
    ToTopic,
)
from services.sidecar.records import Partition

NAME_PREFIX = "replays/"
_STATES = {
    JobState.PENDING: replays.REPLAY_STATE_PENDING,
    JobState.RUNNING: replays.REPLAY_STATE_RUNNING,
    JobState.DONE: replays.REPLAY_STATE_DONE,
    JobState.FAILED: replays.REPLAY_STATE_FAILED,
    JobState.CANCELLED: replays.REPLAY_STATE_CANCELLED,
}
_OF_STATE = {message: state for state, message in _STATES.items()}


def spec_message(spec: JobSpec, sidecar: str) -> replays.ReplaySpec:
    """The message of a request that only this sidecar may carry out."""
    message = replays.ReplaySpec(
        ranges=map(_range_message, spec.ranges),
        rate=spec.rate,
        dry_run=spec.dry_run,
        dead_letters=spec.dead_letters,
        filter=replays.DeadLetterFilter(
            reasons=sorted(spec.filter.reasons),
            keys=[key.decode(errors="replace") for key in sorted(spec.filter.keys)],
            offsets=sorted(spec.filter.offsets),
        ),
    )
    match spec.destination:
        case ToBackend(path, last_retry):
            message.backend.CopyFrom(
                replays.ReplayToBackend(sidecar=sidecar, group=spec.group, last_retry=last_retry, path=path)
            )
        case ToTopic(topic):
            message.source.CopyFrom(replays.ReplayToSource(sidecar=sidecar, group=spec.group, topic=topic))
    return message


def spec_of(message: replays.ReplaySpec) -> JobSpec:
    """The request in a message. RefusedError when a sidecar cannot carry out the request."""
    destination: ToBackend | ToTopic
    match message.WhichOneof("destination"):
        case "backend":
            destination = ToBackend(message.backend.path, message.backend.last_retry)
            group = message.backend.group
        case "source":
            destination = ToTopic(message.source.topic)
            group = message.source.group
        case other:
            raise RefusedError(f"this release of the sidecar does not carry out a replay to {other or 'nobody'}")
    return JobSpec(
        tuple(map(_range_of, message.ranges)),
        destination,
        group,
        message.rate,
        message.dry_run,
        message.dead_letters,
        Filter(
            frozenset(message.filter.reasons),
            frozenset(key.encode() for key in message.filter.keys),
            frozenset(message.filter.offsets),
        ),
    )


def replay_message(job: Job, sidecar: str) -> replays.Replay:
    message = replays.Replay(
        name=NAME_PREFIX + job.id,
        spec=spec_message(job.spec, sidecar),
        state=_STATES[job.state],
        partitions=[partition_message(one) for one in job.partitions.values()],
        create_time=_time(job.created),
        description=job.description,
    )
    if job.ended is not None:
        message.end_time.CopyFrom(_time(job.ended))
    return message


def job_of(message: replays.Replay, *, by_control: bool) -> Job:
    """The job in a message. RefusedError when a sidecar cannot carry out the job."""
    progress = map(_progress_of, message.partitions)
    return Job(
        message.name.removeprefix(NAME_PREFIX),
        spec_of(message.spec),
        message.create_time.ToMilliseconds(),
        by_control,
        _OF_STATE.get(message.state, JobState.PENDING),
        {one.partition: one for one in progress},
        message.description,
        message.end_time.ToMilliseconds() if message.HasField("end_time") else None,
    )


def report(job: Job, member: str, changed: list[PartitionProgress]) -> replays.ReportReplayRequest:
    """The report of a job to control: its state, and the partitions whose progress control does not know yet."""
    return replays.ReportReplayRequest(
        name=NAME_PREFIX + job.id,
        member=member,
        partitions=map(partition_message, changed),
        state=_STATES[job.state],
        description=job.description,
    )


def partition_message(one: PartitionProgress) -> replays.ReplayPartition:
    message = replays.ReplayPartition(
        topic=one.partition.topic,
        partition=one.partition.partition,
        start_offset=one.start,
        end_offset=one.end,
        position=one.position,
        records=one.records,
        failed=one.failed,
    )
    if one.planned is not None:
        message.planned = one.planned
    return message


def _progress_of(message: replays.ReplayPartition) -> PartitionProgress:
    return PartitionProgress(
        Partition(message.topic, message.partition),
        message.start_offset,
        message.end_offset,
        message.position,
        message.records,
        message.failed,
        message.planned if message.HasField("planned") else None,
    )


def _range_message(one: Range) -> replays.ReplayRange:
    message = replays.ReplayRange(topic=one.topic)
    if one.partition is not None:
        message.partition = one.partition
    match one.start:
        case AtOffset(offset):
            message.start_offset = offset
        case AtTime(ms):
            message.start_time.CopyFrom(_time(ms))
    match one.end:
        case AtOffset(offset):
            message.end_offset = offset
        case AtTime(ms):
            message.end_time.CopyFrom(_time(ms))
    return message


def _range_of(message: replays.ReplayRange) -> Range:
    start: AtOffset | AtTime | Edge = Edge.FIRST
    end: AtOffset | AtTime | Edge = Edge.LAST
    match message.WhichOneof("start"):
        case "start_offset":
            start = AtOffset(message.start_offset)
        case "start_time":
            start = AtTime(message.start_time.ToMilliseconds())
        case "start_at_end":
            start = Edge.LAST
    match message.WhichOneof("end"):
        case "end_offset":
            end = AtOffset(message.end_offset)
        case "end_time":
            end = AtTime(message.end_time.ToMilliseconds())
    return Range(message.topic, message.partition if message.HasField("partition") else None, start, end)


def _time(ms: int) -> Timestamp:
    time = Timestamp()
    time.FromMilliseconds(ms)
    return time
