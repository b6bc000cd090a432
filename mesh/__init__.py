"""The ground that all services share: routing domain, settings, telemetry, lifecycle, contracts. Imports no service."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("kafka-mesh")
except PackageNotFoundError:
    VERSION = "0+unknown"
"""Version of this software, as members report it."""
