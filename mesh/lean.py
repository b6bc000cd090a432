"""A start without libraries that a service never uses, and without a search for garbage among its imports.

Others load these libraries where they find them: structlog loads rich, with pygments and attr, for tracebacks with
variables, which no service writes. The collector would look through all modules again and again while they are loaded,
and all of them stay. Both together are a fifth of the time of the imports.
"""

from __future__ import annotations

import gc
import sys

NEVER_USED = ("rich",)


def start_lean(*unused: str) -> None:
    """Before a service imports the rest; `unused`: libraries that this service does without, too.

    Python takes a module that is None for one that is not installed.
    """
    absent: dict[str, None] = dict.fromkeys(name for name in (*NEVER_USED, *unused) if name not in sys.modules)
    sys.modules.update(absent)  # type: ignore[arg-type]  # None is documented, and not in the type
    gc.disable()


def collect_from_now_on() -> None:
    """After the imports: collections need not walk over what they loaded."""
    gc.freeze()
    gc.enable()
