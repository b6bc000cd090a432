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
  select distinct on (cluster) cluster, topic_id from receipt_readers where topic = :topic
  order by cluster, last_time desc
), named as (
  select r.reader, r.principal, r.client, r.group_name, r.partition, r.cluster, r.topic_id <> n.topic_id as earlier,
    r.last_time as last_read, case when r.group_name = '' then r.client else '' end as single
  from receipt_readers r join newest n using (cluster)
  where r.topic = :topic and (:since is null or r.last_time >= :since)
), found as not materialized (
  select n.*, r.sent, r.perhaps, r.first_time, r.last_time from named n join receipts r using (reader)
  where (:partition is null or n.partition = :partition) and (:since is null or r.time >= :since)
    and (:offset is null or r.sent @> :offset or r.perhaps @> :offset)
), readers as (
  select distinct principal, group_name, single, earlier from named
  where (:principal = '' or principal = :principal) and (:group = '' or group_name = :group)
), told as (
  select partition, earlier, principal, group_name, single, bool_or(sent @> :offset) as is_sent,
    bool_or(perhaps @> :offset) as is_perhaps,
    min(first_time) filter (where sent @> :offset) as sent_first,
    max(last_time) filter (where sent @> :offset) as sent_last,
    min(first_time) filter (where :offset is null or perhaps @> :offset) as other_first,
    max(last_time) filter (where :offset is null or perhaps @> :offset) as other_last,
    array_agg(distinct client) filter (where :offset is null or sent @> :offset or perhaps @> :offset) as clients,
    array_agg(distinct cluster) filter (where :offset is null or sent @> :offset or perhaps @> :offset) as clusters
  from found group by partition, earlier, principal, group_name, single
), reads as (
  select partition, earlier, principal, group_name, single, max(last_read) as last_read
  from named group by partition, earlier, principal, group_name, single
), places as (
  select distinct partition, earlier from named where :partition is null or partition = :partition
  union select :partition, false where :partition is not null
), page as (
  select partition, earlier, principal, group_name, single, t.is_sent, t.is_perhaps, reads.last_read, t.sent_first,
    t.sent_last, t.other_first, t.other_last, t.clients[1:{most_clients}] as clients, t.clusters
  from places join readers using (earlier) left join told t using (partition, earlier, principal, group_name, single)
    left join reads using (partition, earlier, principal, group_name, single)
  where (:offset is not null or reads.last_read is not null) and (:first
    or (partition, earlier, principal, group_name, single)
      > (:after_partition, :after_earlier, :after_principal, :after_group, :after_single))
  order by partition, earlier, principal, group_name, single limit :size
), ranges as (
  select partition, earlier, principal, group_name, single, range_agg(s) as sent
  from found, unnest(sent) s where :offset is null
  group by partition, earlier, principal, group_name, single
), unsure as (
  select partition, earlier, principal, group_name, single, min(lower(s)) as perhaps_first, max(upper(s)) as perhaps_end
  from found, unnest(perhaps) s where :offset is null
  group by partition, earlier, principal, group_name, single
)
select page.*, listed.*, unsure.perhaps_first, unsure.perhaps_end
from page left join ranges using (partition, earlier, principal, group_name, single)
left join unsure using (partition, earlier, principal, group_name, single)
cross join lateral (
  select (array_agg(lower(u) order by u))[1:{most_ranges}] as firsts,
    (array_agg(upper(u) order by u))[1:{most_ranges}] as ends, count(*) as ranges
  from unnest(ranges.sent) u
) listed
order by partition, earlier, principal, group_name, single
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
        query = text("select min(first_time) as first, max(last_time) as last from receipt_readers where topic = ''")
        async with self._database.transaction() as connection:
            row = (await connection.execute(query)).one()
        return None if row.first is None else (row.first.astimezone(UTC), row.last.astimezone(UTC))


def _receipt(row: Any, *, has_offset: bool) -> traffic.Receipt:
    receipt = traffic.Receipt(
        principal=row.principal,
        group=row.group_name,
        clients=row.clients or ([row.single] if row.single else []),
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
