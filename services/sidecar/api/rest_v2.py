"""Version 2 of Confluent's REST proxy, for clients of Karapace and of Strimzi's bridge: `rest_v2.yaml`, put to use.

The face only translates: requests into those of the sidecar's own contract, and answers back. Producing and consuming
are the code of `producers`, `consumers` and `records`. It has an address of its own, because its paths below
`/consumers` are those of our contract with other bodies and answers, and because its clients know no prefix.
"""

import base64
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from services.sidecar.admin.topics import PartitionDetail, TopicDetail, Topics
from services.sidecar.api.authentication import caller_of
from services.sidecar.api.consumers import ConsumerEndpoints, consumptions
from services.sidecar.api.contract import REST_V2, REST_V2_DOCUMENT, parameters
from services.sidecar.api.produce_requests import HeaderPolicy, produce_request
from services.sidecar.api.records import RecordEndpoints
from services.sidecar.api.requests import body_of, checked_body, is_big, parsed, read_aside
from services.sidecar.api.rest_v2_errors import Dialect, Refusal, record_error
from services.sidecar.api.status import no_content
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, json_text
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.producing.serializing import Serialized, Serializer
from services.sidecar.records import Consumed, Consumption, Delivered, DeliveryError, WriteOutcome
from services.sidecar.security.callers import Caller

MEDIA_TYPE = "application/vnd.kafka.v2+json"
_FORMATS = {"text": Format.STRING} | {one.label: one for one in Format if one not in (Format.STRING, Format.AUTO)}
_NAMES = {format_: name for name, format_ in _FORMATS.items()}
_RECORDS = re.compile(r"application/vnd\.kafka\.(\w+)\.v2\+json")
_PLAIN = ("application/json", MEDIA_TYPE, "application/vnd.kafka+json")
"""Media types that name no format of records, which is then binary."""


