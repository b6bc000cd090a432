"""Questions about the past, asked of PostgreSQL: each is answered from an index, however long the log is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Text, bindparam, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh.event_log import upcast
from mesh.routing import RuleVersion
from mesh.routing.codec import rule_from_proto
from mesh.rpc import events, routing
from services.control.domain.view import POLICIES, RULES_STREAM, Origin
from services.control.store import schema
from services.control.store.database import Database

AGGREGATES = (
    "stream <> 'rules' and stream not like 'instances/%' and stream not like 'members/%' "
    "and stream not like 'schedules/%' and stream not like 'replays/%' and stream not like 'access/%' "
    "and stream not like 'users/%' "
    f"and stream not in {POLICIES}"
)
"""Streams whose last events hold all of their state. An index covers these, and those of access, users and policies."""
NO_DECISIONS = ("rollout_switched", "rollout_aborted", "replay_progressed")
"""Kinds of events that only report the outcome of a decision."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change of the rules: "pending", "switched" or "aborted", and why."""

    state: str
    cause: str


class PastStore:
    """Reads the past of the mesh."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def position_at(self, time: datetime) -> int:
        """Position of the last event at or before `time`; 0 when there is none."""
        table = schema.events
        query = select(table.c.position).where(table.c.time <= time)
        async with self._database.transaction() as connection:
            query = query.order_by(table.c.time.desc(), table.c.position.desc()).limit(1)
            return int(await connection.scalar(query) or 0)

    async def time_of(self, position: int) -> datetime | None:
        """The time at which the event at `position` was decided."""
        table = schema.events
        async with self._database.transaction() as connection:
            found = await connection.scalar(select(table.c.time).where(table.c.position == position))
        return None if found is None else found.astimezone(UTC)

    async def rules_at(self, revision: int) -> list[tuple[RuleVersion, Origin]]:
        """The rules at a revision, as if still in force, each with the event that gave it this form."""
        query = text(
            "select v.spec, v.rank, v.from_revision, e.actor, e.time "
            "from rule_versions v join events e on e.position = v.from_revision "
            "where int8range(v.from_revision, v.until_revision) @> cast(:revision as bigint)"
        )
        rows = await self._rows(query, revision=revision)
        return [
            (
                _version(row.spec, row.rank, row.from_revision, None),
                Origin(row.from_revision, row.actor, _naive(row.time)),
            )
            for row in rows
        ]

    async def last_of_aggregates(self, revision: int) -> list[events.Event]:
        """The last event of each kind in the streams of clusters, record rules and the mesh, oldest first."""
        query = text(
            f"select distinct on (stream, kind) body from events where {AGGREGATES} "
            "and position <= :revision order by stream, kind, position desc"
        )
        found = [upcast(row.body) for row in await self._rows(query, revision=revision)]
        return sorted(found, key=lambda event: event.position)

    async def change_before(self, revision: int) -> int:
        """Position of the last change of the rules before `revision` that counted; 0 when there is none."""
        query = text(
            "select e.position from events e left join rollouts r on r.revision = e.position "
            "where e.stream = :stream and e.kind = 'rule_set_changed' and e.position < :revision "
            "and coalesce(r.state, 'switched') = 'switched' order by e.stream_version desc limit 1"
        )
        rows = await self._rows(query, revision=revision, stream=RULES_STREAM)
        return int(rows[0].position) if rows else 0

    async def events_at(self, positions: Collection[int]) -> dict[int, events.Event]:
        """The events at these positions."""
        table = schema.events
        async with self._database.transaction() as connection:
            query = select(table.c.position, table.c.body).where(table.c.position.in_(positions))
            return {row.position: upcast(row.body) for row in await connection.execute(query)}

    async def decisions_before(self, position: int, stream: str, limit: int) -> list[events.Event]:
        """Events below `position`, newest first, of one stream or of all, without those that are no decisions."""
        table = schema.events
        query = select(table.c.body).where(table.c.position < position)
        query = query.where(table.c.kind.not_in(NO_DECISIONS)).limit(limit)
        query = (
            query.where(table.c.stream == stream).order_by(table.c.stream_version.desc())
            if stream
            else query.order_by(table.c.position.desc())
        )
        async with self._database.transaction() as connection:
            return [upcast(row.body) for row in await connection.execute(query)]

    async def outcomes(self, revisions: Collection[int]) -> dict[int, Outcome]:
        """The outcomes of changes of the rules."""
        table = schema.rollouts
        async with self._database.transaction() as connection:
            query = select(table.c.revision, table.c.state, table.c.cause).where(table.c.revision.in_(revisions))
            return {row.revision: Outcome(row.state, row.cause) for row in await connection.execute(query)}

    async def uncounted(self, low: int, high: int, limit: int) -> list[int]:
        """Changes of the rules in [low, high) that are held or were given up, newest first."""
        query = text(
            "select revision from rollouts where state <> 'switched' and revision >= :low and revision < :high "
            "order by revision desc limit :limit"
        )
        return [int(row.revision) for row in await self._rows(query, low=low, high=high, limit=limit)]

    async def rules_before(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], RuleVersion]:
        """For each (rule_id, revision) the version that the rule had right before that revision, where it had one."""
        wanted = list(pairs)
        query = text(
            "select w.rule_id, w.revision, v.spec, v.rank, v.from_revision, v.until_revision "
            "from unnest(:ids, :revisions) as w(rule_id, revision) cross join lateral ("
            "select * from rule_versions where rule_id = w.rule_id and from_revision < w.revision "
            "order by from_revision desc limit 1) v where v.until_revision is null or v.until_revision >= w.revision"
        ).bindparams(bindparam("ids", type_=ARRAY(Text)), bindparam("revisions", type_=ARRAY(BigInteger)))
        rows = await self._rows(query, ids=[each for each, _ in wanted], revisions=[at for _, at in wanted])
        return {(row.rule_id, row.revision): _of_row(row) for row in rows}

    async def orders_at(self, revisions: Collection[int]) -> dict[int, list[str]]:
        """Ids of the rules in their order, at each of these revisions."""
        query = text(
            "select w.revision, array_agg(v.rule_id order by v.rank) as ids from unnest(:revisions) as w(revision) "
            "join rule_versions v on int8range(v.from_revision, v.until_revision) @> w.revision group by w.revision"
        ).bindparams(bindparam("revisions", type_=ARRAY(BigInteger)))
        return {row.revision: list(row.ids) for row in await self._rows(query, revisions=list(revisions))}

    async def earlier_specs(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], events.Event]:
        """For each (stream, position) the last event before it in the stream that holds a whole specification."""
        wanted = list(pairs)
        query = text(
            "select w.stream, w.position, e.body from unnest(:streams, :positions) as w(stream, position) "
            "cross join lateral (select body from events where stream = w.stream and position < w.position and kind in "
            "('cluster_registered', 'cluster_updated', 'record_rule_created', 'record_rule_updated', "
            "'subscription_declared', 'subscription_withdrawn') "
            "order by stream_version desc limit 1) e"
        ).bindparams(bindparam("streams", type_=ARRAY(Text)), bindparam("positions", type_=ARRAY(BigInteger)))
        rows = await self._rows(query, streams=[each for each, _ in wanted], positions=[at for _, at in wanted])
        return {(row.stream, row.position): upcast(row.body) for row in rows}

    async def versions_of(self, rule_id: str, below: int, limit: int) -> list[RuleVersion]:
        """The last versions of a rule that began below a revision, newest first."""
        table = schema.rule_versions
        query = select(table).where(table.c.rule_id == rule_id, table.c.from_revision < below)
        async with self._database.transaction() as connection:
            rows = await connection.execute(query.order_by(table.c.from_revision.desc()).limit(limit))
            return [_of_row(row) for row in rows]

    async def versions_about(self, topic: str, below: int, limit: int) -> tuple[int, list[RuleVersion]]:
        """Versions of rules that may match the topic, in force at some revision of [low, below); and that `low`: as far
        back as `limit` versions go, 0 where that is all.
        """
        about = (
            "(match_kind = 'topic' and match = :topic or match_kind = 'topic_prefix' and match = any(:heads) "
            "or match_kind in ('topic_regex', 'unmatched_topics'))"
        )
        heads = [topic[:length] for length in range(1, len(topic) + 1)]
        start = text(
            f"select from_revision from rule_versions where {about} and from_revision < :below "
            "order by from_revision desc offset :limit limit 1"
        ).bindparams(bindparam("heads", type_=ARRAY(Text)))
        within = text(
            f"select * from rule_versions where {about} "
            "and int8range(from_revision, until_revision) && int8range(cast(:low as bigint), cast(:below as bigint))"
        ).bindparams(bindparam("heads", type_=ARRAY(Text)))
        async with self._database.transaction() as connection:
            known = {"topic": topic, "heads": heads, "below": below}
            low = int(await connection.scalar(start, {**known, "limit": limit}) or 0)
            rows = await _all(connection, within, {**known, "low": low})
        return low, [_of_row(row) for row in rows]

    async def _rows(self, query: Any, **values: Any) -> Sequence[Any]:
        async with self._database.transaction() as connection:
            return await _all(connection, query, values)


async def _all(connection: AsyncConnection, query: Any, values: dict[str, Any]) -> Sequence[Any]:
    return (await connection.execute(query, values)).all()


def _of_row(row: Any) -> RuleVersion:
    return _version(row.spec, row.rank, row.from_revision, row.until_revision)


def _version(spec: bytes, rank: float, from_revision: int, until_revision: int | None) -> RuleVersion:
    return RuleVersion(rule_from_proto(routing.RuleSpec.FromString(spec)), rank, from_revision, until_revision)


def _naive(time: datetime) -> datetime:
    """The form of times in origins: in UTC, without a time zone."""
    return time.astimezone(UTC).replace(tzinfo=None)
