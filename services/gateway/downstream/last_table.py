"""The last routing table on disk: what a gateway runs from when it starts and nobody can tell it the present one.

The file is the protobuf JSON of `mesh.v1.RoutingTable`. Without routers it is also how a gateway is told its rules.
"""

import os
import tempfile
from pathlib import Path

from google.protobuf import json_format

from mesh.routing import InvalidRuleError, RoutingTable
from mesh.routing.codec import table_from_proto, table_to_proto
from mesh.rpc import routing

FILE_NAME = "routing-table.json"


class UnusableTableError(Exception):
    """The file is there but can't be understood."""


def load(state_dir: Path) -> RoutingTable | None:
    """The table, or None when there is no file."""
    path = state_dir / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return table_from_proto(json_format.Parse(text, routing.RoutingTable(), ignore_unknown_fields=True))
    except (json_format.ParseError, InvalidRuleError, UnicodeDecodeError) as error:
        raise UnusableTableError(f"{path}: not a routing table ({error}); remove it to start without one") from error


def save(state_dir: Path, table: RoutingTable) -> None:
    """Replace the file as a whole: a crash leaves the old table or the new one."""
    state_dir.mkdir(parents=True, exist_ok=True)
    text = json_format.MessageToJson(table_to_proto(table), preserving_proto_field_name=True)
    handle, name = tempfile.mkstemp(dir=state_dir, prefix=f".{FILE_NAME}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(state_dir / FILE_NAME)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
