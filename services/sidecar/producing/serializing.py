"""Encodes the keys and values of a request as bytes for Kafka. The whole batch is encoded before the first record is
sent, so a batch with a bad record sends nothing.

Encoding has two steps. `encoder` finds the formats and schemas of keys and values. It may have to ask the schema
registry, on a few threads of its own, never on the event loop. The resulting encoder encodes any number of records, and
never asks the registry.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from mesh.schemas.schema import RegistryUnavailableError, SchemaError
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.format import available_labels
from services.sidecar.formats.registered import WHAT_TO_SET
from services.sidecar.formats.schema_formats import SchemaFormats, SchemaWriter
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.produce_request import (
    ProduceRequest,
    RecordRequest,
    SchemaChoice,
    Side,
    SubjectStrategy,
)
from services.sidecar.producing.schema_choice import question_of
from services.sidecar.records import Outgoing
from services.sidecar.schemas.questions import ByText, Question

LOOK_UP_THREADS = 4
"""Threads for look-ups. A thread mostly waits; all requests that wait for one schema share one thread."""
MANY_VALUES_WITH_SCHEMA = 100
"""So many records take the event loop 1 to 5 ms; a larger batch is encoded on a thread."""
MayRegister = Callable[[str, str], None]
"""Raises Fault if a schema may not be registered under this subject, by a request for this topic."""


@dataclass(frozen=True, slots=True)
class SideEncoder:
    """The encoder of keys, or of values."""

    side: str
    format: Format
    encode: Callable[[object], bytes]
    schema_id: int | None = None

    def encoded(self, values: Iterable[object]) -> list[bytes | None]:
        """The bytes of all values; null is Kafka's null in every format. Fault for the first misfit, with its index."""
        encode, done = self.encode, list[bytes | None]()
        try:
            for value in values:
                done.append(None if value is None else encode(value))
        except FormatError as error:
            raise Fault(
                FaultKind.SERIALIZE_SCHEMA_EXCEPTION,
                f"Unexpected exception in serializing {self.format.label} , index in batch : {len(done)} "
                f"format with message {self.side}: {error}",
            ) from None
        return done


@dataclass(frozen=True, slots=True)
class BatchEncoder:
    """The encoder of a request's records. It may be used any number of times, on any thread."""

    key: SideEncoder
    value: SideEncoder

    @property
    def key_schema_id(self) -> int | None:
        return self.key.schema_id

    @property
    def value_schema_id(self) -> int | None:
        return self.value.schema_id

    def takes_long(self, records: Sequence[RecordRequest]) -> bool:
        """Whether so many records are better encoded on a thread."""
        has_schema = self.key.schema_id is not None or self.value.schema_id is not None
        return has_schema and len(records) > MANY_VALUES_WITH_SCHEMA

    def encode(self, records: Sequence[RecordRequest], headers: HeaderWriter) -> list[Outgoing]:
        """The records in the form that Kafka gets. Fault when a record does not fit its format."""
        keys = self.key.encoded([record.key for record in records])
        values = self.value.encoded([record.value for record in records])
        of = headers.of
        return [
            _outgoing(
                (key, value, record.partition, time if (time := record.timestamp) and time > 0 else 0, of(record))
            )
            for key, value, record in zip(keys, values, records, strict=True)
        ]


_outgoing: Callable[[tuple[object, ...]], Outgoing] = partial(tuple.__new__, Outgoing)
"""Makes an `Outgoing` in half the time of the class's constructor."""


