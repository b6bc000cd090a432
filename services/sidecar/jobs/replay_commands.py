"""The original's topic of commands: sidecars of one application share it, and one of them carries out each command.

A command becomes a job that is named after the command's partition and offset. The command's offset is committed when
the job is in the state file. So a command is carried out once, however often a sidecar reads it. Commands from before
the group's first start are not carried out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar.auditing.events import AuditType, audit_record, ids_in
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.instance_values import Interest
from services.sidecar.consuming.membership import Membership
from services.sidecar.consuming.partition_reader import raw_record
from services.sidecar.consuming.serial_thread import SerialThread
from services.sidecar.faults import Fault
from services.sidecar.formats import json_text
from services.sidecar.jobs.job import Job, JobSpec, RefusedError
from services.sidecar.jobs.jobs import TooManyJobsError
from services.sidecar.jobs.original_command import job_spec
from services.sidecar.records import Partition, RawRecord

POLL_SECONDS = 0.5
RETRY_SECONDS = 5.0
CALL_SECONDS = 30.0
"""The longest call of the client; a commit waits without end for a coordinator that is gone."""
IDLE_SECONDS = 3600.0
_FRAME_BYTES = 5
"""Magic byte and schema id, before the JSON of a value that was written with a schema."""
_OF_OTHER_GROUPS = frozenset({"group.instance.id", "partition.assignment.strategy", "group.protocol"})
"""Consumer properties of the sidecar that this consumer must not have: it takes its whole assignment at once."""

Start = Callable[[JobSpec, str], Awaitable[Job]]
log = structlog.get_logger(__name__)


class Commands:
    """Reads commands from the topic. `start` begins a job with the given id."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        group: str,
        extension: str,
        start: Start,
        audit: AuditTrail,
    ) -> None:
        given = {name: value for name, value in properties.items() if name not in _OF_OTHER_GROUPS}
        self._properties = {
            **given,
            "group.id": group,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "statistics.interval.ms": 0,
        }
        self._topic = topic
        self._extension = extension
        self._start = start
        self._audit = audit

    async def run(self) -> None:
        """Reads commands for ever, also after errors of Kafka."""
        while True:
            try:
                await self._listen()
            except (KafkaException, Fault) as failure:
                log.warning("commands to replay cannot be read now", topic=self._topic, reason=str(failure))
            except TimeoutError:
                reason = f"Kafka did not answer within {CALL_SECONDS:g} s"
                log.warning("commands to replay cannot be read now", topic=self._topic, reason=reason)
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        """Joins the group and reads commands. KafkaException, Fault or TimeoutError when the consumer cannot go on."""
        thread = SerialThread("replay-commands", lambda: None, IDLE_SECONDS)

        def assigned(partitions: set[Partition]) -> None:
            places = _pinned(membership.client, [TopicPartition(*one) for one in sorted(partitions)])
            membership.starts.update({Partition(one.topic, one.partition): one.offset for one in places})

        membership = Membership(self._properties, assigned, _ignore, on_revoked=_ignore, on_lost=_ignore)
        try:
            membership.follow(Interest(topics=(self._topic,)))
            while True:
                message = await thread.call(partial(membership.poll, POLL_SECONDS), CALL_SECONDS)
                if message is not None:
                    await self._take(raw_record(message))
                    await thread.call(partial(_commit, membership, message), CALL_SECONDS)
                elif membership.is_broken and (fault := membership.fault()) is not None:
                    raise fault  # the client reads nothing any more
        finally:
            thread.post(membership.close)
            thread.end()

    async def _take(self, record: RawRecord) -> None:
        id_ = f"command-{record.partition}-{record.offset}"
        why: str | None = None
        while True:
            try:
                await self._start(job_spec(_command(record.value), self._extension), id_)
            except TooManyJobsError as too_many:
                log.warning("a command to replay waits", command=id_, reason=str(too_many))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except RefusedError as refused:
                why = str(refused)
                log.warning("a command to replay is refused", command=id_, reason=why)
            break
        self._audit.record(
            [
                audit_record(
                    AuditType.STREAMING_CONSUMER,
                    record.topic,
                    record.partition,
                    record.offset,
                    key=record.key,
                    ids=ids_in(record.headers),
                    failure=why,
                )
            ]
        )


def _command(value: bytes | None) -> Mapping[str, Any]:
    """The command in a value: plain JSON, or JSON behind a schema id."""
    text = value or b""
    try:
        command = json_text.loads(text[_FRAME_BYTES:] if text[:1] == b"\0" else text)
    except json_text.JsonError as error:
        raise RefusedError(f"the command is no JSON: {error}") from None
    if not isinstance(command, dict):
        raise RefusedError("the command is no JSON object")
    return command


def _pinned(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Commits the present end of each partition that has no committed offset: a group that returns misses nothing.

    The result has an offset for each partition. Without an offset, the client would ask Kafka itself, and would wait
    without end if the answer is an error (see `Membership`). KafkaException when Kafka does not answer.
    """
    found: list[TopicPartition] = consumer.committed(partitions, timeout=POLL_SECONDS * 10)
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    fresh = [one for one in found if one.offset < 0]
    for one in fresh:
        bounds = consumer.get_watermark_offsets(one, timeout=POLL_SECONDS * 10)
        if bounds is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nobody tells the end of {one.topic}"))
        one.offset = bounds[1]
    if fresh:
        consumer.commit(offsets=fresh, asynchronous=True)
    return found


def _commit(membership: Membership, message: Message) -> None:
    next_ = TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)
    try:
        membership.commit([next_], wait=True)
    except Fault as failure:
        log.warning("a command to replay is not committed, and is known when it comes again", reason=str(failure))


def _ignore(_: object) -> None:
    """Commands that were read are carried out, whoever has the partition now."""
