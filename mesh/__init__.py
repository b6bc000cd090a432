"""The ground that all services share: routing domain, settings, telemetry, lifecycle, contracts. Imports no service."""

import os
from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("kafka-mesh")
except PackageNotFoundError:
    VERSION = "0+unknown"
"""Version of this software, as members report it."""

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
"""Services start programs, and never fork to go on. Before a fork, gRPC's handlers wait up to 60 s for its own threads.
The whole process stands still meanwhile. gRPC reads this variable when it begins."""
