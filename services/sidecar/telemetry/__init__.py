"""The metrics, traffic counts and reported errors of the sidecar and of its Kafka clients."""
