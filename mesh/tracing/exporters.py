"""The SDK's exporters by OTLP, with an encoder of ours: they send, retry, and end within the time-out."""

from collections.abc import Sequence

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mesh.secret_references import resolve_property
from mesh.tracing.ended import Encode
from mesh.tracing.settings import TracingSettings


def exporter_of(settings: TracingSettings, encode: Encode) -> SpanExporter:
    """UnresolvedReferenceError, OSError: a header or an authority of the settings can't be read."""
    headers = {
        name.lower(): resolve_property(f"tracing_headers {name}", value)
        for name, value in settings.tracing_headers.items()
    }
    made = _by_http if settings.tracing_protocol == "http/protobuf" else _by_grpc
    return made(settings, settings.tracing_endpoint.rstrip("/"), headers, encode)


def _by_http(settings: TracingSettings, endpoint: str, headers: dict[str, str], encode: Encode) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    class HttpExporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            sent = self._client.export(encode(spans).SerializeToString())
            return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE

    ca = None if settings.tracing_ca is None else str(settings.tracing_ca)
    return HttpExporter(
        f"{endpoint}/v1/traces", certificate_file=ca, headers=headers, timeout=settings.tracing_timeout_s
    )


def _by_grpc(settings: TracingSettings, endpoint: str, headers: dict[str, str], encode: Encode) -> SpanExporter:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    class GrpcExporter(OTLPSpanExporter):
        def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
            return encode(data)

    secured = endpoint.startswith("https://")
    authorities = None if settings.tracing_ca is None else settings.tracing_ca.read_bytes()
    return GrpcExporter(
        endpoint,
        insecure=not secured,
        credentials=grpc.ssl_channel_credentials(authorities) if secured else None,
        headers=tuple(headers.items()),
        timeout=settings.tracing_timeout_s,
    )
