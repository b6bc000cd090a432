"""Bytes of the Kafka protocol: bytes in, bytes out. README.md says which module knows what."""
