"""Client telemetry (KIP-714): the metrics that clients are asked to send of themselves, and those that they sent."""
