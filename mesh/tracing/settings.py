"""The settings about traces, of a gateway, a router and a sidecar."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from mesh.secret_references import REFERENCE

NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc", "opentelemetry.exporter.otlp.proto.http")
"""The packages of the extra `tracing`."""

TRACING = "--tracing"
"""The argument by which a process passes these settings to its child, as JSON."""


class TracingSettings(BaseModel):
    """A part of their settings. Without `tracing_endpoint` nothing is traced, and no SDK is loaded."""

    tracing_endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^@\s?#]+)?$",
        description="The OTLP receiver of spans, for example `http://127.0.0.1:4317`; empty: no traces. See "
        "`docs/how-to/trace-a-record.md`.",
    )
    tracing_protocol: Literal["grpc", "http/protobuf"] = Field(
        default="grpc",
        description="The protocol of the receiver: `grpc`, or `http/protobuf` (to `v1/traces` below the endpoint).",
    )
    tracing_rate: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="The share of requests without a trace context that begin a trace, from 0 to 1. A request or "
        "record with a trace context is traced if the context says `sampled`, whatever the rate.",
    )
    tracing_headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Headers for the receiver, such as `authorization`; a value is `${env:NAME}` or `${file:/path}`.",
    )
    tracing_ca: Path | None = Field(
        default=None,
        description="Authorities that the receiver is trusted by, in PEM; without them, those of the system.",
    )
    tracing_timeout_s: float = Field(
        default=10.0, ge=0.1, le=60, description="Seconds that sending a batch of spans may take, retries included."
    )
    tracing_max_spans: int = Field(
        default=2048,
        ge=1,
        le=65_536,
        description="Spans that wait to be sent. A span without room is lost and counted; no record waits for it.",
    )

    @field_validator("tracing_headers")
    @classmethod
    def _are_references(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not REFERENCE.fullmatch(value):
                raise ValueError(
                    f"{name}: write the value as ${{env:NAME}} or ${{file:/path}}, so that it stays secret"
                )
        return headers

    @model_validator(mode="after")
    def _can_trace(self) -> Self:
        if not self.tracing_endpoint:
            if self.tracing_rate:
                raise ValueError("tracing_rate is of use with tracing_endpoint alone: set that too")
            return self
        if missing := [name for name in NEEDED if not _is_there(name)]:
            raise ValueError(
                f"tracing_endpoint: this installation lacks {', '.join(missing)}; install kafka-mesh[tracing]"
            )
        return self

    @property
    def tracing(self) -> "TracingSettings":
        """These settings alone, for another process: secrets stay references."""
        return TracingSettings(**{name: getattr(self, name) for name in TracingSettings.model_fields})


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False
