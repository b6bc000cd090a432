"""The event log in PostgreSQL, its projections, and the outbox that carries it to Kafka."""
