"""The schema registry as a reader of Avro needs it: schema ids in, parsed schemas out.

An id never changes its meaning, so a schema that was read once is kept. A registry that does not answer is asked
ATTEMPTS times, then the record has to wait (NotNowError). The worker also asks again for an id that the registry does
not know, since registries follow one another with a delay; then the id counts as unknown for a while. If many ids are
unknown, the values are probably no Avro, and the worker asks for each id only once: a rule has to get past such values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import fastavro
import httpx
import orjson

from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.tls import TlsSettingsError, https_context
from services.router.forwarding.records import NotNowError

ATTEMPTS = 3
TIMEOUT = 3.0
"""Seconds for one attempt."""
PAUSE = 0.2
"""Seconds between the first two attempts; twice as long between the next."""
UNKNOWN_FOR = 30.0
"""Seconds before an unknown id is asked for again."""
NOT_THERE = (40401, 40402, 40403)
"""A registry's word that it has no such subject, version or schema. Any other 404 is that of a wrong address."""
MOST_PATIENT = 16
"""Unknown ids; with more of them, further ones are asked for once only."""
MOST_SCHEMAS = 10_000
"""Kept; the oldest leaves. A topic has one for each version of its schema."""
MOST_REFERENCES = 100
"""Schemas that one schema may take in, at any depth."""
T = TypeVar("T")


class UnknownSchemaError(Exception):
    """The registry has no such schema, or one that is no Avro schema."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema of the registry."""

    id: int
    parsed: Any
    has_logical_types: bool
    """Whether reading it yields decimals, dates and the like."""


class SchemaRegistry:
    """One registry with Confluent's API. Not for several threads at once."""

    def __init__(
        self,
        url: str,
        user_info: str = "",
        ca_location: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`user_info`: `user:password`, or a reference to it; read anew for each request."""
        self._url = url.rstrip("/")
        self._user_info = user_info
        self._ca_location = ca_location
        self._clock, self._sleep = clock, sleep
        self._client: httpx.Client | None = None
        self._schemas: dict[int, AvroSchema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> AvroSchema:
        """UnknownSchemaError: there is none. NotNowError: the registry can't say."""
        if known := self._schemas.get(schema_id):
            return known
        until, reason = self._unknown.get(schema_id, (0.0, ""))
        if reason and self._clock() < until:
            raise UnknownSchemaError(reason)
        try:
            schema = self._fetched(schema_id)
        except UnknownSchemaError as error:
            _keep(self._unknown, schema_id, (self._clock() + UNKNOWN_FOR, str(error)))
            raise
        self._unknown.pop(schema_id, None)
        return _keep(self._schemas, schema_id, schema)

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def _fetched(self, schema_id: int) -> AvroSchema:
        answer = self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
        kind = answer.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise UnknownSchemaError(f"schema {schema_id} is of type {kind}; the rule says AVRO")
        named: dict[str, Any] = {}
        texts: list[str] = []
        try:
            self._take_in(answer, named, texts)
            parsed = fastavro.parse_schema(orjson.loads(answer["schema"]), named_schemas=named)
        except (fastavro.schema.SchemaParseException, LookupError, TypeError, ValueError) as error:
            reason = f"schema {schema_id} of the registry can't be read as Avro: {type(error).__name__}"
            raise UnknownSchemaError(reason) from None
        if _has_weightless_lists(parsed, named, set()):
            raise UnknownSchemaError(f"schema {schema_id} has lists of what takes no bytes, which may be of any length")
        return AvroSchema(schema_id, parsed, any("logicalType" in text for text in (*texts, answer["schema"])))

    def _take_in(self, answer: Mapping[str, Any], named: dict[str, Any], texts: list[str]) -> None:
        """Reads the schemas that the schema refers to into `named`, each after the schemas it refers to itself."""
        for reference in answer.get("references") or ():
            if reference["name"] in named:
                continue
            if len(texts) >= MOST_REFERENCES:
                raise UnknownSchemaError(f"a schema refers to more than {MOST_REFERENCES} others")
            subject, version = reference["subject"], reference["version"]
            path = f"/subjects/{quote(subject, safe='')}/versions/{int(version)}"
            referred = self._get(path, f"version {version} of subject {subject!r}")
            texts.append(referred["schema"])
            self._take_in(referred, named, texts)
            fastavro.parse_schema(orjson.loads(referred["schema"]), named_schemas=named)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        problem = ""
        absent = False
        for attempt in range(ATTEMPTS):
            if absent and len(self._unknown) >= MOST_PATIENT:
                break
            if attempt:
                self._sleep(PAUSE * 2 ** (attempt - 1))
            try:
                response = self._connected().get(self._url + path, auth=self._login())
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                problem, absent = f"does not answer ({type(error).__name__})", False
                continue
            answer = _object(response.content)
            absent = response.status_code == httpx.codes.NOT_FOUND and answer.get("error_code") in NOT_THERE
            if response.status_code != httpx.codes.OK:
                problem = f"answers {response.status_code} {response.reason_phrase}"
            elif isinstance(answer.get("schema"), str):
                return answer
            else:
                problem = "answers with something else than a schema; is its address right?"
        if absent:
            raise UnknownSchemaError(f"the schema registry has no {what}")
        raise NotNowError(f"the schema registry at {self._url} {problem}; needed is {what}")

    def _login(self) -> tuple[str, str] | None:
        if not self._user_info:
            return None
        try:
            user, _, password = resolve_property("schema_registry_user_info", self._user_info).partition(":")
        except UnresolvedReferenceError as error:
            raise NotNowError(str(error)) from None
        return user, password

    def _connected(self) -> httpx.Client:
        if self._client is None:
            try:
                trusted = https_context("", self._ca_location)
            except (TlsSettingsError, UnresolvedReferenceError) as error:
                raise NotNowError(f"schema registry: {error}") from None
            self._client = httpx.Client(timeout=TIMEOUT, verify=trusted)
        return self._client


def _has_weightless_lists(schema: Any, named: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether some bytes of such data could stand for a list that fills the memory."""
    match schema:
        case str() if schema in named and schema not in seen:
            seen.add(schema)
            return _has_weightless_lists(named[schema], named, seen)
        case list():
            return any(_has_weightless_lists(each, named, seen) for each in schema)
        case {"type": "array", "items": items}:
            return _is_weightless(items, named, frozenset()) or _has_weightless_lists(items, named, seen)
        case {"type": "map", "values": values}:
            return _has_weightless_lists(values, named, seen)
        case {"type": "record" | "error", "fields": fields}:
            return any(_has_weightless_lists(each["type"], named, seen) for each in fields)
    return False


def _is_weightless(schema: Any, named: Mapping[str, Any], within: frozenset[str]) -> bool:
    """Whether a value takes no bytes."""
    match schema:
        case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case str() if schema in named and schema not in within:
            return _is_weightless(named[schema], named, within | {schema})
        case {"type": "record" | "error", "fields": fields}:
            return all(_is_weightless(each["type"], named, within) for each in fields)
    return False


def _object(content: bytes) -> dict[str, Any]:
    """The JSON object that this is; an empty one where it is none."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _keep(kept: dict[int, T], key: int, value: T) -> T:
    if len(kept) >= MOST_SCHEMAS:
        kept.pop(next(iter(kept)))
    kept[key] = value
    return value
