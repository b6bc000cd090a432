"""Gateways that control has heard and that have not said goodbye. The next leader reads them: it must not move topics
without a gateway that it has never seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC

from google.protobuf.json_format import MessageToJson, ParseDict
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as insert_or

from mesh.rpc import admin
from services.control.store import schema
from services.control.store.database import Database


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
        rows = [
            {
                "name": name,
                "member": json.loads(MessageToJson(member, preserving_proto_field_name=True)),
                "connected": connected,
                "seen": member.last_seen_time.ToDatetime(UTC),
            }
            for name, (member, connected) in heard.items()
        ]
        table = schema.gateways
        async with self._database.transaction() as connection:
            if gone:
                await connection.execute(delete(table).where(table.c.name.in_(gone)))
            if rows:
                new = insert_or(table).values(rows)
                changed = {name: new.excluded[name] for name in ("member", "connected", "seen")}
                await connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=changed))
