"""The faults that a caller may get, in the words of the sidecar's contract.

No HTTP here: `api.status` gives each kind its status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """The caller reads the name as `message` and the value as `code`."""

    INVALID_AUTH_TOKEN = "ERR10000"
    AUTH_TOKEN_EXPIRED = "ERR10001"
    MISSING_AUTH_TOKEN = "ERR10002"
    AUTH_TOKEN_SCOPE_MISMATCH = "ERR10005"
    RUNTIME_EXCEPTION = "ERR10010"
    SERVER_INFO_DISABLED = "ERR10013"
    CONTENT_TYPE_MISMATCH = "ERR10015"
    PATH_NOT_IMPLEMENTED = "ERR10048"
    REQUEST_BODY_MISSING = "ERR10059"
    HANDLER_IS_DISABLED = "ERR10065"
    DOWNSTREAM_ADMIN_FAILED = "ERR10083"
    DOWNSTREAM_ADMIN_DISABLED = "ERR10084"
    VALIDATOR_REQUEST_PARAMETER_QUERY_MISSING = "ERR11000"
    VALIDATOR_REQUEST_PARAMETER_MISSING = "ERR11001"
    VALIDATOR_SCHEMA = "ERR11004"
    VALIDATOR_REQUEST_BODY_MISSING = "ERR11014"
    STARTUP_HOOK_NOT_LOADED = "ERR11019"
    LOGGER_INFO_DISABLED = "ERR12108"
    LOGGER_CONTENT_DISABLED = "ERR12110"
    CONSUMER_INSTANCE_NOT_FOUND = "ERR12200"
    CONSUMER_CONFIG_EXCEPTION = "ERR12201"
    CONSUMER_ALREADY_EXISTS = "ERR12202"
    INVALID_EMBEDDED_FORMAT = "ERR12203"
    CONSUMER_FORMAT_MISMATCH = "ERR12204"
    UNEXPECTED_CONSUMER_READ_EXCEPTION = "ERR12205"
    SERIALIZE_SCHEMA_EXCEPTION = "ERR12206"
    FAILED_TO_COMMIT_OFFSETS = "ERR12207"
    FAILED_TO_GET_SCHEMA = "ERR12208"
    VERSION_WITH_SCHEMA_ID = "ERR12210"
    SCHEMA_WITH_SCHEMA_ID = "ERR12211"
    SCHEMA_WITH_SCHEMA_VERSION = "ERR12213"
    RAW_SCHEMA_WITHOUT_FORMAT = "ERR12214"
    FORMAT_WITH_SUBJECT = "ERR12215"
    PRODUCER_NOT_ENABLED = "ERR12216"
    CONFIG_RELOAD_DISABLED = "ERR12217"
    TOPICREPLAY_METADATA_ERROR = "ERR12218"
    INVALID_TOPIC_NAME = "ERR30001"
    KSQL_IMPLEMENTATION_ERROR = "ERR30002"
    DLQ_ACTIVE_PROCEDURE_ERROR = "ERR30003"
    CONSUMER_ACTIVE_AUDIT_ERROR = "ERR30004"
    # Ours; the original answers an empty 400, has no such bound, or has no such answer.
    REQUEST_BODY_TOO_LARGE = "ERR12901"
    TOO_MANY_CONSUMER_INSTANCES = "ERR12902"
    CONSUMER_INSTANCE_BUSY = "ERR12903"
    ILLEGAL_CONSUMER_STATE = "ERR12904"
    SIDECAR_SUPERSEDED = "ERR12905"
    SCHEMA_REGISTRY_UNAVAILABLE = "ERR12920"
    IDEMPOTENCY_KEY_REUSED = "ERR12950"
    TRANSACTION_REFUSED = "ERR12951"
    TRANSACTIONS_BUSY = "ERR12952"
    TRANSACTION_NOT_DONE = "ERR12953"
    TOO_MANY_PRODUCE_STREAMS = "ERR12954"
    TOKEN_ISSUER_UNAVAILABLE = "ERR12940"
    REQUEST_TOO_SLOW = "ERR12941"
    REQUEST_TOOK_TOO_LONG = "ERR12942"
    TOO_MANY_OPEN_REQUESTS = "ERR12943"
    TOO_MANY_CONNECTIONS = "ERR12944"
    REQUEST_HEADERS_TOO_LARGE = "ERR12945"
    REQUEST_OF_ANOTHER_ORIGIN = "ERR12946"
    TOPIC_NOT_FOUND = "ERR12960"
    KAFKA_UNAVAILABLE = "ERR12961"
    STREAM_NOT_FOUND = "ERR12980"
    STREAM_STATE_NOT_FOUND = "ERR12981"
    STREAM_NOT_READY = "ERR12982"
    STREAM_NOT_REPLACED = "ERR12983"
    REPLAY_NOT_FOUND = "ERR12962"
    TOO_MANY_REPLAYS = "ERR12963"
    AUDIT_FULL = "ERR12970"
    KSQLDB_UNAVAILABLE = "ERR12965"
    TOPIC_REFUSED = "ERR12966"
    TOPIC_EXISTS = "ERR12967"


class Fault(Exception):  # noqa: N818  # a caller may cause a fault too; not every fault is an error of the sidecar
    """A request that cannot be served. `description` has the fact, the place and the remedy."""

    def __init__(self, kind: FaultKind, description: str, metadata: Mapping[str, object] | None = None) -> None:
        super().__init__(description)
        self.kind = kind
        self.description = description
        self.metadata = metadata


@dataclass(frozen=True, slots=True)
class Violation:
    """One member of a request that does not fit the contract."""

    pointer: str
    """JSON pointer into the body; of a parameter, its name after a slash."""
    text: str


def refused(violations: Sequence[Violation]) -> Fault:
    """The contract's own wording for a request that does not fit: the first violation in words, all as data."""
    first = violations[0]
    return Fault(
        FaultKind.VALIDATOR_SCHEMA,
        f"Schema Validation Error - {first.pointer}: {first.text}",
        {"errors": [{"pointer": one.pointer, "message": one.text} for one in violations]},
    )


def invalid(pointer: str, text: str) -> Fault:
    """A request that does not fit in one place."""
    return refused([Violation(pointer, text)])
