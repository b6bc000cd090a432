"""Samples of the lag of groups in PostgreSQL: the leading control stores them, and every control reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, cast, func, select, text

from services.control.domain.topics.lag import Sample
from services.control.domain.topics.lag_samples import KEPT, LASTING, LASTING_KEPT, Round, Row, Series
from services.control.steady_clock import Clock
from services.control.store.cleaning import AT_ONCE, deleted_total
from services.control.store.database import Database
from services.control.store.lag_tables import group_lag_rounds, group_lag_samples, group_lag_series
from services.control.store.statements import add_rows, insert_rows, put_row

_FORGET_SAMPLES = text(
    "delete from group_lag_samples where ctid = any(array("
    "select ctid from group_lag_samples where lasts = :lasts and time < :before limit :most))"
)
_FORGET_SERIES = text(
    "delete from group_lag_series s where not exists (select from group_lag_samples t where t.series = s.series)"
)
_LAST = text(
    "select s.topic, t.partitions from group_lag_series s join lateral ("
    "select partitions from group_lag_samples t where t.series = s.series and t.time between :start and :end "
    "order by t.time desc limit 1) t on true where s.group_name = :group and (:topic = '' or s.topic = :topic)"
)
SAMPLES = group_lag_samples.c

Partition = tuple[str, int]


class LagTables:
    """Stores and reads the samples."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def store(self, rows: Collection[Row], taken: Round) -> None:
        """Stores the rows of a round, all or none. A series is stored with its lasting rows."""
        lasting = {each.series for each in rows if each.lasts}
        names = [{"series": str(_key(each)), "group_name": each.group, "topic": each.topic} for each in sorted(lasting)]
        samples = [
            {"series": str(_key(each.series)), "time": each.time, "lasts": each.lasts, **asdict(each.seen)}
            for each in rows
        ]
        await self._database.carry_out(
            [
                *add_rows(group_lag_series, names),
                *insert_rows(group_lag_samples, samples),
                put_row(group_lag_rounds, {"id": 1, **asdict(taken)}),
            ]
        )

    async def last_round(self) -> Round | None:
        async with self._database.transaction() as connection:
            row: Any = (await connection.execute(select(group_lag_rounds))).mappings().first()
        return None if row is None else Round(**{name: value for name, value in row.items() if name != "id"})

    async def partitions(self, group: str, topic: str, start: datetime, end: datetime) -> list[Partition]:
        """The partitions that the group read at its last sample in the time; `topic`: empty for all."""
        asked = {"group": group, "topic": topic, "start": start, "end": end}
        async with self._database.transaction() as connection:
            found = (await connection.execute(_LAST, asked)).all()
        return sorted((row.topic, number) for row in found for number in row.partitions)

    async def samples(
        self, group: str, wanted: Collection[Partition], start: datetime, end: datetime, every: int
    ) -> dict[Partition, list[Sample]]:
        """The samples of these partitions by time; `every`: 0 for all, n for each n-th of those in five minutes."""
        topics = {_key(Series(group, topic)): topic for topic, _ in wanted}
        query = (
            select(SAMPLES.series, SAMPLES.time, SAMPLES.partitions, SAMPLES.positions, SAMPLES.ends)
            .where(SAMPLES.series.in_(topics), SAMPLES.time.between(start, end))
            .order_by(SAMPLES.series, SAMPLES.time)
        )
        if every:
            number = func.floor(func.extract("epoch", SAMPLES.time) / LASTING.total_seconds())
            query = query.where(SAMPLES.lasts, func.mod(cast(number, BigInteger), every) == 0)
        async with self._database.transaction() as connection:
            rows = (await connection.execute(query)).all()
        return await asyncio.to_thread(_by_partition, rows, topics, frozenset(wanted))

    async def forget(self) -> None:
        """Deletes the rows that are too old, some at a time, and series without rows."""
        now = self._clock()
        for lasts, kept in ((False, KEPT), (True, LASTING_KEPT)):
            asked = {"lasts": lasts, "before": now - kept, "most": AT_ONCE}
            deleted = AT_ONCE
            while deleted == AT_ONCE:
                async with self._database.transaction() as connection:
                    deleted = (await connection.execute(_FORGET_SAMPLES, asked)).rowcount
                deleted_total.labels(group_lag_samples.name).inc(deleted)
        async with self._database.transaction() as connection:
            await connection.execute(_FORGET_SERIES)


def _by_partition(
    rows: Sequence[Any], topics: Mapping[UUID, str], wanted: Collection[Partition]
) -> dict[Partition, list[Sample]]:
    found: dict[Partition, list[Sample]] = {}
    for series, time, partitions, positions, ends in rows:
        at, topic = time.timestamp(), topics[series]
        for number, position, end in zip(partitions, positions, ends, strict=True):
            if (topic, number) in wanted:
                found.setdefault((topic, number), []).append(Sample(at, position, end))
    return found


def _key(series: Series) -> UUID:
    names = f"{len(series.group)} {series.group}{series.topic}"
    return UUID(bytes=sha256(names.encode()).digest()[:16])
