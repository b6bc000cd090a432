"""Settings of the pipeline: environment `KAFKA_MESH_PIPELINE_<FIELD>`, else the file's `pipeline:`, else these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from mesh.rpc.tls import RpcTlsSettings
from mesh.settings import Address, AddressList, ServiceSettings, Split, WordList


def in_clear(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """The secrets as plain texts."""
    return {name: value.get_secret_value() for name, value in secrets.items()}


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this machine, in one JVM."""
    return master == "local" or master.startswith("local[")


class ContinuousJob(Enum):
    """A job that runs as long as `serve` runs."""

    AUDIT = "audit"
    TRAFFIC = "traffic"
    ARCHIVE = "archive"


class AuditSettings(BaseModel):
    """Settings of the job `audit`, a part of PipelineSettings."""

    audit_folder: str = ""
    """Folder of Parquet files and checkpoints: a path, or a URL that Hadoop knows; `--to` overrides it."""
    audit_options: dict[str, SecretStr] = Field(default_factory=dict)
    """Options of that store for tasks, which write there without Spark: like `ARCHIVE_OPTIONS`."""
    audit_topics: WordList = ("sidecar-audit",)
    """Topics of all clusters with audit events."""
    audit_home_topics: WordList = ("mesh.audit-records",)
    """Topics of the home cluster alone with audit events."""
    audit_calls_topic: str = "mesh.audit"
    """Topic of the home cluster in which control records its calls."""
    audit_malformed_suffix: str = Field(default=".malformed", pattern=r"^[._-][A-Za-z0-9._-]{1,60}$")
    """Suffix of the topics for malformed records; each is on the cluster of the record."""
    audit_kept_days: PositiveInt = 30
    """Days that audit events are kept in PostgreSQL.

    A look-up by id searches each day: with 365 days it takes ten times as long.
    """
    audit_folder_kept_days: int = Field(default=0, ge=0)
    """Days that audit events are kept in the folder; 0: for ever."""
    audit_rate: PositiveInt = 5_000
    """The most events a second that a continuous audit reads of each cluster; further events wait in Kafka."""
    audit_heartbeat_s: PositiveFloat = 10.0
    """Seconds between two reports of the job's progress, also if there is nothing to do."""

    @property
    def audit_store_options(self) -> dict[str, str]:
        """`audit_options` with the secrets in clear, for `Store`."""
        return in_clear(self.audit_options)


