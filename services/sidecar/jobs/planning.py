"""The offsets of a job: its ranges as they are now, partition by partition. Planning asks Kafka, so it blocks."""

from services.sidecar.consuming.partition_reader import PartitionReader
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge, Seek
from services.sidecar.jobs.job import JobSpec, PartitionProgress, Range, RefusedError
from services.sidecar.records import Partition


def plan(spec: JobSpec, extension: str, reader: PartitionReader) -> list[PartitionProgress]:
    """The job's partitions. Fault when Kafka does not answer, or the topic is missing; RefusedError when a partition is
    missing."""
    return [
        _planned(partition, range_, spec, reader)
        for range_ in spec.ranges
        for partition in _partitions(spec.topic_of(range_, extension), range_, reader)
    ]


def _partitions(topic: str, range_: Range, reader: PartitionReader) -> list[Partition]:
    there = reader.partitions(topic)
    if range_.partition is None:
        return there
    chosen = Partition(topic, range_.partition)
    if chosen not in there:
        raise RefusedError(f"there is no partition {chosen} (topic {topic} has {len(there)})")
    return [chosen]


def _planned(partition: Partition, range_: Range, spec: JobSpec, reader: PartitionReader) -> PartitionProgress:
    first, next_ = reader.bounds(partition)
    start = _offset(partition, range_.start, first, next_, reader)
    end = _offset(partition, range_.end, first, next_, reader)
    if spec.filter.offsets:
        start = max(start, min(spec.filter.offsets))
        end = min(end, max(spec.filter.offsets) + 1)
    start = min(max(start, first), next_)
    end = max(min(end, next_), start)
    return PartitionProgress(partition, start, end, start)


def _offset(
    partition: Partition, place: AtOffset | AtTime | Edge, first: int, next_: int, reader: PartitionReader
) -> int:
    match place:
        case AtOffset(offset):
            return offset
        case AtTime():
            return reader.positions([Seek(partition, place)])[partition]
        case Edge.FIRST:
            return first
        case _:
            return next_
