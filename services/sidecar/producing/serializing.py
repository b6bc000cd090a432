"""From what a request says to what Kafka gets: keys and values as bytes, the whole batch before the first is sent, so
that one bad record sends nothing.

It goes in two steps. `encoder` finds out how keys and values are written; that may mean to ask the schema registry,
which happens on a few threads of its own and never on the event loop. What it gives encodes any number of records and
asks nobody.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError
from services.sidecar.formats.format import available_labels
from services.sidecar.formats.registered import WHAT_TO_SET
from services.sidecar.formats.schema_formats import SchemaFormats, SchemaWriter
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.records import Outgoing, ProduceRequest, RecordRequest, SchemaChoice, Side
from services.sidecar.producing.schema_choice import question_of
from services.sidecar.schemas.questions import Question
from services.sidecar.schemas.schema import RegistryUnavailableError, SchemaError

LOOK_UP_THREADS = 4
"""They wait more than they work; all requests that wait for one schema need one of them."""
MANY_VALUES_WITH_SCHEMA = 100
"""So many take the event loop 1 to 5 ms; more are encoded on a thread."""


@dataclass(frozen=True, slots=True)
class SideEncoder:
    """How keys, or values, are written."""

    side: str
    format: Format
    encode: Callable[[object], bytes]
    schema_id: int | None = None

    def encoded(self, values: Iterable[object]) -> list[bytes | None]:
        """All values; null is Kafka's null in every format. Fault, with its index, for the first that does not fit."""
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
    """How the records of a request are written. Used as often as wanted, on any thread."""

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
        """The records as Kafka gets them. Fault when one does not fit its format."""
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
"""In half the time of the class itself."""


@dataclass(frozen=True, slots=True)
class Serialized:
    """A request, ready to be sent."""

    records: list[Outgoing]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class Serializer:
    """Knows the formats of requests that name none, and the schemas, where there is a registry."""

    def __init__(self, key_format: Format, value_format: Format, schemas: SchemaFormats | None = None) -> None:
        self._defaults = {"key": key_format, "value": value_format}
        self._schemas = schemas
        self._threads = ThreadPoolExecutor(LOOK_UP_THREADS, "schemas")  # starts none before the first look-up
        self._look_ups: dict[tuple[Question, str | None], asyncio.Future[SchemaWriter]] = {}

    async def serialize(self, request: ProduceRequest, headers: HeaderWriter, *, on_thread: bool = False) -> Serialized:
        """The whole request; on a thread where the caller says that it is large, or this knows.

        Fault when formats and schemas do not go together, no schema is to be had, or a record does not fit.
        """
        encoder = await self.encoder(request.topic, request.key, request.value, request.records)
        if on_thread or encoder.takes_long(request.records):
            records = await asyncio.to_thread(encoder.encode, request.records, headers)
        else:
            records = encoder.encode(request.records, headers)
        return Serialized(records, encoder.key_schema_id, encoder.value_schema_id)

    async def encoder(
        self, topic: str, key: Side, value: Side, records: Sequence[RecordRequest] | None = None
    ) -> BatchEncoder:
        """How records of such a request are written; without waiting where everything about it is known.

        `records`, if they are known, are all that it will be used for.
        """
        sides = (
            (key, question_of(key, topic, self._defaults["key"])),
            (value, question_of(value, topic, self._defaults["value"])),
        )
        return BatchEncoder(*[await self._side_encoder(side, question, records) for side, question in sides])

    def close(self) -> None:
        """Look-ups that run end by themselves, soon; nobody waits for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._schemas is not None:
            self._schemas.close()

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
            return await asyncio.shield(look_up)  # one that hangs up leaves it to the others
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
            ended.exception()  # seen, even if all who asked have hung up


def _needs_no_schema(side: Side, records: Sequence[RecordRequest] | None) -> bool:
    """Whether nothing is to be written but nulls, which are the same in every format, and no schema was named.

    Records without keys are written where the default format of keys has schemas, and no topic has one for its keys.
    """
    if records is None or side.schema != SchemaChoice():
        return False
    return all((record.key if side.name == "key" else record.value) is None for record in records)
