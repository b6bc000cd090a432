"""The client of the schema registry, on top of confluent-kafka's client: bounded in time, and with metrics.

All calls block, so none of them runs on the event loop. One question takes at most `attempts` times `timeout_seconds`,
plus the pauses in between. After a question without an answer, all others fail at once for DOWN_SECONDS. So a registry
that is gone costs each caller at most one such time.

Confluent-kafka's client caches schemas without a bound, so this module clears that cache: `KnownSchemas` has its own.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from mesh.schemas.answers import NOT_THERE
from mesh.schemas.schema import (
    Reference,
    RegistryUnavailableError,
    SchemaError,
    SchemaKind,
    UnknownSchemaError,
)
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from services.sidecar.telemetry import metrics

DOWN_SECONDS = 1.0
RETRY_WAIT_MS = 100
LONGEST_REASON = 500
"""Characters of the registry's reason for a refusal; some registries send a stack trace."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The registry's address and credentials. Secrets may be references, resolved anew for each new client."""

    url: str
    """One address, or several with commas between; they are tried in turn."""
    user_info: str = ""
    token: str = ""
    cluster: str = ""
    """The logical cluster of Confluent's cloud, sent with a bearer token."""
    ca_location: str = ""
    certificate_location: str = ""
    key_location: str = ""
    key_password: str = ""
    timeout_seconds: float = 3.0
    attempts: int = 2

    def properties(self) -> dict[str, Any]:
        """The properties of confluent-kafka's client. UnresolvedReferenceError, ValueError or OSError if one fails."""
        found: dict[str, Any] = {
            "url": self.url,
            "timeout": self.timeout_seconds,
            "max.retries": self.attempts - 1,
            "retries.wait.ms": RETRY_WAIT_MS,
            "ssl.ca.location": self.ca_location,
            "ssl.certificate.location": self.certificate_location,
            "ssl.key.location": self.key_location,
            "ssl.key.password": _secret("key_password", self.key_password),
            "basic.auth.user.info": _secret("user_info", self.user_info),
        }
        if self.token:
            found["bearer.auth.credentials.source"] = "STATIC_TOKEN"
            found["bearer.auth.token"] = _secret("token", self.token)
            found["bearer.auth.logical.cluster"] = self.cluster
        return {name: value for name, value in found.items() if value != "" or name == "bearer.auth.logical.cluster"}


def _secret(name: str, value: str) -> str:
    return resolve_property(f"schema_registry_{name}", value)


@dataclass(frozen=True, slots=True)
class Answer:
    """A schema from the registry, with its references not followed yet."""

    id: int
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...]
    guid: str = ""
    subject: str = ""
    version: int | None = None


