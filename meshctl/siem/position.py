"""How far an export has come: kept in a file, so that the next run goes on there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mesh.whole_files import replace_file


class PositionError(ValueError):
    """The file holds no position."""


@dataclass(slots=True)
class Position:
    """The last events that the target has."""

    call: int = 0
    """Number of the last call to control."""
    record_ms: int = 0
    """Time of the last audit event of a record; 0 for none."""


def read(path: Path) -> Position | None:
    """None if there is no file. PositionError and OSError otherwise."""
    try:
        given = json.loads(path.read_bytes())
        return Position(int(given["call"]), int(given["record_ms"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise PositionError(f"{path} holds no position of an export ({error}): remove it to begin anew") from error


def write(path: Path, position: Position) -> None:
    replace_file(path, json.dumps(asdict(position)).encode() + b"\n")
