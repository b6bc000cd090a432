"""Edges of lineage in PostgreSQL: the leading control stores them, and every control reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import Column, select

from services.control.domain.lineage.edges import Edge, EdgeKind, Node, NodeKind
from services.control.domain.lineage.memory import Look, Seen
from services.control.store.cleaning import delete_older
from services.control.store.database import Database
from services.control.store.lineage_tables import lineage_edges, lineage_looks
from services.control.store.statements import delete_rows, joined, put_row

EDGES = lineage_edges.c


class LineageTables:
    """Stores and reads edges."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, written: Iterable[Seen], deleted: Iterable[Edge], look: Look) -> None:
        """Stores what a look has changed, all or nothing."""
        puts = [put_row(lineage_edges, _row(each)) for each in written]
        await self._database.carry_out(
            [
                *delete_rows(lineage_edges, [_key(each) for each in deleted]),
                *joined(puts),
                put_row(lineage_looks, {"id": 1, **asdict(look)}),
            ]
        )

    async def last_look(self) -> Look | None:
        async with self._database.transaction() as connection:
            row: Any = (await connection.execute(select(lineage_looks))).mappings().first()
        return None if row is None else Look(**{name: value for name, value in row.items() if name != "id"})

    async def youngest(self, most: int) -> list[Seen]:
        """So many edges, those that control has seen last."""
        query = select(lineage_edges).order_by(EDGES.time.desc()).limit(most)
        async with self._database.transaction() as connection:
            return [_seen(row) for row in await connection.execute(query)]

    async def page(self, after: str, since: datetime | None, most: int) -> list[tuple[str, Seen]]:
        """Edges behind a key, each with its own key, in the order of the keys."""
        query = select(lineage_edges).order_by(EDGES.edge).limit(most)
        if after:
            query = query.where(UUID(after) < EDGES.edge)
        if since is not None:
            query = query.where(EDGES.time >= since)
        async with self._database.transaction() as connection:
            return [(str(row.edge), _seen(row)) for row in await connection.execute(query)]

    async def forget(self, before: datetime) -> None:
        """Deletes the edges that no control has seen since."""
        await delete_older(self._database, lineage_edges, before)

    async def out_of(self, nodes: Collection[Node], most: int) -> list[Seen]:
        """Edges that leave these nodes."""
        return await self._at(EDGES.source, nodes, most)

    async def into(self, nodes: Collection[Node], most: int) -> list[Seen]:
        """Edges that lead to these nodes."""
        return await self._at(EDGES.target, nodes, most)

    async def _at(self, end: Column[str], nodes: Collection[Node], most: int) -> list[Seen]:
        query = select(lineage_edges).where(end.in_([_text(each) for each in nodes])).order_by(EDGES.time.desc())
        async with self._database.transaction() as connection:
            return [_seen(row) for row in await connection.execute(query.limit(most))]


def _row(seen: Seen) -> dict[str, Any]:
    edge = seen.edge
    return {
        "edge": str(_key(edge)), "source": _text(edge.source), "target": _text(edge.target), "kind": edge.kind.value,
        "rule": edge.rule, "first_time": seen.first, "time": seen.last, "present": seen.present,
    }  # fmt: skip


def _seen(row: Any) -> Seen:
    edge = Edge(_node(row.source), _node(row.target), EdgeKind(row.kind), row.rule)
    return Seen(edge, row.first_time, row.time, row.present)


def _text(node: Node) -> str:
    return f"{node.kind.value}:{node.name}"


def _node(text: str) -> Node:
    kind, _, name = text.partition(":")
    return Node(NodeKind(kind), name)


def _key(edge: Edge) -> UUID:
    names = "\0".join((_text(edge.source), _text(edge.target), edge.kind.value, edge.rule))
    return UUID(bytes=sha256(names.encode()).digest()[:16])