@dataclass(frozen=True, slots=True)
class Serialized:
    """A request, ready to be sent."""

    records: list[Outgoing]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class Serializer:
    """Encodes requests: it has the default formats, and the schemas if there is a registry."""

    def __init__(
        self,
        key_format: Format,
        value_format: Format,
        schemas: SchemaFormats | None = None,
        key_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME,
        value_strategy: SubjectStrategy = SubjectStrategy.TOPIC_NAME,
    ) -> None:
        self._defaults = {"key": key_format, "value": value_format}
        self._strategies = {"key": key_strategy, "value": value_strategy}
        self._schemas = schemas
        self._threads = ThreadPoolExecutor(LOOK_UP_THREADS, "schemas")  # starts none before the first look-up
        self._look_ups: dict[tuple[Question, str | None], asyncio.Future[SchemaWriter]] = {}

    async def serialize(
        self,
        request: ProduceRequest,
        headers: HeaderWriter,
        *,
        on_thread: bool = False,
        may_register: MayRegister | None = None,
    ) -> Serialized:
        """The whole request, encoded; on a thread if the caller asks for that, or the batch is large.

        Fault when formats and schemas exclude each other, a schema cannot be found, or a record does not fit.
        """
        encoder = await self.encoder(request.topic, request.key, request.value, request.records, may_register)
        if on_thread or encoder.takes_long(request.records):
            records = await asyncio.to_thread(encoder.encode, request.records, headers)
        else:
            records = encoder.encode(request.records, headers)
        return Serialized(records, encoder.key_schema_id, encoder.value_schema_id)

    async def encoder(
        self,
        topic: str,
        key: Side,
        value: Side,
        records: Sequence[RecordRequest] | None = None,
        may_register: MayRegister | None = None,
    ) -> BatchEncoder:
        """The encoder of such a request's records. The call does not wait if all schemas are known.

        `records`, if given, are all records that the encoder will encode. `may_register` raises Fault if the caller may
        not register a schema under a subject, for a topic.
        """
        sides = [(side, self._question(side, topic, records)) for side in (key, value)]
        for _, question in sides:
            if isinstance(question, ByText) and may_register is not None:
                may_register(question.subject, topic)
        return BatchEncoder(*[await self._side_encoder(side, question, records) for side, question in sides])

    def close(self) -> None:
        """Stops look-ups. A look-up that runs ends soon by itself; nobody waits for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._schemas is not None:
            self._schemas.close()

    def _question(self, side: Side, topic: str, records: Sequence[RecordRequest] | None) -> Question | None:
        try:
            return question_of(side, topic, self._defaults[side.name], self._strategies[side.name])
        except Fault:
            if not _needs_no_schema(side, records):
                raise
            return None

    async def _side_encoder(
        self, side: Side, question: Question | None, records: Sequence[RecordRequest] | None
    ) -> SideEncoder:
        format_ = side.format or self._defaults[side.name]
        if question is None:
            return SideEncoder(side.name, format_, format_.codec.encode)
        if self._schemas is None:
            raise Fault(
                FaultKind.FAILED_TO_GET_SCHEMA,
                f"{side.name}: {question} {WHAT_TO_SET}; formats without one: {available_labels()}",
            )
        writer = self._schemas.known_writer(question, side.schema.message)
        if writer is None:
            try:
                writer = await self._found(self._schemas, side, question)
            except Fault:
                if not _needs_no_schema(side, records):
                    raise
                return SideEncoder(side.name, format_, format_.codec.encode)
        return SideEncoder(side.name, writer.format, writer.encoder(), writer.schema.id)

    async def _found(self, schemas: SchemaFormats, side: Side, question: Question) -> SchemaWriter:
        message = side.schema.message
        look_up = self._look_ups.get((question, message))
        if look_up is None:
            loop = asyncio.get_running_loop()
            look_up = loop.run_in_executor(self._threads, schemas.find_writer, question, message)
            self._look_ups[question, message] = look_up
            look_up.add_done_callback(lambda ended: self._looked_up((question, message), ended))
        try:
            return await asyncio.shield(look_up)  # a caller that hangs up must not cancel it for the others
        except SchemaError as error:
            raise Fault(
                FaultKind.FAILED_TO_GET_SCHEMA, f"Failed to get schema for {side.name}s ({question}): {error}"
            ) from None
        except RegistryUnavailableError as error:
            raise Fault(
                FaultKind.SCHEMA_REGISTRY_UNAVAILABLE, f"Failed to get schema for {side.name}s: {error}; try again"
            ) from None

    def _looked_up(self, key: tuple[Question, str | None], ended: asyncio.Future[SchemaWriter]) -> None:
        del self._look_ups[key]
        if not ended.cancelled():
            ended.exception()  # marks the exception as retrieved, even if all callers have hung up


def _needs_no_schema(side: Side, records: Sequence[RecordRequest] | None) -> bool:
    """Whether the side has only nulls, which are the same in every format, and names no schema.

    So records without keys can be written even if the default format of keys has schemas, and the topic has none.
    """
    if records is None or side.schema != SchemaChoice():
        return False
    return all((record.key if side.name == "key" else record.value) is None for record in records)
