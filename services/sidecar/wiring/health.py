"""Makes the checks of health from settings."""

from services.sidecar.admin.health import BackendProbe, Health
from services.sidecar.producing.producer import RecordProducer
from services.sidecar.settings import SidecarSettings
from services.sidecar.wiring.kafka_properties import client_properties


def health(settings: SidecarSettings, producer: RecordProducer, backend: BackendProbe | None) -> Health:
    """The checks of one sidecar; parts add checks of their own."""
    return Health(client_properties(settings), producer, timeout=settings.health_timeout_ms / 1000, backend=backend)


def backend_probe(settings: SidecarSettings) -> BackendProbe | None:
    """Asks the backend for its health; None if the settings do not ask for that."""
    if not settings.health_downstream_enabled:
        return None
    url = settings.downstream_host.rstrip("/") + settings.health_downstream_path
    return BackendProbe(url, settings.health_timeout_ms / 1000)
