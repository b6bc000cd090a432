"""The embedded mesh: supervisor, embedded Kafka and PostgreSQL, and the `kafka-mesh` command."""
