"""What of the pipeline needs no Spark: how clusters are asked and read, copies, days of tables, what control orders."""

from tests.integration.pipeline.conftest import no_client_outlives_its_cluster, orchard

__all__ = ["no_client_outlives_its_cluster", "orchard"]
