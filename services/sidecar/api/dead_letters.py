"""`/consumers/deadLetter/...`, the original's calls on dead letters, and `/adm/kafka/deadletters`, which lists them."""

import asyncio
import base64
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesh.topics import is_topic_name
from services.sidecar.api.authentication import caller_of
from services.sidecar.api.components import NO_CONSUMERS, NO_PRODUCER
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.hanging_up import WatchedResponse, caller
from services.sidecar.api.produce_requests import header_list
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response, no_content
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_values import HeaderShape, InstanceId, InstanceOptions, ReadRequest
from services.sidecar.consuming.instances import Instances
from services.sidecar.consuming.record_text import record_array
from services.sidecar.dead_letters.peek import Peek, PeekedRecord
from services.sidecar.dead_letters.record import dead_letter, dead_letter_topic
from services.sidecar.delivering.batch import ReplyRecord
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import Format, json_text
from services.sidecar.jobs.dead_letter_batches import Batch, DeadLetterBatches
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.records import (
    Consumed,
    Consumption,
    Delivered,
    Failed,
    Outcome,
    Partition,
    RawRecord,
    Reason,
    Verdict,
    WriteOutcome,
)
from services.sidecar.settings import SidecarSettings

ACTIVE_INSTANCE = "Active-Replay-1289990"
REACTIVE_INSTANCE = "Reactive-Replay-"
"""The original's names of the reading instances; the second is followed by this machine's address."""
NO_REACTIVE = Fault(
    FaultKind.STARTUP_HOOK_NOT_LOADED,
    "Startup hook ReactiveConsumerStartupHook is not loaded properly; set reactive_topics and backend_url",
)
NOT_CONFIGURED = (
    "This is invalid topic name for reactive consumer to replay. It doesn't march the topics in the kafka-comsumer.yml "
    "config."
)
"""In the original's words, as recorded."""
BACKEND_SHARE = 0.8
"""The backend's share of the time that a call may take."""
DEFAULT_PEEK_RECORDS = 50

log = structlog.get_logger(__name__)


