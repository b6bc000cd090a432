"""Gateways that control has heard of and that have not said goodbye, for the control that leads next: it must not move
topics past one that it has never seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

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

    async def load(self, now: datetime) -> list[admin.Member]:
        """All of them. Those that were connected when they were written down count as heard of `now`: for how long
        they were, nobody has written.
        """
        async with self._database.transaction() as connection:
            rows = (await connection.execute(select(schema.gateways))).all()
        found = []
        for row in rows:
            member = ParseDict(row.member, admin.Member(), ignore_unknown_fields=True)
            member.last_seen_time.FromDatetime(now if row.connected else row.seen)
            found.append(member)
        return found

    async def change(self, heard: Mapping[str, tuple[admin.Member, bool]], gone: Collection[str]) -> None:
        """Writes these down, with whether they are connected, and forgets those that are gone."""
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
