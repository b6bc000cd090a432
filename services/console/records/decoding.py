"""Keys and values of records by the schemas that they name: Avro, Protobuf, and JSON of a JSON schema.

Theory of operation
1. A schema never changes its meaning. So the console keeps a reader of each schema, for all viewers, within bounds.
2. One question is under way at a time. After a registry has not answered, all bytes stay undecoded for a while, with
   the reason. So a registry that is away costs all viewers one time-out, and not one each.
3. A look has a deadline, and a number of questions. Bytes that begin like those with a schema by chance would otherwise
   ask the registry for each record.
4. The libraries come with the first schema of their kind. The compiler of Protobuf has a process of its own.
"""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mesh.judging.records import Headers, Record
from mesh.schemas.framing import ID_LENGTH, Part, framed
from mesh.schemas.registry import Registry
from mesh.schemas.schema import FormatError, RegisteredSchema, RegistryUnavailableError, SchemaError, SchemaKind
from services.console import metrics

MOST_SCHEMAS = 200
"""Readers that are kept; the one that was used least recently leaves."""
MOST_CHARACTERS = 4 * 1024 * 1024
"""Characters of schemas that are kept, all together."""
MOST_FAILED = 1000
"""Schemas that could not be used, which are kept with the reason."""
FAILED_S = 30.0
"""Seconds until such a schema is asked for again: registries follow one another with a delay."""
DOWN_S = 5.0
"""Seconds until a registry is asked again that has not answered."""
MOST_QUESTIONS = 50
"""Questions to the registry in one look: a page has no more records than that."""
LARGEST = 1024 * 1024
"""Bytes of a key or a value that are decoded for a page."""
SHOWN = 16 * 1024
"""Characters of a decoded key or value that a page gets."""
KINDS = {SchemaKind.AVRO: "Avro", SchemaKind.PROTOBUF: "Protobuf", SchemaKind.JSON: "JSON Schema"}


_INDENTED = re.compile(r"\n *")
"""JSON has no other new lines: those of its texts are escapes."""


class UndecodedError(Exception):
    """The bytes name a schema and can't be decoded; the text says why."""


class Document(NamedTuple):
    """A decoded key or value."""

    kind: str
    exact: Any
    """With all digits of numbers, for people."""
    plain: Any
    """With what CEL knows, for filters."""


class Decoded(NamedTuple):
    """A key or a value that names a schema, for a page."""

    kind: str = ""
    text: str = ""
    is_cut: bool = False
    why: str = ""
    """Why there is no text."""

    @property
    def on_one_line(self) -> Decoded:
        return self._replace(text=_INDENTED.sub(" ", self.text))


class Contents(NamedTuple):
    """The key and the value of a record; None for bytes that name no schema."""

    key: Decoded | None
    value: Decoded | None


Places = Mapping[tuple[int, int], Contents]
"""By partition and offset."""
Reader = Callable[[bytes], Document]


