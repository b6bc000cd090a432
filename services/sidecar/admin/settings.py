"""Settings of health, of the calls below `/adm`, and of pushed metrics."""

from pydantic import BaseModel, Field, PositiveInt, SecretStr

from mesh.settings import Address
from services.sidecar.admin.backend_loggers import BackendFramework

HTTP_ADDRESS = r"^https?://([^/@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:\d{1,5})?([/?][^\s#]*)?$"


class AdminSettings(BaseModel):
    """A part of SidecarSettings."""

    service_id: str = "kafka-mesh-sidecar"
    """How admin answers, audit records and pushed metrics call this service."""
    admin_listen: Address | None = None
    """A second address for `/adm`, `/health` and `/spec.yaml`; if it is set, `/adm` is served only there. See
    `docs/reference/sidecar-administration.md`."""
    info_enabled: bool = True
    """Whether the call for information about this process is served."""
    logger_enabled: bool = True
    """Whether the calls about levels of loggers are served."""
    log_content_enabled: bool = True
    """Whether the last log lines are kept in memory (4 MiB at most) and can be read over HTTP."""
    log_content_default_ms: PositiveInt = 600_000
    """How far back a request for log lines goes by default."""
    config_reload_enabled: bool = True
    """Whether the call that reloads modules is served."""
    logging_downstream_enabled: bool = False
    """Whether calls on loggers with `X-Adm-PassThrough: true` go to the backend."""
    downstream_host: str = Field(default="http://localhost:8081", pattern=HTTP_ADDRESS)
    """The backend beside this sidecar, for calls on loggers and the check of health."""
    downstream_framework: BackendFramework = BackendFramework.LIGHT4J
    """Whose way of asking for loggers the backend speaks: Light4j or SpringBoot."""
    downstream_timeout_ms: PositiveInt = 3_000
    """The time-out of a call to the backend about loggers."""
    chaos_monkey_enabled: bool = False
    """Whether faults on purpose can be set."""
    influx_url: str = Field(default="", pattern=f"^$|{HTTP_ADDRESS}")
    """The address for metrics in line protocol, as `http://HOST:8086/api/v2/write?org=O&bucket=B`; empty for none."""
    influx_token: SecretStr = SecretStr("")
    """The token for that address."""
    influx_interval_ms: PositiveInt = 60_000
    """The time between two pushes of metrics."""
    health_timeout_ms: PositiveInt = 2_000
    """The time that each check of health may take."""
    health_downstream_enabled: bool = False
    """Whether the backend's own health is a part of this sidecar's readiness."""
    health_downstream_path: str = Field(default="/health", pattern="^/")
    """The backend's path for that check."""
    health_json: bool = False
    """Whether /health answers each check's result instead of one word."""
