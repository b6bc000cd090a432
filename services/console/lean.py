"""Libraries that other libraries load where they find them, and that a console never uses: 10 MB of a process.

structlog loads rich, with pygments and attr, for tracebacks with variables, which no service writes. It loads greenlet
for threads of another kind. prometheus_client loads snappy for a format that no scraper asks for.
"""

from __future__ import annotations

import sys

SPARED = ("rich", "greenlet", "snappy")


def spare_libraries() -> None:
    """Before they are loaded: Python takes a module that is None for one that is not installed."""
    absent: dict[str, None] = dict.fromkeys(name for name in SPARED if name not in sys.modules)
    sys.modules.update(absent)  # type: ignore[arg-type]  # None is documented, and not in the type