class DeadLetterEndpoints:
    """The backend's calls on dead letters."""

    def __init__(
        self,
        settings: SidecarSettings,
        instances: Instances,
        producer: RecordProducer,
        audit: ActiveAudit,
        replay: DeadLetterBatches,
        topics: Callable[[], list[str]],
        formats: Callable[[Sequence[str]], tuple[Format, Format]],
    ) -> None:
        """`topics`: those whose dead letters the backend gets; `formats`: those of one reader of these topics."""
        self._settings = settings
        self._instances = instances
        self._producer = producer
        self._audit = audit
        self._replay = replay
        self._configured = topics
        self._formats = formats
        self._extension = settings.dead_letter_extension

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.replay_dead_letters, self.read_dead_letters, self.write_dead_letters)

    async def replay_dead_letters(self, request: Request) -> Response:
        if not self._settings.producer_enabled:
            raise Fault(NO_PRODUCER.kind, NO_PRODUCER.description)
        given = parameters(request)
        topics = self._topics(request, only_configured=True)
        settings = self._settings
        wait = min(given.get("timeout", settings.request_timeout_ms), settings.max_read_ms) / 1000
        group = self._group(given)
        batch = await self._replay.batch(
            group,
            topics,
            wait=wait,
            patience=settings.max_call_ms / 1000 * BACKEND_SHARE - wait,
            keeps_failures=settings.dead_letter_enabled and not given.get("lastretry", False),
        )
        return json_response(
            {
                "group": group,
                "instance": f"{REACTIVE_INSTANCE}{await asyncio.to_thread(_own_address)}",
                "topics": topics,
                "records": batch.records,
                "description": _description(batch),
            }
        )

    async def read_dead_letters(self, request: Request) -> Response:
        if not self._settings.consumers_enabled:
            raise Fault(NO_CONSUMERS.kind, NO_CONSUMERS.description)
        given = parameters(request)
        topics = self._topics(request, only_configured=False)
        instance = await self._active_instance(self._group(given), topics)
        format_ = given.get("format")
        asked = ReadRequest(
            max_bytes=self._settings.request_max_bytes,
            timeout=min(given.get("timeout", self._settings.request_timeout_ms), self._settings.max_read_ms) / 1000,
            format=None if format_ is None else Format.parse(format_),
        )
        async with caller(request.receive) as reader:
            records = await reader.waits_for(instance.read(asked))
            if records is None:
                return no_content()  # to nobody
            if reader.is_gone or not given.get("commit", True):
                await instance.give_back(records)
                return _records_response(records)

        async def given_to_caller() -> None:
            self._audit.given(records)
            await self._commit(instance, records)

        return WatchedResponse(
            record_array(records, HeaderShape.MAP),
            "application/json",
            given=given_to_caller,
            lost=partial(instance.give_back, records),
        )

    async def write_dead_letters(self, request: Request) -> Response:
        if not self._settings.producer_enabled:
            raise Fault(NO_PRODUCER.kind, NO_PRODUCER.description)
        results = await checked_body(request, self._settings.max_request_bytes)
        letters = [self._letter(one) for one in results]
        caller_of(request).check_writes({letter.topic for letter in letters})
        now = time.time_ns() // 1_000_000
        written = await self._written(letters, now)
        failures = [f"{index}: {one.text}" for index, one in enumerate(written) if isinstance(one, Failed)]
        if failures:
            raise Fault(
                FaultKind.DLQ_ACTIVE_PROCEDURE_ERROR,
                f"{len(failures)} of {len(written)} were not written, by their index: {'; '.join(failures)[:2000]}",
            )
        return json_response(
            [
                _produce_result(letter, one, now)
                for letter, one in zip(letters, written, strict=True)
                if isinstance(one, Delivered)
            ]
        )

    def _group(self, given: dict[str, Any]) -> str:
        return str(given.get("group") or f"{self._settings.reactive_group}-dead-letters")

    def _topics(self, request: Request, *, only_configured: bool) -> list[str]:
        """The topics of dead letters that the call names, else the configured ones.

        Fault if the caller may not read them.
        """
        configured = self._configured()
        named = parameters(request).get("topic", "").replace(" ", "")
        topics = named.split(",") if named else configured
        if only_configured and named and not set(topics) <= set(configured):
            raise Fault(FaultKind.INVALID_TOPIC_NAME, NOT_CONFIGURED)
        if not topics:
            if only_configured:
                raise Fault(NO_REACTIVE.kind, NO_REACTIVE.description)
            raise Fault(FaultKind.INVALID_TOPIC_NAME, "Name the topics: none is configured (reactive_topics)")
        for topic in topics:
            if not is_topic_name(topic):
                raise invalid("/topic", f"{topic[:249]!r} is not a topic name")
        found = [dead_letter_topic(topic, self._extension) for topic in dict.fromkeys(topics)]
        caller_of(request).check_reads(found)
        return found

    async def _active_instance(self, group: str, topics: Sequence[str]) -> ConsumerInstance:
        """The instance that reads dead letters for the group, subscribed to these topics."""
        id_ = InstanceId(group, ACTIVE_INSTANCE)
        if id_ in self._instances:
            instance = self._instances.get(id_)
        else:
            options = InstanceOptions(*self._formats(topics), read_timeout=self._settings.max_read_ms / 1000)
            instance = await self._instances.create(group, ACTIVE_INSTANCE, options)
        if set(instance.interest.topics) != set(topics):
            await instance.subscribe(tuple(topics))
            await self._instances.changed(instance)
        return instance

    async def _commit(self, instance: ConsumerInstance, records: list[Consumed]) -> None:
        """Commits these records, and no others that were read meanwhile.

        Records that are not committed are read again.
        """
        last = {Partition(one.topic, one.partition): one.offset for one in records}
        done = [Consumption(partition, offset) for partition, offset in last.items()]
        try:
            await self._audit.commit(done, instance.commit(done, wait=True))
        except Fault as fault:
            log.warning("dead letters that were read come again", group=instance.id.group, reason=fault.description)
            await instance.give_back(records)

    def _letter(self, result: dict[str, Any]) -> ReplyRecord:
        """A dead letter from a result in the original's form: key as text, value as JSON, with the present time."""
        record = result["record"]
        key, value = result.get("key"), record.get("value")
        if key is None:
            key = record.get("key")
        text = key.encode() if isinstance(key, str) else None if key is None else json_text.dumps(key)
        raw = RawRecord(
            record["topic"],
            record["partition"],
            record["offset"],
            record.get("timestamp") or -1,
            text,
            None if value is None else json_text.dumps(value),
            list(header_list(record.get("headers") or {})),
        )
        verdict = Verdict(
            raw,
            Outcome.DEAD_LETTER,
            Reason.BACKEND,
            stacktrace=result.get("stacktrace") or "",
            correlation_id=result.get("correlationId") or "",
            traceability_id=result.get("traceabilityId") or "",
            first_failure=result.get("timestamp") or 0,
        )
        return dead_letter(verdict, "", self._extension)

    async def _written(self, letters: list[ReplyRecord], now: int) -> list[WriteOutcome]:
        """Writes the letters; one outcome for each, in their order."""
        places: dict[str, list[int]] = {}
        for index, letter in enumerate(letters):
            places.setdefault(letter.topic, []).append(index)
        outcomes: dict[int, WriteOutcome] = {}
        for topic, indexes in places.items():
            records = [letters[index].record._replace(timestamp=now) for index in indexes]
            outcomes.update(zip(indexes, await self._producer.send(topic, records), strict=True))
        return [outcomes[index] for index in range(len(letters))]


