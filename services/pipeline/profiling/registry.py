"""Schemas of a registry with Confluent's API, for a task: each schema is requested once."""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

import fastavro

from mesh.schemas.avro import Reader, reader_of
from services.pipeline.profiling.formats import Format, NoSchemas, Schema, Schemas

TIMEOUT_S = 10.0
ATTEMPTS = 3  # after as many failures in a row, the task sends no more requests
MOST_ABSENT = 100  # unknown numbers; after as many, the values only seem to have a schema
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The address of a registry; plain data that can be pickled."""

    url: str = ""
    """Empty: there is no registry."""
    credentials: str = field(default="", repr=False)
    """USER:PASSWORD."""

    def schemas(self) -> Schemas:
        return Registry(self) if self.url else NoSchemas()


class Registry:
    """The schemas of a registry, cached."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._known: dict[int, Schema] = {}
        self._absent: set[int] = set()
        self._failures = 0

    def find(self, number: int) -> Schema | None:
        if number in self._known:
            return self._known[number]
        if number in self._absent or len(self._absent) >= MOST_ABSENT:
            return None
        if self._failures >= ATTEMPTS:
            raise LookupError(number)
        try:
            found = self._ask(number)
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            self._failures += 1
            raise LookupError(number) from error  # it does not answer, or answers with something else
        self._failures = 0
        if found is None:
            self._absent.add(number)
        else:
            self._known[number] = found
        return found

    def _ask(self, number: int) -> Schema | None:
        request = urllib.request.Request(f"{self._access.url.rstrip('/')}/schemas/ids/{number}")
        if self._access.credentials:
            encoded = base64.b64encode(self._access.credentials.encode()).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return _schema(said.get("schemaType", "AVRO"), said["schema"])


def _schema(kind: str, text: str) -> Schema:
    if kind == "JSON":
        return JsonSchema()
    if kind == "PROTOBUF":
        return ProtobufSchema()
    try:
        parsed = fastavro.parse_schema(json.loads(text))
        return AvroSchema(parsed, reader_of(parsed))
    except (ValueError, KeyError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
        return AvroSchema(None)  # it refers to other schemas; its format is Avro all the same


@dataclass(frozen=True, slots=True)
class JsonSchema:
    format: Format = Format.JSON_SCHEMA

    def document(self, payload: bytes) -> Any:
        return json.loads(payload)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    format: Format = Format.PROTOBUF

    def document(self, payload: bytes) -> Any:
        raise ValueError("a profile does not read the fields of Protobuf values")


@dataclass(frozen=True, slots=True)
class AvroSchema:
    parsed: Any
    reader: Reader = fastavro.schemaless_reader
    format: Format = Format.AVRO

    def document(self, payload: bytes) -> Any:
        if self.parsed is None:
            raise ValueError("the schema is not known in full")
        try:
            return self.reader(io.BytesIO(payload), self.parsed, None)
        except Exception as error:  # it raises many kinds of errors for bytes of another schema
            raise ValueError(f"no value of its schema: {type(error).__name__}") from error
