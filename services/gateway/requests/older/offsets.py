"""ListOffsets 0, OffsetCommit 0 and 1, OffsetFetch 0: offsets as clients of 0.8 and 0.9 ask for them."""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.groups import offset_commit, offset_fetch
from services.gateway.requests.older.rewriting import message_of_answer, rewritten
from services.gateway.requests.plan import Close, Command, MeshView, NoAnswer, Plan, Request
from services.gateway.requests.records import list_offsets
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from services.gateway.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

LIST_OFFSETS_VERSION = 1
OFFSET_COMMIT_VERSION = 2
OFFSET_FETCH_VERSION = 1
LATEST = -1
NO_OFFSET = -1

Slot = tuple[str, int]
Times = dict[Slot, int]


# --- ListOffsets -------------------------------------------------------------------------------------------------


def handle_list_offsets(request: Request, mesh: MeshView) -> Plan:
    """Answers with one offset.

    Version 0 asks for a number of offsets at which files of the log begin, back from a time, and clients use the first.
    Today's brokers do not report where files begin. The answer is the offset that belongs to the time, or the end of
    the log if no record is as late.
    """
    message = request.decode(ListOffsetsRequest)
    times = {(topic.name, p.partition_index): p.timestamp for topic in message.topics for p in topic.partitions}
    wanted = {(topic.name, p.partition_index): p.max_num_offsets for topic in message.topics for p in topic.partitions}
    found = yield from _offsets(request, times, mesh)
    if isinstance(found, NoAnswer | Close):
        return found
    later = {
        slot: LATEST for slot, at in times.items() if at >= 0 and not found[slot].error_code and found[slot].offset < 0
    }
    if later:
        ends = yield from _offsets(request, later, mesh)
        if isinstance(ends, NoAnswer | Close):
            return ends
        found |= ends
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    _old_style(found[topic.name, p.partition_index], wanted[topic.name, p.partition_index])
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


def _offsets(
    request: Request, times: Times, mesh: MeshView
) -> Generator[Command, Any, dict[Slot, ListOffsetsPartitionResponse] | NoAnswer | Close]:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, index), time in times.items():
        partition = ListOffsetsPartition(index, timestamp=time)
        topics.setdefault(topic, ListOffsetsTopic(topic)).partitions.append(partition)
    question = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
    answer = yield from list_offsets.handle(rewritten(request, question, LIST_OFFSETS_VERSION), mesh)
    told = message_of_answer(answer, ListOffsetsResponse, LIST_OFFSETS_VERSION)
    if not isinstance(told, ListOffsetsResponse):
        return told
    return {(topic.name, p.partition_index): p for topic in told.topics for p in topic.partitions}


def _old_style(found: ListOffsetsPartitionResponse, wanted: int) -> ListOffsetsPartitionResponse:
    offsets = [found.offset] if not found.error_code and found.offset >= 0 and wanted > 0 else []
    return ListOffsetsPartitionResponse(found.partition_index, found.error_code, offsets)


# --- OffsetCommit ------------------------------------------------------------------------------------------------


def handle_offset_commit(request: Request, mesh: MeshView) -> Plan:
    """Version 0 was for offsets in ZooKeeper, without members; here it becomes a commit without a member.

    The time that version 1 gives for each offset has been ignored by brokers since 0.9.
    """
    message = request.decode(OffsetCommitRequest)
    commit = OffsetCommitRequest(
        group_id=message.group_id,
        generation_id_or_member_epoch=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        topics=[OffsetCommitRequestTopic(topic.name, partitions=_without_times(topic)) for topic in message.topics],
    )
    answer = yield from offset_commit.handle(rewritten(request, commit, OFFSET_COMMIT_VERSION), mesh)
    return message_of_answer(answer, OffsetCommitResponse, OFFSET_COMMIT_VERSION)


def _without_times(topic: OffsetCommitRequestTopic) -> list[OffsetCommitRequestPartition]:
    return [
        OffsetCommitRequestPartition(
            p.partition_index, committed_offset=p.committed_offset, committed_metadata=p.committed_metadata
        )
        for p in topic.partitions
    ]


# --- OffsetFetch -------------------------------------------------------------------------------------------------


def handle_offset_fetch(request: Request, mesh: MeshView) -> Plan:
    """Version 0 was for offsets in ZooKeeper, and expects UNKNOWN_TOPIC_OR_PARTITION if there is no offset.

    Its clients would take -1 for an offset.
    """
    asked = rewritten(request, request.decode(OffsetFetchRequest), OFFSET_FETCH_VERSION)
    answer = yield from offset_fetch.handle(asked, mesh)
    told = message_of_answer(answer, OffsetFetchResponse, OFFSET_FETCH_VERSION)
    for topic in told.topics if isinstance(told, OffsetFetchResponse) else ():
        for partition in topic.partitions:
            if not partition.error_code and partition.committed_offset == NO_OFFSET:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return told
