"""A member of a share group, request by request: each may go on another connection."""

from __future__ import annotations

from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from services.gateway.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from services.gateway.wire.messages.share_fetch import AcquiredRecords, FetchPartition, FetchTopic
from services.gateway.wire.messages.share_group_heartbeat import TopicPartitions
from tests.fixtures.waiting import wait_unless
from tests.integration.gateway.talking import comes_true
from tests.unit.gateway.downstream.raw_client import RawClient

ANSWER_S = 30.0
ACCEPTED = 1
"""A type of acknowledgement."""
Acquired = tuple[int, AcquiredRecords]
"""Partition, and which records of it."""


def set_up(bootstrap: str, group: str, **further: str) -> None:
    """The group, which does not exist yet, begins at the first record: a broker may find out only after a member's
    first answer where the end is. A cluster that has never had a group makes its coordinators only now.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"share.auto.offset.reset": "earliest", **further}

    def obstacle() -> str | None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
        try:
            admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)
            told = admin.describe_configs([resource])[resource].result(ANSWER_S)
        except KafkaException as error:
            return str(error)
        seen = {name: told[name].value for name in settings}
        return None if seen == settings else f"the group has {seen}"

    wait_unless(obstacle, f"group {group} has {settings}")


class ShareMember:
    """`join`, then `acquire` and `accept` as often as is wanted."""

    def __init__(self, group: str, topic: str) -> None:
        member_id = str(uuid4())
        self._heartbeat = ShareGroupHeartbeatRequest(group, member_id, 0, None, [topic])
        self._fetch = ShareFetchRequest(group, member_id, 0, 500, 1, 1 << 20, 500, 500)
        self._topic_id = b""
        self._partitions: list[int] = []

    @property
    def member_id(self) -> str:
        return str(self._fetch.member_id)

    async def join(self, through: RawClient) -> None:
        """Returns when it has partitions."""

        async def assigned() -> list[TopicPartitions]:
            answer = await through.ask(self._heartbeat, 1, ShareGroupHeartbeatResponse)
            self._heartbeat.member_epoch = answer.member_epoch
            return answer.assignment.topic_partitions if answer.assignment else []

        [given] = await comes_true(assigned, bool, "the member has partitions")
        self._topic_id, self._partitions = given.topic_id, given.partitions
        self.begin_again()

    def begin_again(self) -> None:
        """The next request begins a new session."""
        self._fetch.share_session_epoch = 0
        self._fetch.topics = [FetchTopic(self._topic_id, [FetchPartition(index) for index in self._partitions])]

    async def fetch(self, through: RawClient) -> ShareFetchResponse:
        answer: ShareFetchResponse = await through.ask(self._fetch, 1, ShareFetchResponse)
        return answer

    async def acquire(self, through: RawClient) -> list[Acquired]:
        answer = await self.fetch(through)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        self._fetch.share_session_epoch += 1
        self._fetch.topics = []
        return [(p.partition_index, r) for t in answer.responses for p in t.partitions for r in p.acquired_records]

    async def accept(self, through: RawClient, acquired: Acquired) -> None:
        partition, records = acquired
        batch = AcknowledgementBatch(records.first_offset, records.last_offset, [ACCEPTED])
        accept = ShareAcknowledgeRequest(
            self._fetch.group_id,
            self._fetch.member_id,
            self._fetch.share_session_epoch,
            topics=[AcknowledgeTopic(self._topic_id, [AcknowledgePartition(partition, [batch])])],
        )
        answer = await through.ask(accept, 1, ShareAcknowledgeResponse)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert [p.error_code for topic in answer.responses for p in topic.partitions] == [ErrorCode.NONE]
        self._fetch.share_session_epoch += 1
