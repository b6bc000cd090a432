"""Reads the logs of homes to their ends; see `mesh.transactions.log` for their content.

Theory of operation
1. A log is read up to the end that its leader tells when the reading begins. A new leader tells no end before all
   acknowledged records are behind its high watermark (KIP-207). A Fetch alone may miss some of them until then.
2. The leader gets both questions at once, on one connection. So a log without news costs one round trip.
3. A gateway keeps the content that it has read. The memory is shared: plans that read at the same time read the same
   records, and each record counts once.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import structlog

from mesh.transactions import LOG_PARTITION, TRANSACTIONS_TOPIC, LogPlace, TransactionLog
from services.gateway.requests.placement import LEADER_ERRORS, Place
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Ask,
    Broker,
    Call,
    Command,
    MeshView,
    Outcome,
    Stale,
    refresh,
)
from services.gateway.requests.transactions.decision_log import take
from services.gateway.requests.transactions.stable_offsets import READ_UNCOMMITTED, question
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.messages.list_offsets import ListOffsetsResponse
from services.gateway.wire.primitives import WireError

FETCH_VERSION: Final = 12
"""The last version of Fetch that names topics."""
PIECE_BYTES: Final = 1 << 20
MOST_PIECES: Final = 4_000
"""Most pieces of one reading: more than the log of a mesh with thousands of commits a second has between two
compactions."""

log = structlog.get_logger(__name__)


def read_log(home: str, mesh: MeshView) -> Generator[Command, Any, TransactionLog | None]:
    """The home's log as it is now; None while it can't be read to its end."""
    found = yield from read_logs((home,), mesh)
    return found[home]


def read_logs(
    homes: Iterable[str], mesh: MeshView, timeout_s: float = CALL_TIMEOUT_S
) -> Generator[Command, Any, dict[str, TransactionLog | None]]:
    """The logs of several homes, all asked at once; None for a log that can't be read to its end."""
    logs: dict[str, TransactionLog | None] = {}
    unread: dict[str, _Reading] = {}
    for home in homes:
        begun = yield from _begin(home, timeout_s, mesh)
        if isinstance(begun, _Reading):
            unread[home] = begun
        logs[home] = TransactionLog() if begun is _Step.NOTHING else None
    for _ in range(MOST_PIECES):
        calls = {home: reading.calls(mesh) for home, reading in unread.items()}
        if not calls:
            break
        outcomes = iter((yield Ask(tuple(call for each in calls.values() for call in each), preliminary=True)))
        for home, asked in calls.items():
            reading = unread[home]
            step = reading.take([next(outcomes) for _ in asked], mesh)
            if step is _Step.STALE:
                yield Stale(home, (TRANSACTIONS_TOPIC,))
            if step is _Step.DONE:
                logs[home] = known_log(home, mesh)
            if step is not _Step.MORE:
                del unread[home]
    return logs


def known_log(home: str, mesh: MeshView) -> TransactionLog:
    """The log as far as this gateway has read it."""
    return mesh.memory.transaction_logs.get(home, mesh.now) or TransactionLog()


def _begin(home: str, timeout_s: float, mesh: MeshView) -> Generator[Command, Any, "_Reading | _Step"]:
    knowledge = mesh.clusters[home]
    leader = knowledge.leader(TRANSACTIONS_TOPIC, LOG_PARTITION)
    if leader is None:
        failed = yield from refresh(home, (TRANSACTIONS_TOPIC,))
        if failed is None and knowledge.partition_count(TRANSACTIONS_TOPIC) is None:
            return _Step.NOTHING
        leader = None if failed else knowledge.leader(TRANSACTIONS_TOPIC, LOG_PARTITION)
    return _Step.FAILED if leader is None else _Reading(Place(home, leader), timeout_s)


class _Step(Enum):
    MORE = auto()
    DONE = auto()
    NOTHING = auto()
    """Nobody has written a log there."""
    FAILED = auto()
    STALE = auto()
    """Another broker may be the leader."""


@dataclass(slots=True)
class _Reading:
    """One log that is being read."""

    leader: Place
    timeout_s: float
    end: int | None = None
    """The end of the log when the reading began, as soon as the leader has answered."""

    def calls(self, mesh: MeshView) -> list[Call]:
        home, broker_id = self.leader
        next_offset = known_log(home, mesh).next_offset
        partition = FetchPartition(LOG_PARTITION, fetch_offset=next_offset, partition_max_bytes=PIECE_BYTES)
        message = FetchRequest(max_bytes=PIECE_BYTES, topics=[FetchTopic(TRANSACTIONS_TOPIC, partitions=[partition])])
        version = highest_version(mesh, home, ApiKey.FETCH, FETCH_VERSION)
        piece = Call(home, message, version, Broker(broker_id), timeout_s=self.timeout_s, by_mesh=True)
        if self.end is not None:
            return [piece]
        place = LogPlace(home, TRANSACTIONS_TOPIC, LOG_PARTITION)
        return [question(self.leader, (place,), READ_UNCOMMITTED, mesh, timeout_s=self.timeout_s), piece]

    def take(self, outcomes: Sequence[Outcome], mesh: MeshView) -> _Step:
        *first, piece = outcomes
        for outcome in first:
            end = outcome.topics[0].partitions[0] if isinstance(outcome, ListOffsetsResponse) else None
            if end is None or end.error_code:
                return _Step.STALE
            self.end = end.offset
        if not isinstance(piece, FetchResponse):
            return _Step.STALE
        if not piece.responses:  # the broker throttles the gateway
            return _Step.FAILED
        return self._take(piece.responses[0].partitions[0], mesh)

    def _take(self, told: PartitionData, mesh: MeshView) -> _Step:
        home = self.leader.cluster
        if told.error_code in LEADER_ERRORS:
            return _Step.STALE
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # the topic was made anew
            mesh.memory.transaction_logs.put(home, TransactionLog(), mesh.now)
            return _Step.MORE
        if told.error_code:
            return _Step.FAILED
        found = known_log(home, mesh)
        if told.records:
            try:
                take(found, told.records)
            except WireError as error:
                log.error(
                    "the log of transactions can't be read", cluster=home, topic=TRANSACTIONS_TOPIC, reason=str(error)
                )
                return _Step.FAILED
        mesh.memory.transaction_logs.put(home, found, mesh.now)
        assert self.end is not None, "the end is asked first"
        return _Step.DONE if found.next_offset >= self.end or not told.records else _Step.MORE
