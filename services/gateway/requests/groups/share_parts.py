"""Share groups on stitched logs: the clusters that a partition is read from, and the offsets of clients and clusters.

Theory of operation
1. A share group has a state of its own for the log on each cluster, so all parts are read at once: share groups promise
   no order. The offset of a record says its cluster, because no two parts have an offset of clients in common.
2. The first offset of a group on a newer part comes from control, which sets it before the cut. On a part that has no
   state of the group the cluster decides by the group's settings, as on any topic.
3. Records that lie between or behind the parts of a cluster are not given to the member. They stay acquired until the
   broker's lock on them runs out: if a cut is on its way, the next table may give them to somebody.
4. A fork has the share groups of its own records. Its past belongs to the share groups of the other topic.
5. A part whose cluster has no share groups is not read: no group can have begun there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from services.gateway.requests.groups.share_sessions import Giver, Leader, Member, ShareSession, Slot
from services.gateway.requests.plan import MeshView
from services.gateway.requests.records.stitched import NO_CLUSTER, Stretch, Stretches, stretches
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import batches, shift_offsets
from services.gateway.wire.errors import RETRIABLE
from services.gateway.wire.messages.share_fetch import AcquiredRecords, PartitionData

OLD_ROUND_MS: Final = 20
"""The wait of all leaders, in milliseconds, in a round that asks old parts too: a busy one answers at once."""
QUIET_S: Final = 1.0
"""Seconds for which a broker that has old parts alone, and nothing to give of them, is not asked again."""
AWAY_S: Final = 10.0
"""The same for a broker that did not answer."""
OLD_TIMEOUT_S: Final = 3.0
"""Seconds: the records of the present part do not wait longer for an old cluster that stands still."""


class Range(Protocol):
    first_offset: int
    last_offset: int


class Batch(Range, Protocol):
    acknowledge_types: list[int]


R = TypeVar("R", bound=Range)
B = TypeVar("B", bound=Batch)


def parts_of(slot: Slot, mesh: MeshView) -> Stretches:
    """The parts that share groups read, the oldest first; empty: clients see the offsets of the topic's cluster."""
    return tuple(part for part in stretches(*slot, mesh) if not part.is_past and part.cluster != NO_CLUSTER)


def old_clusters(parts: Stretches, mesh: MeshView) -> list[str]:
    """The clusters of the earlier parts that have share groups, apart from that of the present part."""
    clusters = dict.fromkeys(part.cluster for part in parts if part.cluster != parts[-1].cluster)
    return [each for each in clusters if has_share_groups(each, mesh)]


def has_share_groups(cluster: str, mesh: MeshView) -> bool:
    known = mesh.clusters.get(cluster)
    return known is not None and (not known.versions or ApiKey.SHARE_FETCH in known.versions)


def topics_of_old_parts(topics: Iterable[str], mesh: MeshView) -> dict[str, list[str]]:
    """The stitched ones of these topics, by the clusters of their earlier parts."""
    found: dict[str, list[str]] = {}
    logs = mesh.memory.stitches.logs
    for topic in topics if logs else ():
        for cluster in old_clusters(parts_of(Slot(topic, 0), mesh), mesh) if topic in logs else ():
            found.setdefault(cluster, []).append(topic)
    return found


def member_at(leader: Leader, member: Member, session: ShareSession, mesh: MeshView) -> str:
    """The member's id in the session with a broker.

    A broker has one session of a member, and the client has one with each node that it sees. So a session that reads an
    old part on the cluster of another node does so by an id of its own. Brokers lend records to any id.
    """
    if leader[0] in mesh.nodes.clusters_of(session.node):
        return member[1]
    return str(uuid.uuid5(_NAMESPACE, f"{member[1]} {session.node}"))


_NAMESPACE: Final = uuid.UUID("0d0f1c51-5c5e-5b6a-9a43-7368617265d5")


def acknowledged(given: Mapping[Slot, Sequence[B]], mesh: MeshView) -> dict[Giver, Sequence[B]]:
    """The batches of clients by the part that gave the records, with the offsets of its cluster.

    A batch that no part has keeps its offsets, and has a giver that nobody is.
    """
    found: dict[Giver, list[B]] = {}
    for slot, of_slot in given.items():
        parts = parts_of(slot, mesh)
        if not parts:
            found.setdefault(Giver(slot, None), []).extend(of_slot)
        for batch in of_slot if parts else ():
            left = batch.last_offset + 1 - batch.first_offset
            for part in parts:
                piece = _piece(batch, part)
                if piece is not None:
                    left -= piece.last_offset + 1 - piece.first_offset
                    found.setdefault(Giver(slot, part.cluster), []).append(piece)
            if left:
                found.setdefault(Giver(slot, NO_CLUSTER), []).append(batch)
    return {giver: tuple(of_giver) for giver, of_giver in found.items()}


def _piece(batch: B, part: Stretch) -> B | None:
    """The range of a batch of clients that the part has."""
    first = max(batch.first_offset, part.start)
    last = batch.last_offset if part.end is None else min(batch.last_offset, part.end - 1)
    if first > last:
        return None
    types = batch.acknowledge_types
    if len(types) > 1:  # one for each offset; a single one counts for all
        types = types[first - batch.first_offset : last + 1 - batch.first_offset]
    return replace(batch, first_offset=part.there(first), last_offset=part.there(last), acknowledge_types=types)  # type: ignore[type-var]


def show(data: PartitionData, cluster: str, parts: Stretches) -> None:
    """Gives a cluster's answer the offsets of clients, and leaves out what is in no part."""
    here = [part for part in parts if part.cluster == cluster]
    if parts[-1].cluster != cluster and data.error_code in RETRIABLE:  # the client can do nothing about an old part
        data.error_code, data.error_message = 0, None
    acquired: list[AcquiredRecords] = []
    records = bytearray()
    for part in here:
        mine = [each for each in (_shown(each, part) for each in data.acquired_records) if each is not None]
        if mine:
            acquired += mine
            records += _batches_within(data.records, part)
    data.records, data.acquired_records = bytes(records), acquired


def _shown(given: AcquiredRecords, part: Stretch) -> AcquiredRecords | None:
    first = max(part.start, given.first_offset + part.shift)
    last = given.last_offset + part.shift
    if part.end is not None:
        last = min(last, part.end - 1)
    return AcquiredRecords(first, last, given.delivery_count) if first <= last else None


def _batches_within(records: object, part: Stretch) -> bytearray:
    """The batches of the part, with the offsets of clients. A cut is between two batches."""
    found = bytearray()
    data = bytes(records)  # type: ignore[call-overload]
    for header in batches(data, 0, len(data)):
        first = header.base_offset + part.shift
        if part.start <= first + header.last_offset_delta and (part.end is None or first < part.end):
            found += data[header.start : header.end]
    shift_offsets(found, part.shift)
    return found


def joined(one: PartitionData, other: PartitionData) -> PartitionData:
    """The records that two parts of a partition have given, in the order of their offsets."""
    both = bytes(one.records) + bytes(other.records)
    headers = sorted(batches(both, 0, len(both)), key=lambda each: each.base_offset)
    one.records = b"".join(both[each.start : each.end] for each in headers)
    one.acquired_records = sorted([*one.acquired_records, *other.acquired_records], key=lambda each: each.first_offset)
    return one
