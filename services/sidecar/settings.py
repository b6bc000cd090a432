"""Settings of a sidecar: environment `KAFKA_MESH_SIDECAR_<FIELD>`, else the file's `sidecar:` section, else these."""

import re
import socket
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from mesh.rpc.tls import RpcTlsSettings
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.server_certificate import TlsFiles, load
from mesh.settings import Address, AddressList, ServiceSettings, WordList, refuse_open_door
from mesh.traffic.settings import TrafficSettings
from services.sidecar.admin.backend_loggers import BackendFramework
from services.sidecar.auditing.settings import AuditSettings
from services.sidecar.dead_letters.settings import DeadLetterSettings
from services.sidecar.delivering.settings import BackendSettings
from services.sidecar.formats import Format
from services.sidecar.formats.format import available_labels
from services.sidecar.formats.registered import WHAT_TO_SET
from services.sidecar.ksqldb.settings import KsqldbSettings
from services.sidecar.original.translation import original_config
from services.sidecar.reactive.settings import ReactiveSettings
from services.sidecar.security.trust import TokenIssuer
from services.sidecar.streams.settings import StreamsSettings

HTTP_ADDRESS = r"^https?://([^/@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?([/?][^\s#]*)?$"
LONGEST_NAME = 63
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def _name_of_host() -> str:
    """Signs that no name of a sidecar has are dashes; a name that is too long ends with a digest of the whole."""
    host = socket.gethostname()
    name = _NOT_IN_NAMES.sub("-", host)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{sha256(host.encode()).hexdigest()[:8]}"
    return name or "sidecar"


DefaultFormat = Annotated[Format, BeforeValidator(Format.parse)]


