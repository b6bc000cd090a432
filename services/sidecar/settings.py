"""Settings of a sidecar: environment `KAFKA_MESH_SIDECAR_<FIELD>`, else the file's `sidecar:` section, else these."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, SecretStr, field_validator, model_validator

from mesh.settings import Address, AddressList, ServiceSettings, WordList, host_port
from services.sidecar.admin.backend_loggers import BackendFramework
from services.sidecar.formats import Format
from services.sidecar.formats.format import available_labels


def _usable(given: object) -> Format:
    format_ = Format.parse(given)
    if not format_.codec.available:
        raise ValueError(
            f"{format_.label} needs a schema registry, which this sidecar does not use yet; "
            f"take one of {available_labels()}"
        )
    return format_


DefaultFormat = Annotated[Format, BeforeValidator(_usable)]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class SidecarSettings(ServiceSettings, service="sidecar"):
    """Run a sidecar: Kafka over HTTP for the backend beside it."""

    name: str = Field(default="sidecar-1", pattern=r"^[A-Za-z0-9._-]{1,63}$")
    """Who this sidecar is, for control and in generated instance ids."""
    listen: Address = "127.0.0.1:8084"
    allow_insecure_bind: bool = False
    """The HTTP side asks nobody who they are, so it listens on loopback only, unless this is set."""
    metrics_listen: Address = "127.0.0.1:7173"
    bootstrap_servers: AddressList = ("127.0.0.1:19092",)
    """The gateway (or any Kafka)."""
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for every client of this sidecar: security and the like."""
    control_address: Address | None = "127.0.0.1:7070"
    """Who is told of consumer instances; empty for nobody."""
    state_dir: Path | None = Path(".kafka-mesh/sidecar")
    """Where consumer instances outlive the process; empty for nowhere: after a restart control alone knows them."""
    restore_timeout_ms: PositiveInt = 3_000
    """How long a start waits for what control knows of this sidecar's instances."""
    takeover_timeout_ms: PositiveInt = 15_000
    """How long a start waits for another process of this name, on the same state folder, to give way."""
    log_level: str = "INFO"

    key_format: DefaultFormat = Format.STRING
    value_format: DefaultFormat = Format.JSON
    """Formats of requests and instances that name none."""

    max_request_bytes: PositiveInt = 1_000_000
    max_connections: PositiveInt = 1_000
    max_queued_records: PositiveInt = 100_000
    max_queued_bytes: PositiveInt = 32 * 1024 * 1024
    queue_timeout_ms: PositiveInt = 5_000
    """How long a request waits for room among the records that wait for delivery, before it is turned away."""
    delivery_timeout_ms: PositiveInt = 30_000
    unknown_topic_timeout_ms: PositiveInt = 1_000
    """How long a request waits for its topic to appear: a rule that adds it may be on its way."""
    linger_ms: int = Field(default=1, ge=0)
    batch_bytes: PositiveInt = 1_000_000
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """How batches go to Kafka: what may be in one, how long it waits for more records, how it is packed."""
    max_record_bytes: PositiveInt = 1_048_576
    forward_authorization: bool = False
    """Whether the caller's Authorization header goes into the records; the original always does, which leaks tokens."""
    caller_id: str = ""
    """If set, each record carries it as header `caller_id`."""
    audit_topic: str = ""
    """Where failures that no answer tells (`async=true`) are written to, besides the log; empty for the log alone."""
    max_produce_streams: PositiveInt = 50
    max_line_bytes: PositiveInt = 1_048_576
    stream_idle_timeout_ms: PositiveInt = 60_000
    """Of produce requests that send line by line: how many at once, how long a line, how long they may be silent."""

    transactional_ids: WordList = ()
    """As whom transactions are written: the first whose home cluster has the topics; empty for one, made of the
    sidecar's name. Each has its topic `<id>.idempotency` on its home."""
    max_waiting_transactions: PositiveInt = 100
    transaction_timeout_ms: PositiveInt = 30_000
    """How long one transaction may take, from its turn to its commit; also how long a request waits for its turn."""
    idempotency_keep_ms: PositiveInt = 86_400_000
    idempotency_max_keys: PositiveInt = 10_000
    idempotency_max_bytes: PositiveInt = 8 * 1024 * 1024
    """How long, how many and how large the first answers to requests with an Idempotency-Key are kept."""

    max_instances: PositiveInt = 50
    instance_timeout_ms: PositiveInt = 300_000
    """An instance that nobody calls for this long is closed."""
    request_timeout_ms: PositiveInt = 1_000
    """How long a read waits for records at most, unless the instance says otherwise."""
    max_read_ms: PositiveInt = 60_000
    """Upper bound of what an instance or a read may ask for."""
    read_linger_ms: int = Field(default=10, ge=0)
    """How long a read that has a record waits for more."""
    request_max_bytes: PositiveInt = 102_400
    """Keys and values of one read; a larger record still comes, alone."""
    max_poll_records: PositiveInt = 500
    prefetch_bytes: PositiveInt = 4 * 1024 * 1024
    """What an instance fetches ahead, at most."""
    commit_timeout_ms: PositiveInt = 10_000

    service_id: str = "kafka-mesh-sidecar"
    """How the admin endpoints call this service."""
    admin_listen: Address | None = None
    """Where `/adm`, `/health` and `/spec.yaml` are served besides; then `/adm` is served only there."""
    info_enabled: bool = True
    logger_enabled: bool = True
    log_content_enabled: bool = True
    """Whether the last log lines are kept in memory (4 MiB at most) and can be read over HTTP."""
    log_content_default_ms: PositiveInt = 600_000
    """How far back a question for log lines goes that does not say it."""
    config_reload_enabled: bool = True
    logging_downstream_enabled: bool = False
    """Whether calls on loggers with `X-Adm-PassThrough: true` go to the backend."""
    downstream_host: str = "http://localhost:8081"
    """The backend beside this sidecar."""
    downstream_framework: BackendFramework = BackendFramework.LIGHT4J
    """Whose way of asking for loggers the backend speaks: Light4j or SpringBoot."""
    downstream_timeout_ms: PositiveInt = 3_000
    chaos_monkey_enabled: bool = False
    """Whether faults on purpose can be set."""
    statistics_interval_ms: int = Field(default=15_000, ge=0)
    """How often Kafka clients report librdkafka's own statistics, for the metrics; 0 is never."""
    influx_url: str = ""
    """Where metrics are pushed to, as line protocol: http://HOST:8086/api/v2/write?org=O&bucket=B; empty: nowhere."""
    influx_token: SecretStr = SecretStr("")
    influx_interval_ms: PositiveInt = 60_000

    drain_timeout_ms: PositiveInt = 8_000
    health_timeout_ms: PositiveInt = 2_000
    health_downstream_enabled: bool = False
    """Whether the backend's own health is a part of this sidecar's readiness."""
    health_downstream_path: str = Field(default="/health", pattern="^/")
    health_json: bool = False
    """Whether /health answers each check's result instead of one word."""

    @field_validator("control_address", "state_dir", mode="before")
    @classmethod
    def _empty_means_none(cls, value: object) -> object:
        return value or None

    @model_validator(mode="after")
    def _loopback_only(self) -> "SidecarSettings":
        host, _ = host_port(self.listen)
        if not is_loopback(host) and not self.allow_insecure_bind:
            raise ValueError(
                f"listen {self.listen}: everyone who reaches this address could produce and consume; "
                "listen on 127.0.0.1, or set allow_insecure_bind (KAFKA_MESH_SIDECAR_ALLOW_INSECURE_BIND=true)"
            )
        return self
