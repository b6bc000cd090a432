"""Receipts in PostgreSQL, where a pipeline puts them: read, never written.

One query answers who was sent a record, and whether every reader was: each reader of the topic is a row, with what it
was sent of the partition. Members of a group are one reader, and so are clients of one client.id without a known group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Integer, Text, bindparam, text

from mesh.rpc import traffic
from services.control.domain.traffic.receipts import ReceiptQuery
from services.control.store.database import Database

MOST_CLIENTS = MOST_RANGES = 100
"""The most that one receipt has."""

Place = tuple[int, bool, str, str, str]
"""Partition, whether of an earlier topic, principal, group, client.id: by these receipts are sorted."""

_QUERY = """
with newest as (
  select distinct on (cluster) cluster, topic_id from receipts where topic = :topic order by cluster, last_time desc
), found as (
  select r.*, case when r.group_name = '' then r.client else '' end as single, r.topic_id <> n.topic_id as earlier
  from receipts r join newest n on n.cluster = r.cluster
  where r.topic = :topic and (:since is null or r.time >= :since)
), readers as (
  select distinct principal, group_name, single, earlier from found
  where (:principal = '' or principal = :principal) and (:group = '' or group_name = :group)
), places as (
  select distinct partition, earlier from found where :partition is null or partition = :partition
  union select :partition, false where :partition is not null
), page as (
  select p.partition, p.earlier, r.principal, r.group_name, r.single
  from places p join readers r on r.earlier = p.earlier
  where (:first or (p.partition, p.earlier, r.principal, r.group_name, r.single)
                   > (:after_partition, :after_earlier, :after_principal, :after_group, :after_single))
    and (:offset is not null or exists (
      select from found f where f.partition = p.partition and f.earlier = p.earlier and f.principal = r.principal
        and f.group_name = r.group_name and f.single = r.single))
  order by p.partition, p.earlier, r.principal, r.group_name, r.single limit :size
)
select page.*, told.*, (told.clients)[1:{most_clients}] as some_clients, listed.*, perhaps.*
from page cross join lateral (
  select coalesce(bool_or(f.sent @> :offset), false) as is_sent,
    coalesce(bool_or(f.perhaps @> :offset), false) as is_perhaps,
    min(f.first_time) filter (where f.sent @> :offset) as sent_first,
    max(f.last_time) filter (where f.sent @> :offset) as sent_last,
    min(f.first_time) filter (where :offset is null or f.perhaps @> :offset) as other_first,
    max(f.last_time) filter (where :offset is null or f.perhaps @> :offset) as other_last,
    max(f.last_time) as last_read,
    array_agg(distinct f.client)
      filter (where :offset is null or f.sent @> :offset or f.perhaps @> :offset) as clients,
    array_agg(distinct f.cluster)
      filter (where :offset is null or f.sent @> :offset or f.perhaps @> :offset) as clusters
  from found f where f.partition = page.partition and f.earlier = page.earlier and f.principal = page.principal
    and f.group_name = page.group_name and f.single = page.single
) told cross join lateral (
  select (array_agg(lower(u) order by u))[1:{most_ranges}] as firsts,
    (array_agg(upper(u) order by u))[1:{most_ranges}] as ends, count(*) as ranges
  from unnest((
    select range_agg(s) from found f, unnest(f.sent) s where :offset is null and f.partition = page.partition
      and f.earlier = page.earlier and f.principal = page.principal and f.group_name = page.group_name
      and f.single = page.single)) u
) listed cross join lateral (
  select min(lower(s)) as perhaps_first, max(upper(s)) as perhaps_end
  from found f, unnest(f.perhaps) s where :offset is null and f.partition = page.partition
    and f.earlier = page.earlier and f.principal = page.principal and f.group_name = page.group_name
    and f.single = page.single
) perhaps
order by page.partition, page.earlier, page.principal, page.group_name, page.single
"""
_TYPES: dict[str, Any] = {
    "topic": Text, "since": DateTime(timezone=True), "principal": Text, "group": Text, "partition": Integer,
    "offset": BigInteger, "first": Boolean, "after_partition": Integer, "after_earlier": Boolean,
    "after_principal": Text, "after_group": Text, "after_single": Text, "size": Integer,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundReceipts:
    """A page of receipts."""

    receipts: Sequence[traffic.Receipt]
    places: Sequence[Place]


class ReceiptTable:
    """Answers questions about the table of receipts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        named = _QUERY.replace("{most_clients}", str(MOST_CLIENTS)).replace("{most_ranges}", str(MOST_RANGES))
        self._query = text(named).bindparams(*(bindparam(name, type_=kind) for name, kind in _TYPES.items()))

    async def find(self, query: ReceiptQuery, after: Place | None, size: int) -> FoundReceipts:
        """At most `size` receipts behind the place `after`."""
        partition, earlier, principal, group, single = after or (0, False, "", "", "")
        asked = {
            "topic": query.topic, "since": query.since, "principal": query.principal, "group": query.group,
            "partition": query.partition, "offset": query.offset, "first": after is None,
            "after_partition": partition, "after_earlier": earlier, "after_principal": principal,
            "after_group": group, "after_single": single, "size": size,
        }  # fmt: skip
        async with self._database.transaction() as connection:
            rows = (await connection.execute(self._query, asked)).all()
        places = [(row.partition, row.earlier, row.principal, row.group_name, row.single) for row in rows]
        return FoundReceipts([_receipt(row, has_offset=query.offset is not None) for row in rows], places)

    async def untold(self) -> tuple[datetime, datetime] | None:
        """The time in which gateways did not tell all readers apart; None if they always did."""
        query = text("select min(first_time) as first, max(last_time) as last from receipts where topic = ''")
        async with self._database.transaction() as connection:
            row = (await connection.execute(query)).one()
        return None if row.first is None else (row.first.astimezone(UTC), row.last.astimezone(UTC))


def _receipt(row: Any, *, has_offset: bool) -> traffic.Receipt:
    receipt = traffic.Receipt(
        principal=row.principal,
        group=row.group_name,
        clients=row.some_clients or ([row.single] if row.single else []),
        partition=row.partition,
        clusters=row.clusters or [],
        earlier_topic=row.earlier,
    )
    if has_offset:
        receipt.state = (
            traffic.RECEIPT_STATE_SENT
            if row.is_sent
            else traffic.RECEIPT_STATE_PERHAPS
            if row.is_perhaps
            else traffic.RECEIPT_STATE_NOT_SENT
        )
    first, last = (row.sent_first, row.sent_last) if row.is_sent else (row.other_first, row.other_last)
    for field, time in (("first_time", first), ("last_time", last), ("last_read_time", row.last_read)):
        if time is not None:
            getattr(receipt, field).FromDatetime(time.astimezone(UTC))
    for begin, end in zip(row.firsts or (), row.ends or (), strict=True):
        receipt.ranges.add(first_offset=begin, last_offset=end - 1)
    receipt.more_ranges = row.ranges - len(receipt.ranges)
    if row.perhaps_first is not None:
        receipt.perhaps.first_offset, receipt.perhaps.last_offset = row.perhaps_first, row.perhaps_end - 1
    return receipt
