"""Builds and fetches what tests of clients and the chart need, before they run: `python -m tests.clients.prepare`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.clients.console.driver import ConsoleTools
from tests.clients.mirror_maker import driver as mirror_maker
from tests.clients.registry import ADMINS, CLIENTS
from tests.clients.streams import driver as streams
from tests.e2e.console.browser import axe_source
from tests.kubernetes import tools as kubernetes

NOBODY = "127.0.0.1:9"
"""Nothing connects before the first order."""
BUILD_S = 600.0


def go_backend() -> None:
    """Go's own HTTP server in the build cache, for the backend of the tutorial."""
    backend = Path(__file__).parents[2] / "examples" / "sidecar" / "go" / "backend.go"
    subprocess.run(["go", "vet", str(backend)], check=True, timeout=BUILD_S)


def main() -> None:
    clients: Mapping[str, Callable[[str], object]] = {**ADMINS, **CLIENTS, "console-tools": ConsoleTools}
    everything: dict[str, Callable[[], object]] = {name: partial(make, NOBODY) for name, make in clients.items()}
    everything |= {"streams": streams.class_path, "mirror-maker": mirror_maker.class_path, "go-backend": go_backend}
    everything |= {name: partial(kubernetes.program, name) for name in ("helm", "kubeconform")}
    everything |= {"kubernetes-schemas": kubernetes.schemas, "axe-core": axe_source}
    for name, make in everything.items():
        start = time.monotonic()
        make()
        print(f"{name} is there after {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
