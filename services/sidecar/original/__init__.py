"""The original sidecar's configuration: its YAML files as they stand, translated into our settings."""