class SchemaRegistry:
    """One registry; any number of threads may use the object at once."""

    def __init__(
        self,
        access: RegistryAccess,
        *,
        connect: Callable[[dict[str, Any]], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` makes a client of its properties: confluent-kafka's client, unless a test brings another."""
        self._access = access
        self._connect = connect or _confluent_client
        self._clock = clock
        self._lock = threading.Lock()
        self._client: Any = None
        self._down_until = float("-inf")
        self._down_reason = ""

    def by_id(self, schema_id: int) -> Answer:
        schema = self._ask("id", f"schema id {schema_id}", lambda client: client.get_schema(schema_id))
        return _answer(schema, schema_id)

    def by_guid(self, guid: str) -> Answer:
        schema = self._ask("guid", f"schema {guid}", lambda client: client.get_schema_by_guid(guid))
        return _answer(schema, 0, guid)

    def by_version(self, subject: str, version: int) -> Answer:
        """One version of a subject. Deleted versions count too, because schemas may still refer to them."""
        what = f"version {version} of subject {subject}"
        return _registered(
            self._ask("version", what, lambda client: client.get_version(subject, version, deleted=True))
        )

    def latest(self, subject: str) -> Answer:
        what = f"subject {subject}"
        return _registered(self._ask("latest", what, lambda client: client.get_version(subject, "latest")))

    def look_up(self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...]) -> int:
        """The id of a schema that the subject has. UnknownSchemaError when the subject does not have the schema."""
        schema, what = _to_send(kind, text, references), f"such {kind.value} schema under subject {subject}"
        return int(self._ask("look_up", what, lambda client: client.lookup_schema(subject, schema)).schema_id)

    def register(self, subject: str, kind: SchemaKind, text: str, references: tuple[Reference, ...]) -> int:
        """Registers a schema under the subject; returns its id. SchemaError when the registry refuses the schema."""
        schema = _to_send(kind, text, references)
        return int(self._ask("register", f"subject {subject}", lambda client: client.register_schema(subject, schema)))

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ask(self, call: str, what: str, ask: Callable[[Any], T]) -> T:
        client = self._connected()
        started = time.perf_counter()
        try:
            return ask(client)
        except Exception as error:  # noqa: BLE001  # a dozen kinds, from three libraries
            raise self._in_our_words(call, what, error) from None
        finally:
            client.clear_caches()
            metrics.schema_registry_seconds.labels(call).observe(time.perf_counter() - started)

    def _connected(self) -> Any:
        """The client. A new client is made after a failure, because secrets and certificates may have changed."""
        with self._lock:
            if self._clock() < self._down_until:
                raise _counted("down", RegistryUnavailableError(self._down_reason))
            if self._client is None:
                try:
                    self._client = self._connect(self._access.properties())
                except (UnresolvedReferenceError, OSError, ValueError, TypeError) as error:
                    reason = f"the schema registry cannot be asked: {error}"
                    raise _counted("settings", RegistryUnavailableError(reason)) from None
            return self._client

    def _in_our_words(self, call: str, what: str, error: Exception) -> Exception:
        status, code = getattr(error, "http_status_code", None), getattr(error, "error_code", None)
        said = f"{str(getattr(error, 'error_message', ''))[:LONGEST_REASON]}, {code}"
        match status:
            case 404 if code in NOT_THERE:
                return _counted("unknown", UnknownSchemaError(f"the schema registry has no {what} ({said})"))
            case 409:
                return _counted("incompatible", SchemaError(f"not compatible with what {what} has ({said})"))
            case 400 | 422:
                return _counted("refused", SchemaError(f"the schema registry refuses it for {what} ({said})"))
            case 401 | 403:
                problem = f"does not let this sidecar in ({status}): schema_registry_user_info, schema_registry_token"
            case None:
                problem = f"does not answer ({type(error).__name__})"
            case _:
                problem = f"answers {status} ({said})"
        reason = f"the schema registry at {self._access.url} {problem}; needed is {what}"
        log.warning("schema registry failed", call=call, reason=reason)
        with self._lock:
            self._client = None  # not closed: other threads may be waiting for its answers
            self._down_until, self._down_reason = self._clock() + DOWN_SECONDS, reason
        return _counted("unavailable", RegistryUnavailableError(reason))


def _counted(reason: str, error: Exception) -> Exception:
    metrics.schema_registry_failures.labels(reason).inc()
    return error


def load_client() -> None:
    """Imports the client, which takes a third of a second and 16 MB. A sidecar without a registry saves that; a sidecar
    with a registry imports the client before the first request."""
    import confluent_kafka.schema_registry  # noqa: F401


def _confluent_client(properties: dict[str, Any]) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient(properties)


def _to_send(kind: SchemaKind, text: str, references: tuple[Reference, ...]) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, kind.value, [SchemaReference(one.name, one.subject, one.version) for one in references])


def _registered(found: Any) -> Answer:
    return _answer(found.schema, found.schema_id, found.guid or "", found.subject or "", found.version)


def _answer(schema: Any, schema_id: int, guid: str = "", subject: str = "", version: int | None = None) -> Answer:
    given = schema.schema_type or "AVRO"  # registries leave the type out for Avro
    try:
        kind = SchemaKind(given)
    except ValueError:
        known = ", ".join(one.value for one in SchemaKind)
        raise SchemaError(
            f"schema id {schema_id} is of type {given}, which this sidecar does not know ({known})"
        ) from None
    references = tuple(Reference(one.name, one.subject, one.version) for one in schema.references or ())
    return Answer(schema_id, kind, schema.schema_str or "", references, guid, subject, version)
