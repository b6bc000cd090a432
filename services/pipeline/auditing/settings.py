"""The pipeline's settings of the job `audit`."""

from __future__ import annotations

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, SecretStr

from mesh.settings import WordList


class AuditSettings(BaseModel):
    """A part of PipelineSettings."""

    audit_folder: str = ""
    """The folder of the job's Parquet files and checkpoints: a path, or a URL that Hadoop knows."""
    audit_options: dict[str, SecretStr] = Field(default_factory=dict)
    """Options of that store for tasks, which write there without Spark: like `archive_options`."""
    audit_topics: WordList = ("sidecar-audit",)
    """Topics of all clusters with audit events."""
    audit_home_topics: WordList = ("mesh.audit-records",)
    """Topics of the home cluster alone with audit events."""
    audit_calls_topic: str = "mesh.audit"
    """Topic of the home cluster in which control records its calls."""
    audit_malformed_suffix: str = Field(default=".malformed", pattern=r"^[._-][A-Za-z0-9._-]{1,60}$")
    """A record that is no audit event goes to the topic TOPIC + this, on the same cluster."""
    audit_kept_days: PositiveInt = 30
    """Days that audit events are kept in PostgreSQL."""
    audit_folder_kept_days: int = Field(default=0, ge=0)
    """Days that audit events are kept in the folder; 0: for ever."""
    audit_rate: PositiveInt = 5_000
    """The most events a second that a continuous audit reads of each cluster; further events wait in Kafka."""
    audit_heartbeat_s: PositiveFloat = 10.0
    """Seconds between two reports of the job's progress, also if there is nothing to do."""

    @property
    def audit_store_options(self) -> dict[str, str]:
        """`audit_options` with the secrets in clear, for `Store`."""
        return {name: value.get_secret_value() for name, value in self.audit_options.items()}
