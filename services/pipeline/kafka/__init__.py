"""Kafka without Spark: clusters, positions of streams, requests, readers, and the source of all jobs."""
