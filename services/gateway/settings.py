"""The gateway's settings: environment `KAFKA_MESH_GATEWAY_<NAME>`, or `gateway:` in the file given by --config."""

import os
import socket
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from mesh.settings import Address, AddressList, Prefixes, ServiceSettings, host_port
from services.gateway.downstream.mesh import ClientLimits
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.telemetry.clients import ALL_METRICS, Subscription, Telemetry
from services.gateway.upstream.cluster import UpstreamLimits

KIB, MIB = 1024, 1024 * 1024


class GatewaySettings(ServiceSettings, service="gateway"):
    """Serve Kafka clients: one address in front of all clusters of the mesh."""

    name: str = Field(
        default_factory=lambda: f"gateway-{socket.gethostname()}-{os.getpid()}",
        description="Name of this gateway in the mesh; no two may have the same.",
        pattern=r"^[a-zA-Z0-9._-]{1,100}$",
    )
    listen: AddressList = Field(
        default=("127.0.0.1:19092",),
        min_length=1,
        description="Where Kafka clients connect; several for several networks.",
    )
    advertised: AddressList = Field(
        default=(),
        description="What the clients of each `listen` address are told to connect to; by default that address.",
    )
    router_addresses: AddressList = Field(
        default=(),
        description="Discovery addresses of the routers, tried in turn; none: the table on disk is all there is.",
    )
    state_dir: Path = Field(default=Path(".kafka-mesh/gateway"), description="Where the last routing table is kept.")
    metrics_listen: Address = Field(default="127.0.0.1:7172", description="/metrics, /live and /ready.")
    mesh_id: str = Field(
        default="kafka-mesh", description="The Kafka cluster id that clients see; equal on all gateways."
    )
    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR.")

    telemetry_metrics: Prefixes = Field(
        default=("*",),
        description="Which of their own metrics clients are asked for (KIP-714): prefixes of names, or * for all; "
        "none: clients are asked for nothing.",
    )
    telemetry_interval_s: float = Field(
        default=60.0, ge=1, le=86_400, description="How often clients send their metrics, in seconds."
    )
    telemetry_max_kib: int = Field(default=256, ge=1, le=10_240, description="Longest message of a client's metrics.")
    telemetry_clients: int = Field(
        default=1000, ge=1, description="Clients whose metrics are shown at once; those heard of longest ago leave."
    )

    max_frame_mib: int = Field(default=100, ge=1, le=1024, description="Longest request of a client.")
    max_requests_per_connection: int = Field(default=100, ge=1, description="Unanswered requests of one connection.")
    max_in_flight_mib: int = Field(default=512, ge=8, description="Requests that the process holds at once, in MiB.")
    connect_timeout_s: float = Field(default=3.0, gt=0, description="Bound of a connection to a broker.")
    request_timeout_s: float = Field(
        default=10.0, gt=0, description="Bound of the gateway's own questions to a broker."
    )
    conversion_workers: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Processes that convert records of clients older than 0.11, when there are any.",
    )
    drain_timeout_s: float = Field(
        default=10.0, ge=0, description="How long clients' requests may take to end at a stop."
    )

    @model_validator(mode="after")
    def _one_advertised_address_for_each_listener(self) -> Self:
        if self.advertised and len(self.advertised) != len(self.listen):
            told, here = len(self.advertised), len(self.listen)
            raise ValueError(f"advertised names {told} addresses for {here} of listen: give as many, or none")
        return self

    @property
    def listeners(self) -> list[tuple[str, Advertised]]:
        """Where to listen, and what the clients there are told."""
        told = self.advertised or self.listen
        return [(here, Advertised(*host_port(there))) for here, there in zip(self.listen, told, strict=True)]

    @property
    def client_limits(self) -> ClientLimits:
        return ClientLimits(self.max_frame_mib * MIB, self.max_requests_per_connection, self.max_in_flight_mib * MIB)

    @property
    def telemetry(self) -> Telemetry:
        """What clients are asked for, with room for what they tell."""
        prefixes = ALL_METRICS if "*" in self.telemetry_metrics else self.telemetry_metrics
        wanted = Subscription(prefixes, self.telemetry_interval_s, self.telemetry_max_kib * KIB)
        return Telemetry(wanted, self.telemetry_clients)

    @property
    def upstream_limits(self) -> UpstreamLimits:
        return UpstreamLimits(self.connect_timeout_s, self.request_timeout_s)
