"""Builds and fetches what the client tests need, before any test waits for it: `python -m tests.clients.prepare`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tests.clients.console.driver import ConsoleTools
from tests.clients.registry import ADMINS, CLIENTS

NOBODY = "127.0.0.1:9"
"""Nothing connects before the first order."""


def main() -> None:
    everything: Mapping[str, Callable[[str], object]] = {**ADMINS, **CLIENTS, "console-tools": ConsoleTools}
    for name, make in everything.items():
        start = time.monotonic()
        make(NOBODY)
        print(f"{name} is there after {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