class RestV2Endpoints:
    """The endpoints of one sidecar."""

    def __init__(
        self,
        consumers: ConsumerEndpoints,
        records: RecordEndpoints,
        producer: RecordProducer,
        serializer: Serializer,
        topics: Topics,
        *,
        dialect: Dialect,
        headers: HeaderPolicy,
        max_request_bytes: int,
    ) -> None:
        self._consumers = consumers
        self._records = records
        self._producer = producer
        self._serializer = serializer
        self._topics = topics
        self._dialect = dialect
        self._headers = headers
        self._max_request_bytes = max_request_bytes

    def routes(self) -> list[Route]:
        consumers = self._consumers
        return REST_V2.routes(
            self.list_topic_names,
            self.get_topic,
            self.get_partitions,
            self.get_partition,
            self.get_partition_offsets,
            self.produce,
            self.produce_to_partition,
            self.create_instance,
            consumers.delete_instance,
            self.subscribe,
            self.get_subscriptions,
            consumers.unsubscribe,
            consumers.assign,
            self.get_assignments,
            consumers.seek,
            consumers.seek_to_first,
            consumers.seek_to_last,
            self.commit_offsets,
            self.get_committed_offsets,
            self.read_records,
            self.get_document,
        )

    # topics

    async def list_topic_names(self, request: Request) -> Response:
        caller = caller_of(request)
        found = await self._topics.all()
        return _answer(
            [one.topic for one in found if caller.reads.covers(one.topic) or caller.writes.covers(one.topic)]
        )

    async def get_topic(self, request: Request) -> Response:
        topic = await self._topic(request)
        settings = await self._topics.settings(topic.topic)
        partitions = [_partition(one) for one in topic.partitions]
        return _answer({"name": topic.topic, "configs": settings, "partitions": partitions})

    async def get_partitions(self, request: Request) -> Response:
        return _answer([_partition(one) for one in (await self._topic(request)).partitions])

    async def get_partition(self, request: Request) -> Response:
        return _answer(_partition(await self._partition(request)))

    async def get_partition_offsets(self, request: Request) -> Response:
        found = await self._partition(request)
        return _answer({"beginning_offset": found.first, "end_offset": found.next})

    async def produce(self, request: Request) -> Response:
        return await self._produced(request, None)

    async def produce_to_partition(self, request: Request) -> Response:
        return await self._produced(request, parameters(request)["partition"])

    # consumers

    async def create_instance(self, request: Request) -> Response:
        asked: dict[str, Any] = await self._body(request)
        asked = {"autoCommitEnable": True, **asked, "format": _FORMATS[asked.get("format", "binary")]}
        name, uri = await self._consumers.created(request, asked, "")
        return _answer({"instance_id": name, "base_uri": uri})

    async def subscribe(self, request: Request) -> Response:
        asked = await self._body(request)
        if "topics" in asked and "topic_pattern" in asked:
            raise Fault(FaultKind.ILLEGAL_CONSUMER_STATE, "topics and topic_pattern exclude each other; send one")
        if not asked:
            raise Refusal(422, 422, "A subscription needs topics or topic_pattern")
        await self._consumers.subscribed(request, asked)
        return no_content()

    async def get_subscriptions(self, request: Request) -> Response:
        instance = self._consumers.instance(request)
        partitions: dict[str, list[int]] = {}
        for one in await instance.assignment():
            partitions.setdefault(one.topic, []).append(one.partition)
        shown = [{topic: sorted(numbers)} for topic, numbers in sorted(partitions.items())]
        return _answer({"topics": await instance.subscription(), "partitions": shown})

    async def get_assignments(self, request: Request) -> Response:
        return _typed(await self._consumers.get_assignments(request))

    async def get_committed_offsets(self, request: Request) -> Response:
        return _typed(await self._consumers.get_committed_offsets(request))

    async def commit_offsets(self, request: Request) -> Response:
        asked = await self._body(request)
        done = consumptions(asked["offsets"]) if asked and "offsets" in asked else None
        if done is not None and self._dialect is Dialect.STRIMZI:  # its clients name the next offset
            done = [Consumption(one.partition, one.offset - 1, one.metadata) for one in done]
        await self._consumers.commits(request, done)
        return no_content()

    async def read_records(self, request: Request) -> Response:
        instance = self._consumers.instance(request)
        format_ = instance.options.value_format
        wanted = _RECORDS.fullmatch(request.headers.get("accept", "").partition(";")[0].strip().lower())
        if wanted is not None and _FORMATS.get(wanted[1]) is not format_:
            raise Fault(
                FaultKind.CONSUMER_FORMAT_MISMATCH,
                f"The consumer's format is {_NAMES.get(format_, format_.label)}, and Accept names {wanted[1]}",
            )
        media_type = f"application/vnd.kafka.{_NAMES.get(format_, format_.label)}.v2+json"
        shown = partial(_shown, with_headers=self._dialect is Dialect.STRIMZI)
        return await self._records.read(request, instance, self._records.asked(request), shown, media_type)

    async def get_document(self, request: Request) -> Response:
        return FileResponse(REST_V2_DOCUMENT, media_type="text/yaml")

    async def _body(self, request: Request) -> Any:
        return await checked_body(request, self._max_request_bytes)

    async def _topic(self, request: Request) -> TopicDetail:
        name = parameters(request)["topic"]
        _check_sees(caller_of(request), name)
        found = await self._topics.one(name)
        if found is None:
            raise Fault(FaultKind.TOPIC_NOT_FOUND, f"Topic {name} not found")
        return found

    async def _partition(self, request: Request) -> PartitionDetail:
        number = parameters(request)["partition"]
        topic = await self._topic(request)
        for one in topic.partitions:
            if one.partition == number:
                return one
        raise Refusal(404, 40402, f"Partition {number} of topic {topic.topic} not found")

    async def _produced(self, request: Request, partition: int | None) -> Response:
        topic = parameters(request)["topic"]
        format_ = _format_of(request)
        body = await body_of(request, self._max_request_bytes)
        members = await read_aside(body, _members, request, body, format_, partition)
        serialized = await self._serializer.serialize(
            produce_request(topic, members),
            HeaderWriter(self._headers.of(request)),
            on_thread=is_big(body),
            may_register=caller_of(request).check_registers,
        )
        return self._outcomes(await self._producer.send(topic, serialized.records), serialized)

    def _outcomes(self, outcomes: Sequence[WriteOutcome], serialized: Serialized) -> Response:
        failures = [one for one in outcomes if not isinstance(one, Delivered)]
        if failures and len(failures) == len(outcomes):
            for error in (DeliveryError.UNKNOWN_TOPIC, DeliveryError.UNKNOWN_PARTITION, DeliveryError.AUTHORIZATION):
                if all(one.error is error for one in failures):
                    raise Refusal(error.value // 100, error.value, failures[0].text)
        shown = [
            {"partition": one.partition, "offset": one.offset}
            if isinstance(one, Delivered)
            else record_error(one.error.value, one.text, self._dialect)
            for one in outcomes
        ]
        if self._dialect is Dialect.STRIMZI:
            return _answer({"offsets": shown})
        ids = {"key_schema_id": serialized.key_schema_id, "value_schema_id": serialized.value_schema_id}
        return _answer({"offsets": shown, **ids})


def _format_of(request: Request) -> Format:
    """The format of the records in a body, by its media type."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    named = _RECORDS.fullmatch(media_type)
    format_ = _FORMATS.get(named[1]) if named else Format.BINARY if media_type in _PLAIN else None
    if format_ is None:
        raise Refusal(415, 415, f"Content-Type {media_type or 'none'} is not {MEDIA_TYPE} with a format of records")
    return format_


def _members(request: Request, body: bytes, format_: Format, partition: int | None) -> dict[str, Any]:
    """The members of a produce request of ours."""
    asked: dict[str, Any] = REST_V2.operations["produce"].body(parsed(request, body))
    records = asked["records"]
    if format_.kind is not None:
        for code, side in ((42201, "key"), (42202, "value")):
            has_schema = f"{side}_schema" in asked or f"{side}_schema_id" in asked
            if not has_schema and any(one.get(side) is not None for one in records):
                raise Refusal(
                    422, code, f"Records have a {side}, and neither {side}_schema nor {side}_schema_id is sent"
                )
    if partition is not None:
        records = [{**one, "partition": partition} for one in records]
    names = {"key_schema": "keySchema", "key_schema_id": "keySchemaId"}
    names |= {"value_schema": "valueSchema", "value_schema_id": "valueSchemaId"}
    given = {ours: asked[theirs] for theirs, ours in names.items() if theirs in asked}
    return {"keyFormat": format_, "valueFormat": format_, "records": records, **given}


def _check_sees(caller: Caller, topic: str) -> None:
    """Fault if the caller may neither read nor write the topic."""
    if not caller.writes.covers(topic):
        caller.check_reads([topic])


def _partition(one: PartitionDetail) -> dict[str, object]:
    replicas = [
        {"broker": broker, "leader": broker == one.leader, "in_sync": broker in one.isrs} for broker in one.replicas
    ]
    return {"partition": one.partition, "leader": one.leader, "replicas": replicas}


def _shown(records: list[Consumed], *, with_headers: bool) -> bytes:
    """Records as these clients read them, with null keys and values. Only Strimzi's bridge shows headers."""
    lines = [json_text.dumps(_record(one, with_headers=with_headers)) for one in records]
    return b"[" + b",".join(lines) + b"]"


def _record(one: Consumed, *, with_headers: bool) -> dict[str, object]:
    shown: dict[str, object] = {
        "topic": one.topic,
        "key": one.key,
        "value": one.value,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": one.timestamp,
    }
    if with_headers and one.headers:
        shown["headers"] = [
            {"key": name, "value": None if value is None else base64.b64encode(value).decode("ascii")}
            for name, value in one.headers
        ]
    return shown


def _answer(content: object) -> Response:
    return Response(orjson.dumps(content), media_type=MEDIA_TYPE)


def _typed(response: Response) -> Response:
    response.headers["Content-Type"] = MEDIA_TYPE
    return response
