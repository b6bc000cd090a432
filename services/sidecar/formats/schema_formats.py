"""Formats with schemas: finds the schema of a value, and the codec that writes and reads values of that schema.

The codec of a schema is kept as long as there is room. Only methods named find, make or read may take long (a question
to the registry, a compiler); the other methods never wait.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mesh.schemas.framing import HeaderPairs, Part, framed, prefix_of
from mesh.schemas.schema import (
    FormatError,
    RegisteredSchema,
    RegistryUnavailableError,
    SchemaError,
    SchemaKind,
    UnknownSchemaError,
)
from services.sidecar.formats.format import Format
from services.sidecar.formats.schema_codec import SchemaCodec
from services.sidecar.schemas.cache import SingleFlightCache
from services.sidecar.schemas.known import KnownSchemas
from services.sidecar.schemas.questions import Question, question_of

COMPILE_SECONDS = 30.0
"""The longest wait for a codec that another thread makes."""
BROKEN_SECONDS = 10.0
"""The pause before a schema that could not be used is tried again."""

CodecFactory = Callable[[RegisteredSchema, str | None], SchemaCodec]
"""Makes a codec of a schema and, for Protobuf, of a message's full name. SchemaError when the schema cannot be used."""


@dataclass(frozen=True, slots=True)
class SchemaWriter:
    """Writes values of one schema as bytes for Kafka."""

    schema: RegisteredSchema
    codec: SchemaCodec

    @property
    def format(self) -> Format:
        return Format.of_kind(self.schema.kind)

    def encoder(self) -> Callable[[object], bytes]:
        """A JSON value, never null, as bytes with its schema's id. FormatError when it does not fit."""
        prefix, encode = prefix_of(self.schema.id), self.codec.encode
        return lambda value: prefix + encode(value)


class SchemaFormats:
    """The one object of the sidecar for formats with schemas; all threads use it."""

    def __init__(self, schemas: KnownSchemas, factories: Mapping[SchemaKind, CodecFactory], *, most: int) -> None:
        self._schemas = schemas
        self._factories = factories
        self._most = most
        self._codecs: SingleFlightCache[tuple[RegisteredSchema, str | None], SchemaCodec] = SingleFlightCache(
            most, failure_seconds=BROKEN_SECONDS, patience_seconds=COMPILE_SECONDS
        )
        self._readers: dict[bytes, tuple[SchemaKind, SchemaCodec]] = {}

    def known_writer(self, question: Question, message: str | None) -> SchemaWriter | None:
        """The writer, if its schema and codec are already here; else None. Never waits."""
        schema = self._schemas.known(question)
        if schema is None:
            return None
        codec = self._codecs.known((schema, message))
        return None if codec is None else SchemaWriter(schema, codec)

    def find_writer(self, question: Question, message: str | None) -> SchemaWriter:
        """The writer. The call may wait, within bounds. SchemaError or RegistryUnavailableError when it finds none."""
        schema = self._schemas.find(question)
        return SchemaWriter(schema, self._make_codec(schema, message))

    def read(self, format_: Format, part: Part, content: bytes, headers: HeaderPairs | None) -> object:
        """A record's key or value as a JSON value. The call may wait, within bounds, for a schema that is new.

        FormatError when the content does not fit the format, or the registry does not know its schema.
        RegistryUnavailableError when the registry cannot be asked.
        """
        prefix, payload = framed(part, content, headers)
        found = self._readers.get(prefix)
        if found is None:
            found = self._find_reader(prefix)
        kind, codec = found
        if kind is not format_.kind:
            raise FormatError(f"written with a schema of format {Format.of_kind(kind).label}, not {format_.label}")
        return codec.decode(payload)

    def read_any(self, part: Part, content: bytes, headers: HeaderPairs | None) -> tuple[Format, object] | None:
        """As `read`, in the format of the schema that the record names. None if it names none, or does not fit it."""
        try:
            prefix, payload = framed(part, content, headers)
            kind, codec = self._readers.get(prefix) or self._find_reader(prefix)
            return Format.of_kind(kind), codec.decode(payload)
        except FormatError:
            return None

    async def reload(self) -> None:
        """Forgets all schemas and codecs: the registry is asked for each schema again, also for unusable ones."""
        self._schemas.forget()
        self._codecs.clear()
        self._readers.clear()

    def close(self) -> None:
        """The registry is not asked any more; schemas that are known work on."""
        self._schemas.close()

    def _find_reader(self, prefix: bytes) -> tuple[SchemaKind, SchemaCodec]:
        question = question_of(prefix)
        try:
            schema = self._schemas.find(question)
            found = schema.kind, self._make_codec(schema, None)
        except UnknownSchemaError as error:
            raise FormatError(f"of a schema that nobody knows: {error}") from None
        except SchemaError as error:
            raise FormatError(f"of {question}, which cannot be used: {error}") from None
        if len(self._readers) >= self._most:
            self._readers.clear()  # rare; the next records bring the readers back
        self._readers[prefix] = found
        return found

    def _make_codec(self, schema: RegisteredSchema, message: str | None) -> SchemaCodec:
        if message is not None and schema.kind is not SchemaKind.PROTOBUF:
            raise SchemaError(f"a message ({message}) was named, but only PROTOBUF schemas have messages")
        make = self._factories[schema.kind]
        try:
            return self._codecs.get((schema, message), lambda: make(schema, message))
        except TimeoutError:
            raise RegistryUnavailableError(f"schema id {schema.id} is still being compiled") from None
