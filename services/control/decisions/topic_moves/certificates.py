"""Certificates of moves: control reads both logs up to the cut, and says whether readers find the same there.

The log of the old cluster ends at the cut, unless the topic has moved back. The new cluster's log goes on behind it.
Retention may have deleted the beginning of either log since, so both are read from where both still begin.

A stitched move copies nothing, so control asks for the ends of both logs, and compares them with the map of the cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import events, topic_moves
from mesh.topic_logs.brokers import CopySetbackError
from services.control.decisions.leading import looks
from services.control.decisions.topic_moves.comparing import compared, missing_clusters, topics_of
from services.control.domain.errors import NotAllowed, Refusal, Unavailable
from services.control.domain.log_ranges import LogRange
from services.control.domain.topic_moves.certificates import changes
from services.control.domain.topic_moves.moves import DONE, WORDS, has_gone_on, is_stitched, to_certify
from services.control.domain.topic_moves.stitched_certificates import evidence_of, stitched_differences
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 1.0
"""Seconds between two looks for moves without a certificate."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds after an attempt that failed; the pause doubles."""
ATTEMPTS = 12
"""Then the certificate says that a log can't be read."""
MOST_TOLD = 100
"""Differences in a certificate."""

log = structlog.get_logger(__name__)


class Certificates:
    """Certifies the moves that are done, one after the other."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections
        self._attempts: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            open_ones = to_certify(self._journal.view.topic_moves)
            names = {move.name for move in open_ones}
            self._attempts = {name: times for name, times in self._attempts.items() if name in names}
            self._not_before = {name: at for name, at in self._not_before.items() if name in names}
            for move in open_ones:
                if _now() < self._not_before.get(move.name, 0):
                    continue
                try:
                    await self._certify(move)
                except (Refusal, StoreUnavailableError, TimeoutError) as error:
                    log.info("control certifies a move later", move=move.name, reason=str(error))

    async def verified(self, name: str) -> topic_moves.TopicMoveCertificate:
        """The certificate as both clusters are now. Differences from the certificate of then count, too."""
        return await self.compared(self._journal.view.topic_moves.get(name))

    async def compared(self, move: topic_moves.MoveWithRecords) -> topic_moves.TopicMoveCertificate:
        """As `verified`. The log may have forgotten the move, or may tell another certificate: that counts, too."""
        if move.state != DONE or not move.cuts:
            text = (
                f"move {move.name!r} is {WORDS[move.state]}: only a move that is done, with its cuts, can be verified"
            )
            raise NotAllowed("MOVE_IS_NOT_DONE", move.name, text)
        try:
            found = await self._read(move)
        except (CopySetbackError, UnreachableError) as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; nothing can be said about the move now") from None
        if move.HasField("certificate"):
            _tell(found, changes(move.certificate, found))
        known = self._journal.view.topic_moves.ended.get(move.name)
        if known is not None and known.HasField("certificate") and known.certificate != move.certificate:
            _tell(found, ["the log of this mesh has another certificate for this move"])
        return found

    async def _certify(self, move: topic_moves.MoveWithRecords) -> None:
        view = self._journal.view
        try:
            certificate = await self._read(move)
        except (CopySetbackError, UnreachableError) as error:
            attempt = self._attempts[move.name] = self._attempts.get(move.name, 0) + 1
            self._not_before[move.name] = _now() + min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE)
            if attempt < ATTEMPTS:
                log.info("control certifies a move later", move=move.name, reason=str(error))
                return
            certificate = _certificate(move)
            _tell(certificate, [f"a log can't be read: {error}"])
        await self._journal.append(
            [Draft(move.name, events.TopicMoveCertified(name=move.name, certificate=certificate))],
            Caller(CONTROL),
            view,
            rests_on=lambda view: view.topic_moves.ended.get(move.name),
        )
        if not certificate.confirmed:
            log.error("a move is not confirmed", move=move.name, differences=list(certificate.differences))

    async def _read(self, move: topic_moves.MoveWithRecords) -> topic_moves.TopicMoveCertificate:
        """Raises CopySetbackError and UnreachableError."""
        table = self._journal.view.state.effective
        missing_clusters(move, table.clusters)
        async with self._turn:
            certificate = _certificate(move)
            _tell(certificate, _misplaced(move))
            missing = await self._missing(move, table.clusters)
            _tell(certificate, missing)
            if not missing and is_stitched(move.spec):
                copy = move.copy
                old, new = await self._both_logs(
                    move, table.clusters[copy.source_cluster], table.clusters[copy.target_cluster]
                )
                goes_on = has_gone_on(self._journal.view.topic_moves, move, table)
                certificate.partitions.extend(evidence_of(move))
                _tell(certificate, stitched_differences(move, old, new, table, goes_on=goes_on))
            elif not missing:
                goes_on = has_gone_on(self._journal.view.topic_moves, move, table)
                reading = compared(move, table.clusters, goes_on=goes_on)
                for proof, differences in await asyncio.to_thread(asyncio.run, reading):
                    certificate.partitions.append(proof)
                    _tell(certificate, differences)
        return certificate

    async def _both_logs(
        self, move: topic_moves.MoveWithRecords, source: UpstreamCluster, target: UpstreamCluster
    ) -> tuple[Mapping[int, LogRange], Mapping[int, LogRange]]:
        copy, count = move.copy, len(move.cuts)
        old, new = await asyncio.gather(
            self._connections.log_ranges(source, {copy.topic: count}),
            self._connections.log_ranges(target, {copy.target_topic: count}),
        )
        return old[copy.topic], new[copy.target_topic]

    async def _missing(self, move: topic_moves.MoveWithRecords, clusters: Mapping[str, UpstreamCluster]) -> list[str]:
        """The topics that are gone, or are others."""
        places = list(topics_of(move))
        counts = await asyncio.gather(
            *(self._connections.partitions_of(clusters[each.cluster], each.upstream_topic) for each in places)
        )
        return [
            f"topic {each.upstream_topic!r} has {count or 0} partitions on {each.cluster!r}, and had {len(move.cuts)} "
            "at the cut"
            for each, count in zip(places, counts, strict=True)
            if (count or 0) < len(move.cuts)
        ]


def _certificate(move: topic_moves.MoveWithRecords) -> topic_moves.TopicMoveCertificate:
    certificate = topic_moves.TopicMoveCertificate(confirmed=True, positions=move.positions, pause=move.pause)
    certificate.read_time.GetCurrentTime()
    return certificate


def _tell(certificate: topic_moves.TopicMoveCertificate, differences: Iterable[str]) -> None:
    for each in differences:
        certificate.confirmed = False
        if len(certificate.differences) < MOST_TOLD:
            certificate.differences.append(each)


def _misplaced(move: topic_moves.MoveWithRecords) -> Iterator[str]:
    for each in move.positions:
        if each.before != each.after:
            yield f"group {each.group!r} was at {each.before} of partition {each.partition}, and got {each.after}"


def _now() -> float:
    return asyncio.get_running_loop().time()