class ServeSettings(BaseModel):
    """Settings of `serve` alone, a part of PipelineSettings."""

    name: str = Field(default="pipeline-1", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$")
    """The name of this member at control: one process for each name."""
    metrics_listen: Address = "127.0.0.1:7174"
    """Address of `/metrics`, `/live` and `/ready`."""
    jobs: Annotated[tuple[ContinuousJob, ...], Split, NoDecode] = ()
    """Jobs that run as long as `serve` runs, each in a driver of its own."""
    archive_folder: str = ""
    """Folder of the job archive: a path, or a URL that Hadoop knows.

    Copies read it for records that Kafka has deleted.
    """
    archive_topics: WordList = ()
    """Topics that the job archive reads."""
    max_drivers: int = Field(default=0, ge=0, le=50)
    """Orders that are carried out at once; others wait.

    0: as many as memory (of the machine or container) and cores allow beside the jobs, 1 to 5.
    """
    driver_niceness: int = Field(default=10, ge=0, le=19)
    """Niceness of the drivers, as `nice` counts it; 0: they compete equally for the processors."""
    driver_attempts: PositiveInt = 5
    """Drivers that may die in a row without progress before the replay has failed."""
    driver_stop_s: PositiveFloat = 20.0
    """Seconds that a driver has for an orderly stop before it is killed; a stop of `serve` takes at most 8 more."""
    driver_silence_s: PositiveFloat = 300.0
    """Seconds that the driver of a continuous job may report nothing, or no progress of a batch.

    The time between two checks for records is added. After this time the driver counts as hanging: it is killed, and
    another one is started.
    """

    @model_validator(mode="after")
    def _archive_goes_somewhere(self) -> ServeSettings:
        if ContinuousJob.ARCHIVE in self.jobs and not (self.archive_folder and self.archive_topics):
            raise ValueError("jobs has archive: say archive_folder and archive_topics too")
        return self


class PipelineSettings(AuditSettings, ServeSettings, RpcTlsSettings, ServiceSettings, service="pipeline"):
    """Run Spark jobs: one of them, or those that control orders."""

    bootstrap_servers: AddressList = ()
    """The gateway, or any Kafka; `--bootstrap` overrides it.

    Empty: `KAFKA_MESH_BOOTSTRAP`, the running `kafka-mesh up`, or 127.0.0.1:19092.
    """
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for clients of `BOOTSTRAP_SERVERS` and of `--cluster`, for example security."""
    control_addresses: AddressList = Field(default=("127.0.0.1:7070",), min_length=1)
    """The gRPC addresses of control's replicas; control knows the clusters.

    If they are not set, a job by hand uses the running `kafka-mesh up`.
    """
    clusters: dict[str, dict[str, SecretStr]] = Field(default_factory=dict)
    """Clusters that replace control's: properties by name, as `{"c1": {"bootstrap.servers": "HOST:PORT"}}`.

    Secrets are `${env:NAME}` or `${file:/path}`. The first cluster is home. The option
    `--cluster NAME=HOST:PORT` overrides this setting, too.
    """
    state_dir: Path = Path(".kafka-mesh/pipeline")
    """Folder in which audit and traffic keep control's last answer about clusters, with references to secrets alone.

    They can restart while control is away.
    """
    log_level: str = "INFO"
    """Least level of the entries in the log: `DEBUG`, `INFO`, `WARNING` or `ERROR`."""

    master: str = "local[*,2]"
    """Spark's master: `local` (a task that fails is tried once more), or `spark://`, `yarn`, `k8s://`."""
    driver_host: str = ""
    """The driver's address for executors. Empty: loopback, and on a cluster this machine's name."""
    driver_bind_address: str = ""
    """The address that the driver listens on. Empty: loopback, and on a cluster the address of `DRIVER_HOST`."""
    ship_package: bool = True
    """Whether executors of a cluster get this package from the driver; not needed if their image has it."""
    spark_properties: dict[str, str] = Field(default_factory=dict)
    """More of Spark's own properties (for example `spark.executor.memory`); they override the pipeline's."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9]\d*[mg]$")] = "1g"
    """Heap of the driver's JVM; Python workers come on top."""
    driver_java_options: str = ""
    """More options of the driver's JVM."""
    max_batch_rows: PositiveInt = 200_000
    """The most rows of one micro-batch, shared fairly between the partitions of all its topics."""
    stall_timeout_s: PositiveFloat = 60.0
    """Seconds that a partition may yield no expected records before the job fails."""
    request_timeout_s: PositiveFloat = 30.0
    """Time-out in seconds of a request about topics and offsets."""
    trigger_interval_s: PositiveFloat = 10.0
    """Seconds between two checks of the continuous jobs audit and traffic for new records."""

    database_url: SecretStr | None = None
    """PostgreSQL of control, as `postgresql://user:password@host:port/database`; for jobs that write tables."""
    database_connections: PositiveInt = 4
    """Connections to PostgreSQL that the tasks of one batch have at once, for any number of Spark's slots."""
    shared_folders: bool = False
    """Whether a folder without a URL scheme is the same on the driver and all executors (a mounted volume).

    Otherwise the pipeline refuses such a folder on a cluster.
    """

    archive_options: dict[str, SecretStr] = Field(default_factory=dict)
    """Options of the archive's store if it is read without Spark: see `docs/how-to/archive-and-restore.md`."""
    archive_interval_s: PositiveFloat = 300.0
    """Seconds between two checks of a continuous archive for new records. Each check that finds some writes files."""
    compact_after_s: NonNegativeFloat = 3600.0
    """Seconds after its end (UTC) at which a day of the archive counts as finished."""
    archive_file_mb: PositiveInt = 256
    """Approximate size of the files of finished days."""

    traffic_topic: str = "mesh.traffic"
    """Topic of the home cluster with the counters of gateways and sidecars."""
    traffic_minutes_days: int = Field(default=7, ge=0, le=36_500)
    """Days that traffic by minute is kept; 0: for ever."""
    traffic_hours_days: int = Field(default=90, ge=0, le=36_500)
    """Days that traffic by hour is kept; 0: for ever."""
    traffic_days_days: int = Field(default=400, ge=0, le=36_500)
    """Days that traffic by day is kept; 0: for ever."""
    receipts_days: int = Field(default=30, ge=0, le=36_500)
    """Days that receipts of readers are kept; 0: for ever."""

    schema_registry_url: str = ""
    """URL of a registry with Confluent's API, which profiles use to find the format of values. Empty for none."""
    schema_registry_credentials: SecretStr | None = None
    """Credentials for the registry, as `USER:PASSWORD`."""

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(r"postgres(ql)?://", url.get_secret_value()):  # the URL is never shown
            raise ValueError("is no PostgreSQL URL; expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        return url

    def check_folder(self, folder: str) -> None:
        """ValueError for a folder that each executor of a cluster would look for on its own machine."""
        is_here = not re.match(r"[a-z][a-z0-9+.-]*:", folder) or folder.startswith("file:")
        if is_here and not is_local(self.master) and not self.shared_folders:
            raise ValueError(
                f"folder {folder} is on this machine, but Spark runs at {self.master}: each executor would write to a "
                "folder of its own machine. Name a URL that all executors reach. If all executors mount the folder, "
                "set KAFKA_MESH_PIPELINE_SHARED_FOLDERS=true"
            )

    @property
    def client_properties(self) -> dict[str, str]:
        """`kafka_properties` with the secrets in clear, for clients."""
        return in_clear(self.kafka_properties)

    @property
    def store_options(self) -> dict[str, str]:
        """`archive_options` with the secrets in clear, for `Store`."""
        return in_clear(self.archive_options)
