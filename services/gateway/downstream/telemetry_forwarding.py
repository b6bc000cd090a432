"""Clients' own metrics (KIP-714) on their way to the OTLP receiver of the spans: bounded, lossy, never waited for.

A push is OTLP already. A thread adds who sent it to its resources, and sends it on as it came: deltas stay deltas. A
push that finds no room, or that the receiver does not take within the time-out, is lost and counted.
"""

import ssl
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import NamedTuple

import grpc
import httpx
import structlog
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub

from mesh.secret_references import UnresolvedReferenceError, resolve_property
from mesh.tracing import TracingSettings
from services.gateway import metrics

MOST_WAITING = 256
"""Pushes; each has at most TELEMETRY_MAX_KIB before it is decompressed, and four times as much behind."""
LOOK_S = 0.2
END_S = 2.0

Send = Callable[[ExportMetricsServiceRequest], None]

log = structlog.get_logger(__name__)


class Push(NamedTuple):
    """The metrics of one client."""

    payload: bytes
    """OTLP, not compressed."""
    about: dict[str, str]
    """Attributes that tell who pushed."""


class TelemetryForwarding:
    """The way of pushes to the receiver; `take` may be called from any thread."""

    def __init__(self, settings: TracingSettings) -> None:
        self._settings = settings
        self._waiting: Queue[Push] = Queue(MOST_WAITING)
        self._ending = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until what waits is sent, within a bound."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    def take(self, payload: bytes, about: dict[str, str]) -> None:
        try:
            self._waiting.put_nowait(Push(payload, about))
        except Full:
            metrics.forwarded_pushes.labels("lost").inc()

    def _run(self) -> None:
        send: Send | None = None
        while not (self._ending.is_set() and self._waiting.empty()):
            try:
                push = self._waiting.get(timeout=LOOK_S)
            except Empty:
                continue
            try:
                send = send or _sender(self._settings)
                send(_request(push))
            except (grpc.RpcError, httpx.HTTPError, UnresolvedReferenceError, OSError, DecodeError) as error:
                metrics.forwarded_pushes.labels("failed").inc()
                self._tell(error)
            else:
                metrics.forwarded_pushes.labels("sent").inc()
                self._is_away = False

    def _tell(self, error: Exception) -> None:
        """Logs the first of several failures."""
        if not self._is_away:
            self._is_away = True
            log.warning(
                "clients' metrics can't be forwarded, and are lost until the receiver takes them",
                endpoint=self._settings.tracing_endpoint,
                reason=error.code().name if isinstance(error, grpc.RpcError) else type(error).__name__,
            )


def _request(push: Push) -> ExportMetricsServiceRequest:
    """MetricsData and the request of OTLP's service have the same form."""
    request = ExportMetricsServiceRequest.FromString(push.payload)
    for resource in request.resource_metrics:
        for name, text in push.about.items():
            resource.resource.attributes.add(key=name).value.string_value = text
    return request


def _sender(settings: TracingSettings) -> Send:
    """Sends one request; raises what the library raises."""
    endpoint, timeout = settings.tracing_endpoint.rstrip("/"), settings.tracing_timeout_s
    headers = {
        name.lower(): resolve_property(f"tracing_headers {name}", value)
        for name, value in settings.tracing_headers.items()
    }
    is_secured = endpoint.startswith("https://")
    if settings.tracing_protocol == "http/protobuf":
        trusted = ssl.create_default_context(cafile=settings.tracing_ca) if is_secured else False
        client = httpx.Client(verify=trusted, timeout=timeout, trust_env=False)
        said = {**headers, "Content-Type": "application/x-protobuf"}

        def post(request: ExportMetricsServiceRequest) -> None:
            client.post(f"{endpoint}/v1/metrics", content=request.SerializeToString(), headers=said).raise_for_status()

        return post
    address = endpoint.partition("://")[2]
    authorities = None if settings.tracing_ca is None else settings.tracing_ca.read_bytes()
    channel = (
        grpc.secure_channel(address, grpc.ssl_channel_credentials(authorities))
        if is_secured
        else grpc.insecure_channel(address)
    )
    stub = MetricsServiceStub(channel)  # type: ignore[no-untyped-call]
    metadata = tuple(headers.items())

    def export(request: ExportMetricsServiceRequest) -> None:
        stub.Export(request, timeout=timeout, metadata=metadata)

    return export
