"""OpenTelemetry traces: the context in headers, the settings, and (only where tracing is on) the SDK behind them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mesh.tracing.settings import TracingSettings

if TYPE_CHECKING:
    from mesh.tracing.tracer import Tracer

__all__ = ["TracingSettings", "tracer_for"]


def tracer_for(
    settings: TracingSettings, service: str, instance: str, count: Callable[[str, int], None]
) -> "Tracer | None":
    """The tracer of this process; None: tracing is off. `count` counts spans by outcome."""
    if not settings.tracing_endpoint:
        return None
    from mesh.tracing.tracer import Tracer  # the SDK takes memory that a process without traces must not spend

    return Tracer(settings, service, instance, count)