class Schemas:
    """The schemas of a registry, for all viewers. Any number of threads may use the object at once."""

    def __init__(self, registry: Registry | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._asking, self._lock = threading.Lock(), threading.Lock()
        self._readers: OrderedDict[bytes, tuple[Reader, int]] = OrderedDict()
        self._characters = 0
        self._failed: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._down_until, self._down_reason = float("-inf"), ""

    def look(self, seconds: float) -> Look:
        return Look(self, self._clock() + seconds)

    @property
    def is_there(self) -> bool:
        """Whether this console has a registry."""
        return self._registry is not None

    def known(self, prefix: bytes) -> Reader | None:
        """The reader, if it is kept. UndecodedError: the registry has no such schema, or does not answer now."""
        with self._lock:
            if prefix in self._readers:
                self._readers.move_to_end(prefix)
                return self._readers[prefix][0]
            until, reason = self._failed.get(prefix, (self._down_until, self._down_reason))
            if self._clock() < until:
                raise UndecodedError(reason)
        return None

    def asked(self, prefix: bytes, deadline: float) -> Reader:
        """The reader, from the registry. UndecodedError."""
        if self._registry is None:
            raise UndecodedError("this console knows no schema registry (SCHEMA_REGISTRY_URL)")
        left = deadline - self._clock()
        if left <= 0 or not self._asking.acquire(timeout=left):
            raise UndecodedError(f"no time was left to ask the schema registry for {_name(prefix)}")
        try:
            return self.known(prefix) or self._answered(prefix, self._registry)
        finally:
            self._asking.release()

    def _answered(self, prefix: bytes, registry: Registry) -> Reader:
        try:
            schema = registry.schema(prefix)
            reader = reader_of(schema)
        except RegistryUnavailableError as error:
            metrics.schema_questions.labels("away").inc()
            with self._lock:
                self._down_until, self._down_reason = self._clock() + DOWN_S, str(error)
            raise UndecodedError(str(error)) from None
        except SchemaError as error:
            metrics.schema_questions.labels("unusable").inc()
            with self._lock:
                self._failed[prefix] = self._clock() + FAILED_S, str(error)
                self._failed.move_to_end(prefix)
                if len(self._failed) > MOST_FAILED:
                    self._failed.popitem(last=False)
            raise UndecodedError(str(error)) from None
        metrics.schema_questions.labels("found").inc()
        self._keep(prefix, reader, sum(len(each.text) for each in (schema, *schema.references.values())))
        return reader

    def _keep(self, prefix: bytes, reader: Reader, characters: int) -> None:
        with self._lock:
            self._readers[prefix] = reader, characters
            self._characters += characters
            while len(self._readers) > MOST_SCHEMAS or self._characters > MOST_CHARACTERS:
                _, (_, gone) = self._readers.popitem(last=False)
                self._characters -= gone
            metrics.schemas.set(len(self._readers))


@dataclass(slots=True)
class Look:
    """The decoding of the records of one look."""

    schemas: Schemas
    deadline: float
    questions: int = MOST_QUESTIONS

    def document(self, part: Part, content: bytes, headers: Headers | None) -> Document | None:
        """None: the bytes name no schema. UndecodedError: they name one, and can't be decoded by it."""
        try:
            prefix, payload = framed(part, content, headers)
        except FormatError:
            return None
        reader = self.schemas.known(prefix)
        if reader is None:
            if self.questions <= 0 and self.schemas.is_there:
                raise UndecodedError(f"this look has asked for {MOST_QUESTIONS} schemas, and asks for no more")
            self.questions -= 1
            reader = self.schemas.asked(prefix, self.deadline)
        try:
            return reader(payload)
        except FormatError as error:
            raise UndecodedError(f"not of {_name(prefix)}: {error}") from None
        except RecursionError:
            raise UndecodedError(f"not of {_name(prefix)}: nested too deeply") from None

    def places(self, records: Sequence[Record]) -> Places:
        """The contents of those records that name schemas."""
        found = {}
        for record in records:
            headers = record.headers()
            contents = Contents(
                self._decoded("key", record.key(), headers), self._decoded("value", record.value(), headers)
            )
            if contents != (None, None):
                found[record.partition(), record.offset()] = contents
        return found

    def _decoded(self, part: Part, content: bytes | None, headers: Headers | None) -> Decoded | None:
        if not content:
            return None
        try:
            if len(content) > LARGEST:
                raise UndecodedError(f"values of more than {LARGEST} bytes are not decoded for pages")
            document = self.document(part, content, headers)
            if document is None:
                return None
            text = json.dumps(document.exact, ensure_ascii=False, indent=2, default=_in_json)
        except UndecodedError as error:
            return Decoded(why=str(error))
        except RecursionError:
            return Decoded(why="it is nested too deeply")
        return Decoded(document.kind, text[:SHOWN], len(text) > SHOWN)


def reader_of(schema: RegisteredSchema) -> Reader:
    """Reads values of a schema. SchemaError: the schema can't be used."""
    kind = KINDS[schema.kind]
    match schema.kind:
        case SchemaKind.AVRO:
            return _avro(schema, kind)
        case SchemaKind.PROTOBUF:
            return _protobuf(schema, kind)
    return lambda payload: _json(payload, kind)


def _avro(schema: RegisteredSchema, kind: str) -> Reader:
    from mesh.schemas import avro

    known = avro.avro_schema(schema)

    def read(payload: bytes) -> Document:
        data = io.BytesIO(payload)
        document = avro.read(data, known)
        if left := len(payload) - data.tell():
            raise FormatError(f"{left} of {len(payload)} bytes are left over")
        if not known.has_logical_types:
            return Document(kind, document, document)
        return Document(kind, avro.plain(document, exact=True), avro.plain(document))

    return read


def _protobuf(schema: RegisteredSchema, kind: str) -> Reader:
    from mesh.schemas.protobuf import reading
    from mesh.schemas.protobuf.schema_file import SchemaFile

    file = SchemaFile(schema)

    def read(payload: bytes) -> Document:
        message = reading.read(file, payload)
        document = reading.with_numbers(reading.shown(message, file), message.DESCRIPTOR)
        return Document(kind, document, document)

    return read


def _json(payload: bytes, kind: str) -> Document:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {type(error).__name__}") from None
    return Document(kind, document, document)


def _in_json(value: object) -> str:
    """Bytes as Avro's own JSON has them: a character for each byte."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _name(prefix: bytes) -> str:
    return f"schema {int.from_bytes(prefix[1:])}" if len(prefix) == ID_LENGTH else f"schema {prefix[1:].hex()}"
