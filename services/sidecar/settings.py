"""Settings of a sidecar: environment `KAFKA_MESH_SIDECAR_<FIELD>`, else the file's `sidecar:` section, else these."""

import re
import socket
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from mesh.rpc.tls import RpcTlsSettings
from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.settings import Address, AddressList, ServiceSettings, refuse_open_door
from mesh.subscriptions import Subscription, SubscriptionError
from mesh.tracing import TracingSettings
from mesh.traffic.settings import TrafficSettings
from services.sidecar.admin.settings import AdminSettings
from services.sidecar.auditing.settings import AuditSettings
from services.sidecar.consuming.settings import ConsumingSettings
from services.sidecar.dead_letters.settings import DeadLetterSettings
from services.sidecar.delivering.settings import BackendSettings
from services.sidecar.formats.settings import FormatSettings
from services.sidecar.ksqldb.settings import KsqldbSettings
from services.sidecar.original.translation import original_config
from services.sidecar.producing.settings import ProducingSettings
from services.sidecar.reactive.settings import ReactiveSettings
from services.sidecar.reactive.subscriptions import Membership, check_together, member_of, settings_of, shown
from services.sidecar.security.settings import SecuritySettings
from services.sidecar.streams.settings import StreamsSettings

LONGEST_NAME = 63
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def _name_of_host() -> str:
    """Signs that no name of a sidecar has are dashes; a name that is too long ends with a digest of the whole."""
    host = socket.gethostname()
    return _cut(_NOT_IN_NAMES.sub("-", host), host, LONGEST_NAME) or "sidecar"


def _instance_name(sidecar: str, subscription: str) -> str:
    """The name of a subscription's consumer within its group. Replicas of a sidecar have different ones."""
    return f"{_cut(sidecar, sidecar, LONGEST_NAME - len(subscription) - 1)}-{subscription}"


def _cut(name: str, whole: str, longest: int) -> str:
    """The name; if it is too long, its beginning, and a digest of the whole."""
    return name if len(name) <= longest else f"{name[: longest - 9]}-{sha256(whole.encode()).hexdigest()[:8]}"


def _reasons(error: ValidationError) -> str:
    """All that is wrong with a subscription, in the words of declarations."""
    found = ((".".join(map(member_of, map(str, one["loc"][:1]))), one["msg"]) for one in error.errors())
    return "; ".join(f"{place}: {text}" if place else text.removeprefix("Value error, ") for place, text in found)


