"""Tables of pages that come from the code: their places in a page, and their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
MONITORED = ("gateway", "control", "router", "sidecar", "pipeline")
"""Services with alerts, and with a target in docker-compose.yml."""
SERVICES = (*MONITORED, "console")
_END = "<!-- end of that table -->"
_PLACE = re.compile(rf"<!-- from the code, by `make reference`(?:: (\w+))? -->\n.*?{_END}", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def places(page: Path) -> list[str]:
    """The names of a page's places for tables; one has no name. ValueError if none has no name, or several."""
    names: list[str] = _PLACE.findall(page.read_text(encoding="utf-8"))
    if names.count("") != 1:
        raise ValueError(
            f"{page} needs one place without a name: <!-- from the code, by `make reference` --> and {_END}"
        )
    return names


def filled(page: Path, tables: Mapping[str, str]) -> str:
    """The text of the page with these tables, by the names of their places."""
    text = page.read_text(encoding="utf-8")
    return _PLACE.sub(lambda found: f"{found[0].splitlines()[0]}\n\n{tables[found[1] or '']}\n\n{_END}", text)
