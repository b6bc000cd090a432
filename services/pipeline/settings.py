"""Settings of the pipeline: environment `KAFKA_MESH_PIPELINE_<FIELD>`, else the file's `pipeline:`, else these."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr

from mesh.settings import AddressList, ServiceSettings


class PipelineSettings(ServiceSettings, service="pipeline"):
    """Run a Spark job."""

    bootstrap_servers: AddressList = ()
    """The gateway (or any Kafka). Empty: where `kafka-mesh` finds the mesh."""
    kafka_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """More librdkafka properties for every client of the pipeline: security and the like."""
    log_level: str = "INFO"

    master: str = "local[*]"
    driver_memory: Annotated[str, Field(pattern=r"^[1-9]\d*[mg]$")] = "1g"
    driver_java_options: str = ""
    """More options of the driver's JVM."""
    max_batch_rows: PositiveInt = 200_000
    """Upper bound of one micro-batch, over all its topics."""
    stall_timeout_s: PositiveFloat = 60.0
    """How long a partition may yield nothing, although it should, before the job fails."""
    request_timeout_s: PositiveFloat = 30.0
    """How long a question about topics and offsets may take."""
    trigger_interval_s: PositiveFloat = 10.0
    """How often a continuous job looks for new records; also about how small its files get."""