class SidecarSettings(
    AdminSettings,
    AuditSettings,
    BackendSettings,
    ConsumingSettings,
    DeadLetterSettings,
    FormatSettings,
    KsqldbSettings,
    ProducingSettings,
    ReactiveSettings,
    RpcTlsSettings,
    SecuritySettings,
    StreamsSettings,
    TracingSettings,
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
    """The address for backends. Beyond this machine, callers have to be asked who they are: see
    `docs/how-to/sidecar-security.md`."""
    rest_v2_listen: Address | None = None
    """The address for clients of Confluent's REST proxy, version 2; empty for none: see
    `docs/reference/sidecar-rest-v2.md`."""
    rest_v2_dialect: Literal["confluent", "strimzi"] = "confluent"
    """The clients at `REST_V2_LISTEN`: `confluent` for those of Karapace and of Confluent's proxy, `strimzi` for those
    of Strimzi's bridge."""
    metrics_listen: Address = "127.0.0.1:7173"
    """Address of `/metrics`, `/live` and `/ready`."""
    bootstrap_servers: AddressList = ("127.0.0.1:19092",)
    """The gateway (or any Kafka)."""
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for all clients of this sidecar, for example security; a value may be `${env:NAME}` or
    `${file:/path}`."""
    producer_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """The same for producers alone."""
    consumer_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """The same for consumers alone."""
    _original_warnings: tuple[str, ...] = PrivateAttr(default=())
    original_config_dir: Path | None = None
    """A folder of the light-4j sidecar's YAML files, which count where nothing is set here: see
    `docs/how-to/light-4j-files.md`."""
    control_addresses: AddressList = ("127.0.0.1:7070",)
    """The gRPC addresses of control's replicas; the leading replica hears of consumer instances. Empty for none."""
    log_level: str = "INFO"
    """Least level of the entries in the log: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    max_request_bytes: PositiveInt = 1_000_000
    """The longest body of a request."""
    max_connections: PositiveInt = 1_000
    """The most connections of callers at once."""
    max_open_produces: PositiveInt = 256
    """Requests at once that produce; one more is turned away (429)."""
    max_open_reads: PositiveInt = 256
    """Requests at once that read records; one more is turned away (429)."""
    max_open_calls: PositiveInt = 256
    """All other requests at once; one more is turned away (429)."""
    max_open_body_bytes: PositiveInt = 67_108_864
    """The bytes of the bodies of all open requests; one more is turned away (429).

    A parsed body takes several times its bytes.
    """
    max_header_bytes: PositiveInt = 32_768
    """The size of a request's headers."""
    max_head_ms: PositiveInt = 10_000
    """The time of a request's head."""
    max_body_ms: PositiveInt = 30_000
    """The time of a request's body. A streamed body may take longer; its silence is bounded."""
    max_call_ms: PositiveInt = 120_000
    """The time of an answer. A streamed answer may take longer; its silence is bounded."""

    public_url: str = Field(default="", pattern=r"^(https?://[^/\s?#]+(/[^\s?#]*)?)?$")
    """The address at which backends reach this sidecar, for `base_uri`; empty for the address of each request."""
    trust_forwarded_headers: bool = False
    """Whether the sidecar trusts X-Forwarded-Proto, -Host and -Prefix of a proxy in front."""

    statistics_interval_ms: int = Field(default=15_000, ge=0)
    """How often Kafka clients report librdkafka's own statistics, for the metrics; 0 is never."""

    drain_timeout_ms: PositiveInt = 8_000
    """The time that open requests and batches may take to end at a stop."""

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

    @model_validator(mode="after")
    def _calls_have_time(self) -> "SidecarSettings":
        for name in ("max_read_ms", "stream_heartbeat_ms", "stream_idle_timeout_ms"):
            if getattr(self, name) >= self.max_call_ms:
                raise ValueError(f"{name} {getattr(self, name)} has to be less than max_call_ms {self.max_call_ms}")
        return self

    @model_validator(mode="after")
    def _loopback_only(self) -> "SidecarSettings":
        for name, address in (
            ("listen", self.listen),
            ("admin_listen", self.admin_listen),
            ("rest_v2_listen", self.rest_v2_listen),
        ):
            if address:
                harm = "everyone who reaches this address could produce and consume: set token_issuers"
                safe = self.asks_who_calls or self.allow_insecure
                refuse_open_door(name, address, self.service, safe=safe, harm=harm)
        return self

    @model_validator(mode="after")
    def _subscriptions_fit(self) -> "SidecarSettings":
        self.with_subscriptions(self.subscriptions)
        return self

    def with_subscriptions(self, further: Sequence[Subscription]) -> dict[str, "SidecarSettings"]:
        """The settings that hold for each subscription: for that of these settings, without a name, and for further
        ones, by their names. SubscriptionError if one is wrong, or if two of them exclude each other.
        """
        found = [("", self)] if self.reactive_interest else []
        found += [(one.name, self.of(one)) for one in further]
        check_together(Membership(name, of.reactive_group, of.reactive_interest) for name, of in found)
        return dict(found)

    @property
    def takes_subscriptions(self) -> bool:
        """Whether operators may declare subscriptions for this sidecar."""
        return self.subscriptions_from_control and bool(self.control_addresses) and self.reactive_enabled is not False

    def of(self, subscription: Subscription) -> "SidecarSettings":
        """These settings with those that a subscription changes. SubscriptionError if it is wrong."""
        name = subscription.name
        changed = {**settings_of(subscription), "reactive_name": _instance_name(self.name, name)}
        if self.reactive_transactional_id:
            changed["reactive_transactional_id"] = f"{self.reactive_transactional_id}.{name}"
        valid: dict[str, Any] = {}
        for part in (BackendSettings, ConsumingSettings, FormatSettings, ReactiveSettings):
            mine = {each: getattr(self, each) for each in part.model_fields}
            try:
                checked = part.model_validate(mine | {each: changed[each] for each in mine.keys() & changed.keys()})
            except ValidationError as error:
                raise SubscriptionError(f"{shown(name)}: {_reasons(error)}") from None
            valid |= {each: getattr(checked, each) for each in mine.keys() & changed.keys()}
        return self.model_copy(update=valid)

    @property
    def batch_bytes_at_most(self) -> int:
        """The largest batch for the backend, in bytes of keys and values."""
        return self.reactive_max_batch_bytes or self.request_max_bytes

    @property
    def original_warnings(self) -> tuple[str, ...]:
        """The settings of the original's files that are not used, each with the reason."""
        return self._original_warnings
