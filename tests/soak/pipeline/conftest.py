"""What tests of the pipeline share with those that take less time."""

from tests.integration.pipeline.conftest import audit_database, audits, spark

__all__ = ["audit_database", "audits", "spark"]
