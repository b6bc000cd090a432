"""What the pipeline's settings say about the job `audit`."""

from __future__ import annotations

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, SecretStr

from mesh.settings import WordList


class AuditSettings(BaseModel):
    """A part of PipelineSettings."""

    audit_folder: str = ""
    """Where the job audit keeps its Parquet and its checkpoints: a path, or a URL that Hadoop knows."""
    audit_options: dict[str, SecretStr] = Field(default_factory=dict)
    """What that store wants to know of tasks, which write there without Spark: as `archive_options`, see the README."""
    audit_topics: WordList = ("sidecar-audit",)
    """Topics of all clusters in which it is told what became of records."""
    audit_home_topics: WordList = ("mesh.audit-records",)
    """Topics of the home cluster alone in which it is told so."""
    audit_calls_topic: str = "mesh.audit"
    """Topic of the home cluster in which control tells who called it."""
    audit_malformed_suffix: str = Field(default=".malformed", pattern=r"^[._-][A-Za-z0-9._-]{1,60}$")
    """What is no audit event goes to the topic TOPIC + this, on the same cluster."""
    audit_kept_days: PositiveInt = 30
    """Days that audit events are kept in PostgreSQL."""
    audit_folder_kept_days: int = Field(default=0, ge=0)
    """Days that they are kept in the folder; 0: for ever."""
    audit_rate: PositiveInt = 5_000
    """Events a second that a continuous audit reads of each cluster at most; what comes faster waits in Kafka."""
    audit_heartbeat_s: PositiveFloat = 10.0
    """How often it is said how far the job is, also when there is nothing to do."""

    @property
    def audit_store_options(self) -> dict[str, str]:
        """`audit_options` as stores take them."""
        return {name: value.get_secret_value() for name, value in self.audit_options.items()}
