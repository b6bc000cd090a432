"""Records on their way to Kafka. Knows no HTTP."""
