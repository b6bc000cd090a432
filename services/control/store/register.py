"""Gateways that control has heard and that have not said goodbye. The next leader reads them: it must not move topics
without a gateway that it has never seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC

from google.protobuf.json_format import MessageToJson, ParseDict
from sqlalchemy import delete, select, text

from mesh.rpc import admin
from services.control.store import schema
from services.control.store.database import Database

_HEARD = text(
    "insert into gateways (name, member, connected, seen) "
    "select w.name, cast(w.member as jsonb), w.connected, w.seen from unnest("
    "cast(:names as text[]), cast(:members as text[]), cast(:connected as boolean[]), cast(:seen as timestamptz[])"
    ") as w(name, member, connected, seen) "
    "on conflict (name) do update set member = excluded.member, connected = excluded.connected, seen = excluded.seen"
)
"""One statement, whatever the number of gateways. To compile one with a row for each took a third of control's CPU."""


class GatewayRegister:
    """Rows of `gateways`, one for each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> dict[str, tuple[admin.Member, bool]]:
        """All registered gateways by name, as they were last stored, and whether they were connected then."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(schema.gateways))).all()
        return {
            row.name: (ParseDict(row.member, admin.Member(), ignore_unknown_fields=True), row.connected) for row in rows
        }

    async def change(self, heard: Mapping[str, tuple[admin.Member, bool]], gone: Collection[str]) -> None:
        """Stores these gateways, with whether they are connected, and deletes the gateways in `gone`."""
        async with self._database.transaction() as connection:
            if gone:
                await connection.execute(delete(schema.gateways).where(schema.gateways.c.name.in_(gone)))
            if heard:
                members = [member for member, _ in heard.values()]
                rows = {
                    "names": [*heard],
                    "members": [MessageToJson(member, preserving_proto_field_name=True) for member in members],
                    "connected": [connected for _, connected in heard.values()],
                    "seen": [member.last_seen_time.ToDatetime(UTC) for member in members],
                }
                await connection.execute(_HEARD, rows)
