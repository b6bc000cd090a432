"""Spark for all jobs: its session, its source of Kafka records, and the watch for hung batches."""
