"""The schema registry as a reader of Avro needs it: schema ids in, parsed schemas out.

An id never changes its meaning, so a schema that was read once is kept. A registry that does not answer is asked
ATTEMPTS times, then the record has to wait (NotNowError). The worker also asks again for an id that the registry does
not know, since registries follow one another with a delay; then the id counts as unknown for a while. If many ids are
unknown, the values are probably no Avro, and the worker asks for each id only once: a rule has to get past such values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import orjson

from mesh.schemas.answers import NOT_THERE, read_schema
from mesh.schemas.avro import AvroSchema, avro_schema
from mesh.schemas.framing import prefix_of
from mesh.schemas.schema import SchemaError, SchemaKind
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
MOST_PATIENT = 16
"""Unknown ids; with more of them, further ones are asked for once only."""
MOST_SCHEMAS = 10_000
"""Kept; the oldest leaves. A topic has one for each version of its schema."""
T = TypeVar("T")


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
        """SchemaError: there is none that can be used. NotNowError: the registry can't say."""
        if known := self._schemas.get(schema_id):
            return known
        until, reason = self._unknown.get(schema_id, (0.0, ""))
        if reason and self._clock() < until:
            raise SchemaError(reason)
        try:
            schema = self._fetched(schema_id)
        except SchemaError as error:
            _keep(self._unknown, schema_id, (self._clock() + UNKNOWN_FOR, str(error)))
            raise
        self._unknown.pop(schema_id, None)
        return _keep(self._schemas, schema_id, schema)

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def _fetched(self, schema_id: int) -> AvroSchema:
        schema = read_schema(prefix_of(schema_id), self._get)
        if schema.kind is not SchemaKind.AVRO:
            raise SchemaError(f"schema {schema_id} is of type {schema.kind.value}; the rule says AVRO")
        return avro_schema(schema)

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
            raise SchemaError(f"the schema registry has no {what}")
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
