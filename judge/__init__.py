"""Judges any Kafka endpoint: drives it with unique values, disturbs it, and checks what every client saw."""
