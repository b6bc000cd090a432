"""Client telemetry (KIP-714): what clients are asked to send of themselves, and what they sent."""
