"""A start without what a service never uses: libraries that others load where they find them, and a search of imports.

structlog loads rich, with pygments and attr, for tracebacks with variables, which no service writes. It loads greenlet
for threads of another kind. prometheus_client loads snappy for a format that no scraper asks for. They are 10 MB of a
process, and a fifth of the time of its imports. The collector would look through all modules again and again while they
are loaded, and all of them stay.
"""

from __future__ import annotations

import gc
import sys

SPARED = ("rich", "greenlet", "snappy")


def start_lean(*needed: str) -> None:
    """Before a service imports the rest. Python takes a module that is None for one that is not installed.

    `needed`: the libraries that this service uses all the same.
    """
    spared = (name for name in SPARED if name not in needed and name not in sys.modules)
    absent: dict[str, None] = dict.fromkeys(spared)
    sys.modules.update(absent)  # type: ignore[arg-type]  # None is documented, and not in the type
    gc.disable()


def collect_from_now_on() -> None:
    """After the imports: collections need not walk over what they loaded."""
    gc.freeze()
    gc.enable()
