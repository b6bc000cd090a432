"""docs/reference/log-events.md: the events that services log, from their code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.tables import REFERENCE, ROOT, SERVICES, filled, table

PAGE: Path = REFERENCE / "log-events.md"
LEVELS = ("critical", "error", "exception", "warning", "info", "debug")
"""An exception has the level error, and a traceback."""
QUIET = ("info", "debug")
"""The pages for troubleshooting have the events of the other levels."""
DIFFERS = "…"
"""For the parts of an event's text that the code fills in."""


@dataclass(frozen=True, slots=True, order=True)
class Logged:
    """An event, as one line of code logs it."""

    event: str
    level: str
    fields: tuple[str, ...]


def logged(service: str) -> Iterator[Logged]:
    """Each place of the service's code that logs an event."""
    for path in (ROOT / "services" / service).rglob("*.py"):
        if "compiled" in path.parts:  # copies, as they are built
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(ast.Name("log"), level), args=[event, *_]) if level in LEVELS:
                    fields = tuple(sorted(each.arg for each in node.keywords if each.arg))
                    yield Logged(_text_of(event), level, fields)


def written() -> str:
    return filled(PAGE, {("" if service == SERVICES[0] else service): _table(service) for service in SERVICES})


def _table(service: str) -> str:
    found: dict[tuple[str, str], set[str]] = {}
    for each in logged(service):
        if each.level in QUIET:
            found.setdefault((each.event, each.level), set()).update(each.fields)
    rows = [
        (f"`{event}`", level, ", ".join(f"`{field}`" for field in sorted(fields)))
        for (event, level), fields in sorted(found.items())
    ]
    return table(("event", "level", "fields"), rows)


def _text_of(event: ast.expr) -> str:
    if isinstance(event, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else DIFFERS for part in event.values)
    found: str = ast.literal_eval(event)
    return found
