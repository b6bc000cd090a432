"""Settings of the router."""

from __future__ import annotations

import socket
from typing import Literal

from pydantic import Field, field_validator, model_validator

from mesh.connection_security import ConnectionSecurity, served_home_properties
from mesh.member_keys import MemberKeys
from mesh.rpc.tls import RpcTlsSettings
from mesh.settings import Address, AddressList, ServiceSettings, host_port, refuse_open_door
from mesh.tracing import TracingSettings
from mesh.tracing.settings import TRACING
from services.router.forwarding.registry_access import RegistryAccess


class RouterSettings(RpcTlsSettings, TracingSettings, ServiceSettings, service="router"):
    """Reads mesh.events on the home cluster, folds it into routing tables, serves them to data planes over gRPC."""

    name: str = Field(default="", max_length=63, pattern=r"^[a-zA-Z0-9._-]*$")
    """Name among the members of the mesh, and in the ids of its clients on the home cluster.

    Empty: made of host name and port.
    """
    listen: Address = "127.0.0.1:7071"
    """gRPC for data planes: `mesh.v1.DiscoveryService`, health, reflection."""
    allow_insecure: bool = False
    """The router listens beyond this machine although callers show no certificates."""
    metrics_listen: Address = "127.0.0.1:7171"
    """Address of `/metrics`, `/live` and `/ready`."""
    home_bootstrap_servers: AddressList = ("127.0.0.1:19193",)
    """The Kafka cluster that holds the log; by default the embedded cluster c1."""
    home_properties: dict[str, str] = Field(default_factory=dict, repr=False)
    """librdkafka properties for security of the home cluster; secrets as `${env:NAME}` or `${file:/path}`: see
    `docs/how-to/router-security.md`."""
    events_topic: str = "mesh.events"
    """Topic of the log."""
    events_replication_factor: int = Field(default=0, ge=0, le=32767)
    """Replicas of the log's topic, if the router creates the topic; 0: one for each broker, at most 3."""
    unsigned_log: Literal["refuse", "accept"] = "refuse"
    """Whether a router with a certificate takes decisions that control has not signed: of a control without one."""
    snapshots_topic: str = "mesh.snapshots"
    """Topic of snapshots beside the log, compacted: a start need not read the log from its beginning."""
    snapshot_every_events: int = Field(default=10_000, ge=1)
    """Events of the log from one snapshot to the next."""
    control_addresses: AddressList = ("127.0.0.1:7070",)
    """Addresses of control's replicas (gRPC). The router reports to the leading replica, and works without control."""
    hold_ms: int = Field(default=5000, ge=100, le=60_000)
    """Longest hold of data planes, in milliseconds, until control sends another value."""
    schema_registry_url: str = Field(default="", pattern=r"^(https?://[^@\s?#]+)?$")
    """Schema registry with Confluent's API, for content rules about Avro values; empty: none."""
    schema_registry_user_info: str = Field(default="", pattern=r"^(\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^}]+)\})?$")
    """The registry's `user:password`, as `${env:NAME}` or `${file:/path}`; read for each request."""
    schema_registry_ca_location: str = ""
    """File or folder of the authorities that sign the registry's certificate, in PEM; empty: those of the system."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level of the entries in the log."""

    @model_validator(mode="after")
    def _loopback_only(self) -> RouterSettings:
        harm = "everyone who reaches this address could answer in the name of a gateway"
        refuse_open_door(
            "listen", self.listen, self.service, safe=self.allow_insecure or self.rpc_tls_folder is not None, harm=harm
        )
        return self

    @field_validator("home_properties")
    @classmethod
    def _is_served(cls, properties: dict[str, str]) -> dict[str, str]:
        return served_home_properties(properties)

    @property
    def home_security(self) -> ConnectionSecurity:
        """How connections to the home cluster are secured; secrets are references still."""
        return ConnectionSecurity.of(self.home_properties)

    @property
    def member_name(self) -> str:
        """The resource name, members/{member}."""
        return f"members/{self.name or f'router-{socket.gethostname()}-{host_port(self.listen)[1]}'}"

    @property
    def record_rules_group(self) -> str:
        """Consumer group in which routers share the record rules: of one mesh, as the log is. "mesh.record-rules" for
        the log "mesh.events"."""
        return f"{self.events_topic.removesuffix('.events')}.record-rules"

    @property
    def record_rules_progress_topic(self) -> str:
        """The topic in which routers report the progress of their record rules."""
        return f"{self.record_rules_group}-progress"

    @property
    def member_keys(self) -> MemberKeys | None:
        """The router's own key, and the authorities that it trusts; None without a certificate."""
        return None if self.rpc_tls is None else MemberKeys(self.rpc_tls)

    @property
    def registry(self) -> RegistryAccess:
        """How to get to the schema registry."""
        return RegistryAccess(
            self.schema_registry_url, self.schema_registry_user_info, self.schema_registry_ca_location
        )

    @property
    def worker_arguments(self) -> tuple[str, ...]:
        """The settings for the child process that carries out record rules; secrets stay references."""
        traced = (f"{TRACING}={self.tracing.model_dump_json()}",) if self.tracing_endpoint else ()
        return (*self.registry.arguments, *traced)

    @property
    def app_id(self) -> str:
        """Name of this router at the home cluster: of its clients and of its Faust application."""
        return f"kafka-mesh.{self.member_name.removeprefix('members/')}"
