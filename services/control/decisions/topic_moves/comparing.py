"""Both logs of a move that copied, read up to the cut: how many records readers see on each side, and checksums.

If the move has stitched first, the source is the whole stitched log. Its parts go when the move has its certificate, so
later the copy alone is read, and is compared with the certificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack

from mesh.routing import Place, UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import topic_moves
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from mesh.topic_logs.evidence import Evidence, evidence
from mesh.topic_logs.parts import PartedLog, Source
from services.control.domain.stitches.logs import end_of as end_of_part
from services.control.domain.topic_moves.two_cuts import end_of, parts_of

AT_ONCE = 4
"""Partitions that are read at the same time: a MiB of each log is in memory."""
CLIENT_ID = "mesh.certificate"

Found = tuple[topic_moves.TopicMoveEvidence, list[str]]
"""The evidence about a partition, and the differences."""


def reads_copy_alone(move: topic_moves.MoveWithRecords) -> bool:
    """Whether the copy is compared with the certificate: the parts of the log may be gone."""
    return bool(move.copy.parts) and move.HasField("certificate")


def clusters_of(move: topic_moves.MoveWithRecords) -> list[str]:
    """The clusters whose logs are read."""
    if reads_copy_alone(move):
        return [move.copy.target_cluster]
    named = [move.copy.source_cluster, move.copy.target_cluster, *(part.cluster_name for part in move.copy.parts)]
    return list(dict.fromkeys(named))


async def compared(
    move: topic_moves.MoveWithRecords, clusters: Mapping[str, UpstreamCluster], *, goes_on: bool
) -> list[Found]:
    """Each partition of the cut. `goes_on`: the source may have newer records. Raises CopySetbackError."""
    room, copy, parts = asyncio.Semaphore(AT_ONCE), move.copy, parts_of(move)
    async with AsyncExitStack() as connections:
        brokers = {
            name: await connections.enter_async_context(Brokers(cluster_to_proto(clusters[name]).spec, CLIENT_ID))
            for name in clusters_of(move)
        }
        there = brokers[copy.target_cluster]
        await there.partitions(copy.target_topic)
        here: Source | None = None
        if not reads_copy_alone(move):
            here = PartedLog(parts, brokers) if parts else brokers[copy.source_cluster]
            await here.partitions(copy.topic)

        async def found(cut: topic_moves.TopicMoveCut) -> Found:
            async with room:
                if here is None:
                    return await _copy_alone(move, there, cut)
                proof, differences = await _both(move, here, there, cut, goes_on=goes_on)
                if parts and not goes_on:
                    differences += await _strays(move, brokers, cut.partition)
                return proof, differences

        return await asyncio.gather(*map(found, move.cuts))


async def _both(
    move: topic_moves.MoveWithRecords, here: Source, there: Brokers, cut: topic_moves.TopicMoveCut, *, goes_on: bool
) -> Found:
    number, topic, target_topic = cut.partition, move.copy.topic, move.copy.target_topic
    (start, end), (start_there, end_there) = await asyncio.gather(
        here.range(topic, number), there.range(target_topic, number)
    )
    at = end_of(move, cut)
    proof = _proof(number, max(cut.start, start, start_there), at)
    differences: list[str] = []
    if end < at or (not goes_on and await _has_records(here, topic, number, at, end)):
        differences.append(f"{topic}-{number} on {here.name!r} ends at {end}, and the cut is at {at}")
    if end_there < at:
        differences.append(_ends_early(there, target_topic, number, end_there, at))
    if end >= at and end_there >= at:
        on_source, on_target = await asyncio.gather(
            evidence(here, topic, number, proof.start, at), evidence(there, target_topic, number, proof.start, at)
        )
        proof.source.CopyFrom(_log(on_source))
        proof.target.CopyFrom(_log(on_target))
        if on_source != on_target:
            differences.append(
                f"partition {number} differs from offset {proof.start} to {at}: {here.name!r} has "
                f"{on_source.records} records with CRC {on_source.crc:08x}, and {there.name!r} has "
                f"{on_target.records} with {on_target.crc:08x}"
            )
    return proof, differences


async def _copy_alone(move: topic_moves.MoveWithRecords, there: Brokers, cut: topic_moves.TopicMoveCut) -> Found:
    number, topic, at = cut.partition, move.copy.target_topic, end_of(move, cut)
    start, end = await there.range(topic, number)
    proof = _proof(number, max(cut.start, start), at)
    if end < at:
        return proof, [_ends_early(there, topic, number, end, at)]
    if proof.start <= at:
        proof.target.CopyFrom(_log(await evidence(there, topic, number, proof.start, at)))
    return proof, []


async def _strays(move: topic_moves.MoveWithRecords, brokers: Mapping[str, Brokers], number: int) -> list[str]:
    """Old parts that do not end where they were cut: somebody has written there."""
    parts, found = parts_of(move), []
    last = {Place(part.cluster, part.topic): place for place, part in enumerate(parts)}
    for (cluster, topic), place in last.items():
        if place == len(parts) - 1:
            continue
        _, end = await brokers[cluster].range(topic, number)
        cut_at = end_of_part(parts, place, number)
        if end < cut_at or await _has_records(brokers[cluster], topic, number, cut_at, end):
            found.append(f"{topic}-{number} on {cluster!r} ends at {end}, and its part ends at {cut_at}")
    return found


async def _has_records(of: Source, topic: str, number: int, start: int, end: int) -> bool:
    """Whether readers see anything there. A transaction that began in front of a cut may leave its marker behind it."""
    return start < end and (await evidence(of, topic, number, start, end)).records > 0


def missing_clusters(move: topic_moves.MoveWithRecords, clusters: Mapping[str, UpstreamCluster]) -> None:
    """Raises CopySetbackError if a cluster is not registered any more."""
    gone = [name for name in clusters_of(move) if name not in clusters]
    if gone:
        raise CopySetbackError(f"{' and '.join(map(repr, gone))} is not registered")


def topics_of(move: topic_moves.MoveWithRecords) -> Iterator[Place]:
    """The topics that have to be there."""
    if not reads_copy_alone(move):
        yield Place(move.copy.source_cluster, move.copy.topic)
    yield Place(move.copy.target_cluster, move.copy.target_topic)


def _proof(number: int, start: int, end: int) -> topic_moves.TopicMoveEvidence:
    return topic_moves.TopicMoveEvidence(partition=number, start=start, end=end, by_record=True, opened=True)


def _ends_early(there: Brokers, topic: str, number: int, end: int, at: int) -> str:
    return f"{topic}-{number} on {there.name!r} ends at {end}, before the cut at {at}"


def _log(found: Evidence) -> topic_moves.TopicMoveLog:
    return topic_moves.TopicMoveLog(records=found.records, crc=found.crc)