class SidecarSettings(
    AuditSettings,
    BackendSettings,
    DeadLetterSettings,
    KsqldbSettings,
    ReactiveSettings,
    RpcTlsSettings,
    StreamsSettings,
    TrafficSettings,
    ServiceSettings,
    service="sidecar",
):
    """Run a sidecar: Kafka over HTTP for the backend beside it."""

    name: str = Field(default_factory=_name_of_host, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$")
    """The sidecar's name for control, in generated instance ids and in its transactional id.

    By default its host's name, so that replicas on several hosts, or in several pods, have different names.
    """
    listen: Address = "127.0.0.1:8084"
    allow_insecure: bool = False
    """Whether the sidecar may listen beyond loopback without authentication of callers.

    Callers are authenticated by token_issuers or by client certificates.
    """
    token_issuers: tuple[TokenIssuer, ...] = ()
    """The issuers whose bearer tokens count (JSON or YAML, see TokenIssuer); none: no token is needed."""
    token_clock_skew_s: int = Field(default=60, ge=0, le=600)
    """How far clocks of issuers may differ from ours."""
    token_keys_ca: Path | None = None
    """The authorities, in PEM, that may sign for issuers' addresses; unset: the system's."""
    token_keys_max_age_ms: PositiveInt = 300_000
    token_keys_max_stale_ms: PositiveInt = 86_400_000
    token_keys_pause_ms: PositiveInt = 10_000
    token_keys_timeout_ms: PositiveInt = 2_000
    """Bounds of an issuer's keys.

    Keys of the first age are fetched again; keys up to the second age serve while their issuer is away. The pause
    separates two requests to an issuer; a token with an unknown key causes a request, too. The last is the time-out of
    an answer.
    """
    tls: bool = False
    """Whether callers come by HTTPS: with tls_certificate, or one that the sidecar makes for itself in state_dir."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_key_password: SecretStr = SecretStr("")
    """Files in PEM, the certificate with its chain, loaded again when they change.

    The password may be ${env:NAME} or ${file:/path}. Setting them sets `tls`.
    """
    tls_client_ca: Path | None = None
    tls_client_optional: bool = False
    """Authorities, in PEM: callers must show a certificate of theirs, or may do so."""
    metrics_listen: Address = "127.0.0.1:7173"
    bootstrap_servers: AddressList = ("127.0.0.1:19092",)
    """The gateway (or any Kafka)."""
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    producer_properties: dict[str, SecretStr] = Field(default_factory=dict)
    consumer_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for all clients of this sidecar, for producers, and for consumers.

    Security is an example. Each may be ${env:NAME} or ${file:/path}.
    """
    _original_warnings: tuple[str, ...] = PrivateAttr(default=())
    original_config_dir: Path | None = None
    """A folder of the light-4j sidecar's YAML files, which count where nothing is set here; see `original`."""
    producer_enabled: bool = True
    consumers_enabled: bool = True
    """Which parts are served; the original's start-up hooks."""
    control_addresses: AddressList = ("127.0.0.1:7070",)
    """The gRPC addresses of control's replicas; the leading replica hears of consumer instances. Empty for none."""
    state_dir: Path | None = Path(".kafka-mesh/sidecar")
    """The folder in which consumer instances outlive the process.

    Empty for none: after a restart only control knows them.
    """
    restore_timeout_ms: PositiveInt = 3_000
    """How long a start waits for control's answer about this sidecar's instances."""
    takeover_timeout_ms: PositiveInt = 15_000
    """How long a start waits for another process of this name, on the same state folder, to give way."""
    log_level: str = "INFO"

    key_format: DefaultFormat = Format.STRING
    value_format: DefaultFormat = Format.JSON
    consumer_key_format: DefaultFormat | None = None
    consumer_value_format: DefaultFormat | None = None
    """Formats of requests and instances that name none; those of instances may differ."""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    """The offset reset of instances that name none, for partitions without a committed offset."""

    schema_registry_url: str = Field(default="", pattern=r"^(https?://[^@\s?#,]+(,https?://[^@\s?#,]+)*)?$")
    """Schema registry with Confluent's API: one or several addresses, with commas between.

    Empty for none: then the formats avro, jsonschema and protobuf are refused.
    """
    schema_registry_user_info: SecretStr = SecretStr("")
    schema_registry_token: SecretStr = SecretStr("")
    """The sidecar's login at the registry: `user:password`, or a bearer token; may be ${env:NAME} or ${file:/path}."""
    schema_registry_cluster: str = ""
    """The logical cluster, in the terms of Confluent's cloud; sent along with a token."""
    schema_registry_ca_location: str = ""
    schema_registry_certificate_location: str = ""
    schema_registry_key_location: str = ""
    schema_registry_key_password: SecretStr = SecretStr("")
    """TLS to the registry, in PEM: the authorities for its certificate, and the sidecar's own certificate and key."""
    schema_registry_timeout_ms: PositiveInt = 2_000
    schema_registry_attempts: int = Field(default=2, ge=1, le=10)
    """The time-out of one attempt to ask the registry, and the number of attempts.

    Together they must stay below the 5 s that a read waits for its consumer. Otherwise the read reports a busy consumer
    in place of the registry's fault.
    """
    schema_cache_size: PositiveInt = 1_000
    """Schemas that are kept, each with its codec."""
    schema_latest_ttl_ms: PositiveInt = 300_000
    """How long the latest version of a subject counts as the latest; all others never change."""
    auto_register_schemas: bool = True
    """Whether the raw schema of a request is registered where its subject does not have it yet."""
    use_no_wrapping_avro: bool = False
    """Whether values of Avro unions are read plain, `5` instead of `{"int": 5}`. Both can be written."""

    max_request_bytes: PositiveInt = 1_000_000
    max_connections: PositiveInt = 1_000
    max_open_produces: PositiveInt = 256
    max_open_reads: PositiveInt = 256
    max_open_calls: PositiveInt = 256
    """Requests at once: that produce, that read records, all others; one more is turned away (429)."""
    max_open_body_bytes: PositiveInt = 67_108_864
    """The bytes of the bodies of all open requests; one more is turned away (429).

    A parsed body takes several times its bytes.
    """
    max_header_bytes: PositiveInt = 32_768
    max_head_ms: PositiveInt = 10_000
    max_body_ms: PositiveInt = 30_000
    max_call_ms: PositiveInt = 120_000
    """The size of a request's headers, and the time of its head, its body and its answer.

    A streamed body or answer may take longer; its silence is bounded.
    """
    max_queued_records: PositiveInt = 100_000
    max_queued_bytes: PositiveInt = 32 * 1024 * 1024
    queue_timeout_ms: PositiveInt = 5_000
    """How long a request waits for room among the records that wait for delivery, before it is turned away."""
    delivery_timeout_ms: PositiveInt = 30_000
    unknown_topic_timeout_ms: PositiveInt = 1_000
    """How long a request waits for its topic to appear: a rule that adds it may be on its way."""
    linger_ms: int = Field(default=5, ge=0)
    """How long records wait for more, if many are on the way; as in Java's client since Kafka 4.0 (KIP-1030)."""
    batch_bytes: PositiveInt = 1_000_000
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """The batches for Kafka: their size, the time that they wait for more records, and their compression."""
    max_record_bytes: PositiveInt = 1_048_576
    forward_authorization: bool = False
    """Whether the caller's Authorization header goes into the records; the original always does, which leaks tokens."""
    caller_id: str = ""
    """If set, each record carries it as header `caller_id`."""
    max_produce_streams: PositiveInt = 50
    max_line_bytes: PositiveInt = 1_048_576
    stream_idle_timeout_ms: PositiveInt = 60_000
    """Bounds of produce requests that send line by line: their number, the bytes of a line, and the time of silence."""

    transactional_ids: WordList = ()
    """The transactional ids of the sidecar: a transaction uses the first id whose home cluster has the topics.

    Empty for one id, made of the sidecar's name. Each has its topic `<id>.idempotency` on its home.
    """
    max_waiting_transactions: PositiveInt = 100
    transaction_timeout_ms: int = Field(default=30_000, ge=1_000)
    """How long one transaction may take, from its turn to its commit; also how long a request waits for its turn."""
    idempotency_keep_ms: PositiveInt = 86_400_000
    idempotency_max_keys: PositiveInt = 10_000
    idempotency_max_bytes: PositiveInt = 8 * 1024 * 1024
    """How long, how many and how large the first answers to requests with an Idempotency-Key are kept."""

    max_instances: PositiveInt = 50
    instance_timeout_ms: PositiveInt = 300_000
    """An instance without a call for this long is closed."""
    request_timeout_ms: PositiveInt = 1_000
    """The longest wait of a read for records, unless the instance sets another."""
    max_read_ms: PositiveInt = 60_000
    """The upper bound of the wait that an instance or a read may request."""
    read_linger_ms: int = Field(default=10, ge=0)
    """How long a read that has a record waits for more."""
    request_max_bytes: PositiveInt = 102_400
    """Keys and values of one read; a larger record still comes, alone."""
    max_poll_records: PositiveInt = 500
    prefetch_bytes: PositiveInt = 1024 * 1024
    """The most that an instance fetches ahead."""
    commit_timeout_ms: PositiveInt = 10_000
    session_timeout_ms: PositiveInt = 10_000
    """The time that a group keeps the place of an instance whose sidecar was killed.

    After that the instance gets its partitions again. Static members get them at once.
    """
    stream_window: PositiveInt = 500
    max_stream_window: PositiveInt = 10_000
    """Records of one stream that may wait for acknowledgement: the default, and the bound of a stream's own value."""
    stream_heartbeat_ms: PositiveInt = 15_000
    """The interval at which a stream without records shows a sign of life."""
    public_url: str = Field(default="", pattern=r"^(https?://[^/\s?#]+(/[^\s?#]*)?)?$")
    """The address at which backends reach this sidecar, for `base_uri`; empty for the address of each request."""
    trust_forwarded_headers: bool = False
    """Whether the sidecar trusts X-Forwarded-Proto, -Host and -Prefix of a proxy in front."""

    service_id: str = "kafka-mesh-sidecar"
    """How the admin endpoints call this service."""
    admin_listen: Address | None = None
    """A second address for `/adm`, `/health` and `/spec.yaml`; if it is set, `/adm` is served only there."""
    info_enabled: bool = True
    logger_enabled: bool = True
    log_content_enabled: bool = True
    """Whether the last log lines are kept in memory (4 MiB at most) and can be read over HTTP."""
    log_content_default_ms: PositiveInt = 600_000
    """How far back a request for log lines goes by default."""
    config_reload_enabled: bool = True
    logging_downstream_enabled: bool = False
    """Whether calls on loggers with `X-Adm-PassThrough: true` go to the backend."""
    downstream_host: str = Field(default="http://localhost:8081", pattern=HTTP_ADDRESS)
    """The backend beside this sidecar."""
    downstream_framework: BackendFramework = BackendFramework.LIGHT4J
    """Whose way of asking for loggers the backend speaks: Light4j or SpringBoot."""
    downstream_timeout_ms: PositiveInt = 3_000
    chaos_monkey_enabled: bool = False
    """Whether faults on purpose can be set."""
    statistics_interval_ms: int = Field(default=15_000, ge=0)
    """How often Kafka clients report librdkafka's own statistics, for the metrics; 0 is never."""
    influx_url: str = Field(default="", pattern=f"^$|{HTTP_ADDRESS}")
    """The address for metrics in line protocol: http://HOST:8086/api/v2/write?org=O&bucket=B; empty for none."""
    influx_token: SecretStr = SecretStr("")
    influx_interval_ms: PositiveInt = 60_000

    drain_timeout_ms: PositiveInt = 8_000
    health_timeout_ms: PositiveInt = 2_000
    health_downstream_enabled: bool = False
    """Whether the backend's own health is a part of this sidecar's readiness."""
    health_downstream_path: str = Field(default="/health", pattern="^/")
    health_json: bool = False
    """Whether /health answers each check's result instead of one word."""

    @model_validator(mode="wrap")
    @classmethod
    def _original_beneath(
        cls, given: dict[str, Any], validated: ModelWrapValidatorHandler["SidecarSettings"]
    ) -> "SidecarSettings":
        """The settings of a folder of the original's files, below all settings that are set here. Reads files."""
        if not given.get("original_config_dir"):
            return validated(given)
        original = original_config(Path(given["original_config_dir"]), given)
        properties = {
            name: {**original.settings[name], **(given.get(name) or {})}
            for name in ("kafka_properties", "producer_properties", "consumer_properties")
        }
        settings = validated({**original.settings, **given, **properties})
        settings._original_warnings = original.warnings
        return settings

    @field_validator("kafka_properties", "producer_properties", "consumer_properties")
    @classmethod
    def _references_lead_somewhere(cls, properties: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in properties.items():
            try:
                resolve_property(name, value.get_secret_value())
            except UnresolvedReferenceError as error:
                raise ValueError(str(error)) from None
        return properties

    @field_validator("state_dir", mode="before")
    @classmethod
    def _empty_means_none(cls, value: object) -> object:
        return value or None

    @field_validator("token_issuers")
    @classmethod
    def _told_apart(cls, issuers: tuple[TokenIssuer, ...]) -> tuple[TokenIssuer, ...]:
        if len({issuer.issuer for issuer in issuers}) < len(issuers):
            raise ValueError("two of them have the same issuer (or none), so that a token would belong to both")
        return issuers

    @model_validator(mode="after")
    def _calls_have_time(self) -> "SidecarSettings":
        for name in ("max_read_ms", "stream_heartbeat_ms", "stream_idle_timeout_ms"):
            if getattr(self, name) >= self.max_call_ms:
                raise ValueError(f"{name} {getattr(self, name)} has to be less than max_call_ms {self.max_call_ms}")
        return self

    @model_validator(mode="after")
    def _schemas_can_be_had(self) -> "SidecarSettings":
        if self.schema_registry_user_info.get_secret_value() and self.schema_registry_token.get_secret_value():
            raise ValueError("schema_registry_user_info and schema_registry_token exclude each other; set one")
        for name in ("key_format", "value_format", "consumer_key_format", "consumer_value_format"):
            format_: Format | None = getattr(self, name)
            if format_ is not None and format_.kind is not None and not self.schema_registry_url:
                raise ValueError(f"{name} {format_.label} {WHAT_TO_SET}, or take one of {available_labels()}")
        return self

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "SidecarSettings":
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither for an own certificate")
        if self.tls and self.tls_certificate is None and self.state_dir is None:
            raise ValueError("tls without tls_certificate makes one of its own: it needs state_dir to keep it in")
        if self.tls_client_ca is not None and not self.serves_tls:
            raise ValueError("tls_client_ca is for TLS: set tls, or tls_certificate and tls_key")
        if self.tls_files is not None:
            load(self.tls_files)  # a part that cannot be served is reported before any other part begins
        return self

    @model_validator(mode="after")
    def _loopback_only(self) -> "SidecarSettings":
        for name, address in (("listen", self.listen), ("admin_listen", self.admin_listen)):
            if address:
                harm = "everyone who reaches this address could produce and consume: set token_issuers"
                safe = self.asks_who_calls or self.allow_insecure
                refuse_open_door(name, address, self.service, safe=safe, harm=harm)
        return self

    @property
    def original_warnings(self) -> tuple[str, ...]:
        """The settings of the original's files that are not used, each with the reason."""
        return self._original_warnings

    @property
    def instance_formats(self) -> tuple[Format, Format]:
        """The formats of keys and of values, for an instance that names none."""
        return self.consumer_key_format or self.key_format, self.consumer_value_format or self.value_format

    @property
    def serves_tls(self) -> bool:
        return self.tls or self.tls_certificate is not None

    @property
    def asks_who_calls(self) -> bool:
        """Whether a caller needs a token or a certificate."""
        return bool(self.token_issuers) or (self.tls_client_ca is not None and not self.tls_client_optional)

    @property
    def tls_files(self) -> TlsFiles | None:
        """The TLS files that the settings name; None if there are none."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        password = self.tls_key_password.get_secret_value()
        return TlsFiles(self.tls_certificate, self.tls_key, password, self.tls_client_ca, self.tls_client_optional)
