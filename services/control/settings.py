"""Settings of control: environment KAFKA_MESH_CONTROL_<FIELD>, or the section `control` of the --config file."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from mesh.rpc.token_callers import RpcTokenSettings
from mesh.settings import Address, AddressList, SecretStr, ServiceSettings, WordList, refuse_open_door


class ControlSettings(RpcTokenSettings, ServiceSettings, service="control"):
    """The control plane: gRPC API for operators and routers, event log in PostgreSQL."""

    database_url: SecretStr
    """PostgreSQL, as `postgresql://user:password@host:port/database`."""
    home_bootstrap_servers: AddressList
    """The Kafka cluster that holds the log."""
    home_properties: dict[str, str] = Field(default_factory=dict, repr=False)
    """librdkafka properties for security of the home cluster; secrets as `${env:NAME}` or `${file:/path}`."""
    events_topic: str = "mesh.events"
    """Topic of the log on the home cluster, created if the topic is absent: one partition, kept for ever."""
    audit_topic: str = "mesh.audit"
    """Topic of audit events on the home cluster; one partition."""
    audit_kept_days: int = Field(default=365, ge=1, le=36_500)
    """Days that audit events are kept, in PostgreSQL and in the topic."""
    reports_kept_days: int = Field(default=30, ge=1, le=36_500)
    """Days that reports of members are kept: which instances came and went, how far replays were."""
    lag_interval_s: float = Field(default=10.0, ge=1, le=300)
    """Seconds between two samples of the lag of all groups, which the leading control takes."""
    lag_partitions: int = Field(default=10_000, ge=0, le=100_000)
    """Partitions of one sample, each once for each group that reads it; 0: no samples. Groups beyond are left out."""
    lineage_edges: int = Field(default=20_000, ge=0, le=100_000)
    """Edges of lineage that control keeps; 0: none. Beyond it, new edges take the places of old ones."""
    lineage_kept_days: int = Field(default=90, ge=1, le=3_650)
    """Days that an edge of lineage is kept after control saw it last."""
    record_audit_topics: WordList = ("sidecar-audit",)
    """Audit topics of sidecars, by the names on the clusters."""
    snapshot_every: int = Field(default=1000, ge=1, le=1_000_000)
    """Events between two snapshots of the log: a start reads the events after the last snapshot."""
    listen: Address = "127.0.0.1:7070"
    """gRPC, with reflection and health."""
    allow_insecure: bool = False
    """Control listens beyond this machine although callers show no certificates."""
    first_admins: WordList = ()
    """People and programs that are always admins, by the names in their certificates: see `docs/how-to/roles.md`."""
    certificate_roles_count: bool = True
    """The role in a person's certificate counts until the first decision about the person."""
    changes_by_kafka_tools: bool = False
    """Whether clients of gateways change ACLs, quotas and users by Kafka's tools, as far as ACLs allow them to."""
    client_addresses: Literal["viewer", "operator", "admin", "nobody"] = "viewer"
    """The lowest role that sees the addresses of clients in `ListClients`."""
    metrics_listen: Address = "127.0.0.1:7170"
    """Address of `/metrics`, `/live` and `/ready`."""
    hold_ms: int = Field(default=5000, ge=100, le=30_000)
    """Milliseconds that a change which moves topics waits for all gateways.

    Requests wait 3 seconds longer, and are refused after that.
    """
    secrets_folder: str = Field(default="/etc/kafka-mesh/secrets", pattern=r"^/")
    """Folder of all files that clusters may name.

    They are secrets (`${file:/path}`), certificates and keys (`*.location`), and keytabs.
    """
    secret_variables: str = Field(default="KAFKA_MESH_SECRET_", min_length=1, max_length=200)
    """Beginning of the names of variables that secrets of clusters may refer to, as `${env:NAME}`."""
    probe_interval_s: float = Field(default=10.0, ge=0.1, le=3600)
    """Seconds between two probes of the registered clusters."""
    vouched_for: int = Field(default=0, ge=0)
    """Position of the last event without a signature that an operator has checked: control signs from there on."""
    stop_grace_s: float = Field(default=8.0, ge=0, le=60)
    """Seconds that running calls and the publisher get when control stops."""
    log_level: str = "INFO"
    """Least level of the entries in the log: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    @model_validator(mode="after")
    def _loopback_only(self) -> ControlSettings:
        self.check_tokens()
        harm = "everyone who reaches this address could move topics and change clusters"
        refuse_open_door(
            "listen", self.listen, self.service, safe=self.allow_insecure or self.rpc_tls_folder is not None, harm=harm
        )
        return self

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr) -> SecretStr:
        if not re.match(r"postgres(ql)?://", url.get_secret_value()):  # never repeated: it may hold a password
            raise ValueError("is no PostgreSQL URL; expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        return url
