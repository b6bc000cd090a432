"""`python -m services.router.forwarding`: the child process, as the router starts it."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser

from mesh.telemetry import configure_logging
from mesh.tracing import TracingSettings
from mesh.tracing.settings import TRACING
from services.router.forwarding.compiler import Compiler
from services.router.forwarding.process import serve
from services.router.forwarding.registry_access import RegistryAccess


def main() -> None:
    configure_logging("record-rules")
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints must not speak in our name
    parser = ArgumentParser(description=__doc__)
    parser.add_argument(TRACING, default="{}", help="the settings about traces, as JSON")
    said, rest = parser.parse_known_args()
    tracing = TracingSettings.model_validate_json(said.tracing)
    serve(sys.stdin.buffer, reports, Compiler(RegistryAccess.of_arguments(rest)), tracing)


if __name__ == "__main__":
    main()
