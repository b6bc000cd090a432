"""The gateway's settings: environment `KAFKA_MESH_GATEWAY_<NAME>`, or `gateway:` in the file given by --config."""

import os
import socket
from argparse import ArgumentParser
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mesh.rpc.tls import RpcTlsSettings
from mesh.schemas.registry import Registry
from mesh.server_certificate import load
from mesh.settings import Address, AddressList, ServiceSettings, WordList
from mesh.settings import load as load_settings
from mesh.topics import is_topic_name
from mesh.tracing import TracingSettings
from mesh.traffic.settings import TrafficSettings, own_topic
from services.gateway.authorization.access import Required
from services.gateway.client_settings import AuthenticationSettings
from services.gateway.downstream.mesh import ClientLimits
from services.gateway.keys.services import check_service
from services.gateway.requests.telemetry.clients import ALL_METRICS, Subscription, Telemetry
from services.gateway.upstream.brokers import UpstreamLimits

KIB, MIB = 1024, 1024 * 1024
MOST_NAME_CHARACTERS = 100


class GatewaySettings(
    AuthenticationSettings, RpcTlsSettings, TracingSettings, TrafficSettings, ServiceSettings, service="gateway"
):
    """Serve Kafka clients: one address in front of all clusters of the mesh."""

    name: str = Field(
        default_factory=lambda: f"gateway-{socket.gethostname()}-{os.getpid()}",
        description="Name in the mesh, unique; by default of the host and the process.",
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve clients behind one address, also as `--workers N`: see "
        "`docs/how-to/gateway-workers.md`. Each of several is a gateway of its own, NAME-1, NAME-2 and so on, and "
        "bounds are those of each.",
    )
    router_addresses: AddressList = Field(
        default=(),
        description="Discovery addresses of the routers, tried in turn; empty: the gateway has only the table on its "
        "disk.",
    )
    state_dir: Path = Field(
        default=Path(".kafka-mesh/gateway"),
        description="Folder for the last routing table, and the last users of control; a folder of this gateway alone.",
    )
    metrics_listen: Address = Field(
        default="127.0.0.1:7172", description="Address of `/metrics`, `/live` and `/ready`."
    )
    mesh_id: str = Field(
        default="kafka-mesh", description="The Kafka cluster id that clients see; equal on all gateways."
    )
    log_level: str = Field(
        default="INFO", description="Least level of the entries in the log: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )

    telemetry_metrics: WordList = Field(
        default=("*",),
        description="The metrics of their own that clients are asked for (KIP-714): prefixes of names, or `*` for all; "
        "empty: none.",
    )
    telemetry_forwarded: bool = Field(
        default=False,
        description="Whether clients' own metrics also go to `TRACING_ENDPOINT`, as they come.",
    )
    telemetry_interval_s: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="Seconds between two pushes of a client. A client that is silent for three times as long is no "
        "longer shown.",
    )
    telemetry_max_kib: int = Field(
        default=256, ge=1, le=10_240, description="Longest message of a client's metrics, as it comes over the wire."
    )
    telemetry_clients: int = Field(
        default=300,
        ge=1,
        description="Clients whose metrics are shown at once, at most 500 series each; the client with the oldest push "
        "leaves first. A scrape costs about 2 ms for each client.",
    )

    authorization: Required = Field(
        default=Required.BY_POLICY,
        description="`by_policy`: clients may do what the ACLs of the mesh allow, as their mode says. `required`: "
        "nothing is allowed unless ACLs are enforced. See `docs/how-to/authorize-clients.md`.",
    )
    audit_topics: WordList = Field(
        default=(),
        description="Topics whose records are audited when clients write them, with their keys and ids, never their "
        "values; `*` stands for any characters: see `docs/reference/gateway-audit.md`.",
    )
    audit_records_topic: str = Field(
        default="mesh.audit-records", description="Topic on the home cluster for the audit records."
    )

    receipt_topics: WordList = Field(
        default=("*",),
        description="Topics for which the gateway reports who was sent which offsets, if it reports traffic; `*` "
        "stands for any characters, empty for no topic: see `docs/how-to/see-who-has-read.md`.",
    )
    exact_receipt_topics: WordList = Field(
        default=(),
        description="Those of these topics whose receipts are exact: a reader that jumps has 1,000 ranges of a "
        "partition in each report, not 16, and receipts are kept by minute, not by hour.",
    )

    key_service: str = Field(
        default="",
        description="The service that has the keys of protected values: `file:PATH` of a key file, `vault:URL` of a "
        "transit engine, or `NAME:TEXT` of a plug-in; empty: none. See `docs/how-to/protect-fields.md`.",
    )
    key_service_token: SecretStr = Field(
        default=SecretStr(""),
        description="The token by which the gateway logs in to Vault; may be `${env:NAME}` or `${file:/path}`, "
        "which is read for each call.",
    )
    key_service_ca: Path | None = Field(
        default=None, description="Authorities of Vault's certificate, PEM; without it those of the system."
    )
    data_keys_kept_s: float = Field(
        default=300.0,
        ge=2,
        le=86_400,
        description="Seconds that the gateway keeps a data key which the service has given: so long a key that was "
        "destroyed may still serve, and so long a service that is away is not noticed.",
    )

    schema_registry_url: str = Field(
        default="",
        pattern=r"^(https?://[^@\s?#]+)?$",
        description="Schema registry with Confluent's API, for rules that protect fields of Avro; empty: none.",
    )
    schema_registry_user_info: str = Field(
        default="",
        pattern=r"^(\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^}]+)\})?$",
        description="The gateway's login there, as a reference to `USER:PASSWORD`: `${env:NAME}` or `${file:/path}`.",
    )
    schema_registry_ca: Path | None = Field(
        default=None, description="Authorities of the registry's certificate, PEM; without it those of the system."
    )

    max_frame_mib: int = Field(default=100, ge=1, le=1024, description="Longest request of a client, in MiB.")
    max_requests_per_connection: int = Field(
        default=100, ge=1, description="Unanswered requests of one connection; then reading pauses."
    )
    max_in_flight_mib: int = Field(
        default=512, ge=8, description="Bytes of requests that the process holds, in MiB; then reading pauses."
    )
    max_gathered_mib: int = Field(
        default=256,
        ge=16,
        description="Bytes of gathered answers that the process holds, in MiB (answers that can't pass while they "
        "arrive); then Fetch waits.",
    )
    connect_timeout_s: float = Field(default=3.0, gt=0, description="Bound of a connection to a broker, in seconds.")
    request_timeout_s: float = Field(
        default=10.0, gt=0, description="Bound of the gateway's own questions to a broker, in seconds."
    )
    shared_connections: int = Field(
        default=8,
        ge=0,
        le=64,
        description="Most connections to each broker that small Produce requests of many clients share; 0: none. See "
        "`docs/explanation/shared-connections.md`.",
    )
    share_from_clients: int = Field(
        default=50, ge=1, description="If fewer clients write to a broker, each client has a connection of its own."
    )
    max_identity_connections: int = Field(
        default=20_000,
        ge=1,
        description="Most connections to the brokers of each cluster by identities of clients. See "
        "`docs/how-to/client-identities.md`.",
    )
    conversion_workers: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Processes that convert records of clients older than 0.11, and open batches for rules about "
        "records, when there is such work.",
    )
    max_connections_per_address: int = Field(
        default=0,
        ge=0,
        description="Most connections of clients from one IP address to each process; 0: any number, as brokers do by "
        "default (`max.connections.per.ip`).",
    )
    max_connections_per_principal: int = Field(
        default=0,
        ge=0,
        description="Most connections of clients of one principal to each process; 0: any number. Clients that prove "
        "no name are not counted.",
    )
    connections_max_idle_s: float = Field(
        default=600.0,
        ge=1,
        le=86_400,
        description="Seconds after which the gateway ends the connection of a client that sends no request, as brokers "
        "do (`connections.max.idle.ms`).",
    )
    drain_timeout_s: float = Field(
        default=10.0, ge=0, description="Seconds that clients' requests may take to end at a stop."
    )

    @model_validator(mode="after")
    def _workers_can_be_named(self) -> Self:
        longest = f"{self.name}-{self.workers}"
        if self.workers > 1 and len(longest) > MOST_NAME_CHARACTERS:
            raise ValueError(f"name: with {self.workers} workers the last one is {longest!r}: more than 100 characters")
        return self

    @model_validator(mode="after")
    def _certificates_have_listeners(self) -> Self:
        """Without TLS in `listen`, control may decide a listener by TLS."""
        if any(listener.tls for listener in self.listeners):
            return self
        if not self.router_addresses and (self.tls_certificate or self.tls_key or self.tls_client_ca):
            raise ValueError("tls_certificate, tls_key and tls_client_ca are for TLS in listen: tls:// or SASL_SSL://")
        if self.tls is not None:
            load(self.tls)
        return self

    @model_validator(mode="after")
    def _users_have_a_way(self) -> Self:
        if self.users_from_control and not self.router_addresses:
            raise ValueError("users_from_control: routers send these users; set router_addresses")
        return self

    @field_validator("key_service")
    @classmethod
    def _is_a_key_service(cls, named: str) -> str:
        return check_service(named)

    @field_validator("audit_topics", "receipt_topics", "exact_receipt_topics")
    @classmethod
    def _are_names_of_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        for topic in topics:
            if not is_topic_name(topic.replace("*", "x")):
                raise ValueError(f"{topic!r} is no name of a topic, nor one with * in the place of some characters")
        return topics

    @field_validator("audit_records_topic")
    @classmethod
    def _is_the_meshs_own_too(cls, topic: str) -> str:
        return own_topic(topic, "mesh.audit-records")

    @model_validator(mode="after")
    def _forwards_somewhere(self) -> Self:
        if self.telemetry_forwarded and not self.tracing_endpoint:
            raise ValueError("telemetry_forwarded: clients' metrics go to tracing_endpoint; set that too")
        return self

    @model_validator(mode="after")
    def _audit_has_a_home(self) -> Self:
        if self.audit_topics and not self.home_bootstrap_servers:
            raise ValueError("audit_topics: their audit records go to the home cluster; set home_bootstrap_servers")
        return self

    @property
    def schema_registry(self) -> Registry | None:
        if not self.schema_registry_url:
            return None
        ca = "" if self.schema_registry_ca is None else str(self.schema_registry_ca)
        return Registry(self.schema_registry_url, self.schema_registry_user_info, ca)

    @property
    def client_limits(self) -> ClientLimits:
        return ClientLimits(
            self.max_frame_mib * MIB,
            self.max_requests_per_connection,
            self.max_in_flight_mib * MIB,
            self.max_connections_per_address,
            self.max_connections_per_principal,
        )

    @property
    def telemetry(self) -> Telemetry:
        """The metrics that clients are asked for, with room for their answers."""
        prefixes = ALL_METRICS if "*" in self.telemetry_metrics else self.telemetry_metrics
        wanted = Subscription(prefixes, self.telemetry_interval_s, self.telemetry_max_kib * KIB)
        return Telemetry(wanted, self.telemetry_clients)

    @property
    def upstream_limits(self) -> UpstreamLimits:
        return UpstreamLimits(
            self.connect_timeout_s,
            self.request_timeout_s,
            shared_connections=self.shared_connections,
            share_from_clients=self.share_from_clients,
            max_identity_connections=self.max_identity_connections,
            max_gathered_bytes=self.max_gathered_mib * MIB,
        )


def settings_of(argv: list[str] | None) -> GatewaySettings:
    """The settings. An option overrides the environment, and is checked in the same way."""
    options = ArgumentParser(add_help=False)
    options.add_argument("--workers", metavar="N", help="processes that serve clients, behind one address [1]")
    chosen, _ = options.parse_known_args(argv)
    if chosen.workers is not None:
        os.environ["KAFKA_MESH_GATEWAY_WORKERS"] = chosen.workers
    return load_settings(GatewaySettings, argv, options=options)