class PeekEndpoints:
    """The operators' view of dead letters."""

    def __init__(self, peek: Peek, extension: str) -> None:
        self._peek = peek
        self._extension = extension

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.peek_dead_letters)

    async def peek_dead_letters(self, request: Request) -> Response:
        given = parameters(request)
        if "topic" not in given:
            return json_response(await self._all())
        records = await self._peek.records(
            dead_letter_topic(given["topic"], self._extension),
            given.get("partition"),
            given.get("offset"),
            given.get("limit", DEFAULT_PEEK_RECORDS),
        )
        return json_response([_peeked(one, raw=given.get("raw", False)) for one in records])

    async def _all(self) -> list[dict[str, object]]:
        counts = await self._peek.counts(lambda topic: topic.endswith(self._extension))
        return [
            {
                "topic": topic,
                "source": topic.removesuffix(self._extension),
                "records": sum(one.next - one.first for one in partitions),
                "partitions": [
                    {"partition": one.partition, "first": one.first, "next": one.next} for one in partitions
                ],
            }
            for topic, partitions in counts.items()
        ]


def _records_response(records: list[Consumed]) -> Response:
    return Response(record_array(records, HeaderShape.MAP), media_type="application/json")


def _description(batch: Batch) -> str:
    if batch.last is None:
        return "Dead letter queue process successful to end, no records processed"
    place = f"partition:{batch.last.partition.partition}| offset:{batch.last.offset}"
    if batch.rolled_back:
        return f"Pulled records from DLQ , processing error, rolled back to {place}"
    return f"Dead letter queue process successful to {place}"


def _own_address() -> str:
    """The address of this machine, found in the original's way."""
    given = os.environ.get("STATUS_HOST_IP")
    if given:
        return given
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _produce_result(letter: ReplyRecord, where: Delivered, now: int) -> dict[str, object]:
    time_ = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "topic": letter.topic,
        "partitionId": where.partition,
        "offset": where.offset,
        "timestamp": time_.replace("+00:00", "Z"),
        "serializeKeySize": -1 if letter.record.key is None else len(letter.record.key),
        "serializeValueSize": -1 if letter.record.value is None else len(letter.record.value),
    }


def _peeked(one: PeekedRecord, *, raw: bool) -> dict[str, Any]:
    record, origin = one.record, one.origin
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [{"key": name, "value": _base64(value)} for name, value in record.headers],
        "fits": one.shown is not None,
    }
    if one.shown is not None:
        parts = {"key": one.shown.shown.key, "value": one.shown.shown.value}
        shown |= {name: _json(part) for name, part in parts.items() if part is not None}
    if raw:
        shown["raw"] = {"key": _base64(record.key), "value": _base64(record.value)}
    facts = {
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "timestamp": origin.timestamp,
        "group": origin.group,
        "reason": origin.reason,
        "attempts": origin.attempts,
        "firstFailure": origin.first_failure,
        "stacktrace": origin.stacktrace,
        "valueBytes": origin.value_bytes,
    }
    shown["origin"] = {name: fact for name, fact in facts.items() if fact not in (None, "")}
    return shown


def _json(part: object) -> orjson.Fragment:
    """Integers of any length survive."""
    return part if isinstance(part, orjson.Fragment) else orjson.Fragment(json_text.dumps(part))


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode("ascii")
