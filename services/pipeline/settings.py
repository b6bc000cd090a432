"""Settings of the pipeline: environment `KAFKA_MESH_PIPELINE_<FIELD>`, else the file's `pipeline:`, else these."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr, field_validator

from mesh.rpc.tls import RpcTlsSettings
from mesh.settings import AddressList, ServiceSettings
from services.pipeline.archives.settings import ArchivesSettings
from services.pipeline.auditing.settings import AuditSettings
from services.pipeline.profiling.settings import ProfilingSettings
from services.pipeline.serving.settings import ServingSettings
from services.pipeline.traffic.settings import TrafficSettings


class PipelineSettings(
    ArchivesSettings,
    AuditSettings,
    ProfilingSettings,
    RpcTlsSettings,
    ServingSettings,
    TrafficSettings,
    ServiceSettings,
    service="pipeline",
):
    """Run Spark jobs: one of them, or those that control orders."""

    bootstrap_servers: AddressList = ()
    """The gateway (or any Kafka). Empty: the mesh that `kafka-mesh` finds."""
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for clients of `bootstrap_servers` and of `--cluster`, for example security."""
    control_addresses: AddressList = Field(default=("127.0.0.1:7070",), min_length=1)
    """The gRPC addresses of control's replicas; control knows the clusters."""
    clusters: dict[str, dict[str, SecretStr]] = Field(default_factory=dict)
    """Clusters that replace control's: librdkafka properties by cluster name, including `bootstrap.servers`.

    Secrets are ${env:NAME} or ${file:/path}. The first cluster is home.
    """
    state_dir: Path = Path(".kafka-mesh/pipeline")
    """Folder with control's last answer about clusters, without secrets, for audit and traffic while it is away."""
    log_level: str = "INFO"

    master: str = "local[*,2]"
    """Spark's master: local (a task that fails is tried once more), or spark://, yarn, k8s://."""
    driver_host: str = ""
    """The driver's address for executors. Empty: loopback, and on a cluster this machine's name."""
    driver_bind_address: str = ""
    """The address that the driver listens on. Empty: loopback, and on a cluster the address of `driver_host`."""
    ship_package: bool = True
    """Whether executors of a cluster get this package from the driver; not needed if their image has it."""
    spark_properties: dict[str, str] = Field(default_factory=dict)
    """More of Spark's own properties (for example spark.executor.memory); they override the pipeline's."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9]\d*[mg]$")] = "1g"
    driver_java_options: str = ""
    """More options of the driver's JVM."""
    max_batch_rows: PositiveInt = 200_000
    """The most rows of one micro-batch, over all its topics."""
    stall_timeout_s: PositiveFloat = 60.0
    """Seconds that a partition may yield no expected records before the job fails."""
    request_timeout_s: PositiveFloat = 30.0
    """Time-out in seconds of a request about topics and offsets."""
    trigger_interval_s: PositiveFloat = 10.0
    """Seconds between two checks of the continuous jobs audit and traffic for new records."""

    database_url: SecretStr | None = None
    """PostgreSQL of control, as postgresql://user:password@host:port/database; for jobs that write tables."""

    database_connections: PositiveInt = 4
    """Connections to PostgreSQL that the tasks of one batch have at once, for any number of Spark's slots."""
    shared_folders: bool = False
    """Whether a folder without a URL scheme is the same on the driver and all executors (a mounted volume)."""

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(r"postgres(ql)?://", url.get_secret_value()):  # the URL is never shown
            raise ValueError("is no PostgreSQL URL; expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        return url

    def check_folder(self, folder: str) -> None:
        """ValueError for a folder that each executor of a cluster would look for on its own machine."""
        is_here = not re.match(r"[a-z][a-z0-9+.-]*:", folder) or folder.startswith("file:")
        if is_here and not re.match(r"local(\[|$)", self.master) and not self.shared_folders:
            raise ValueError(
                f"folder {folder} is on this machine, but Spark runs at {self.master}: each executor would write to a "
                "folder of its own machine. Name a URL that all executors reach. If all executors mount the folder, "
                "set KAFKA_MESH_PIPELINE_SHARED_FOLDERS=true"
            )

    @property
    def client_properties(self) -> dict[str, str]:
        """`kafka_properties` with the secrets in clear, for clients."""
        return {name: value.get_secret_value() for name, value in self.kafka_properties.items()}
