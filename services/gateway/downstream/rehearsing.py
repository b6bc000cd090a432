"""Writes the shares of rehearsals to their candidates, and compares both clusters.

Theory of operation
1. `take` gets produces that the present cluster has answered. It copies the batches that this cluster has stored. They
   leave in the next turn of the event loop, when the client has its answer.
2. No client ever waits for a candidate. At most `MOST_BYTES` of copies are on their way, and rehearsals have a rate.
   The gateway drops and counts copies that find no room.
3. Both clusters are measured from the same moment: from the request's way to its connection to its answer. So that no
   batch waits behind those of other clients, a client's batches have one of `LANES` sets of connections.
4. Batches go without producer and transaction, which the candidate does not know. Nothing is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from google.protobuf.duration_pb2 import Duration

from mesh.rehearsals.figures import bucket_of
from mesh.rehearsals.words import candidate_topic
from mesh.rpc import rehearsals
from services.gateway import rehearsal_metrics as metrics
from services.gateway.requests.plan import CALL_TIMEOUT_S, Broker, Call, Lane, RawResponse, Sent, Unreachable
from services.gateway.requests.rehearsing.topics import Produced, Rehearsed
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.questions import decoded
from services.gateway.wire.batches import make_ordinary
from services.gateway.wire.errors import ErrorCode, error_name
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from services.gateway.wire.primitives import WireError

MOST_BYTES: Final = 32 * 1024 * 1024
"""Copies on their way to all candidates."""
MOST_PRODUCES: Final = 10_000
"""Small copies on their way: each costs some 2 KB beside its bytes."""
LANES: Final = 64
LONGEST_TIMEOUT_S: Final = 30.0
"""A client may give its broker any time; a copy is not kept longer."""
VERSION: Final = 9
"""Of Produce: it names topics."""
NO_ANSWER: Final = "no answer"
FULL: Final = "no room"
RATE: Final = "rate"
AWAY: Final = "candidate is away"


@dataclass(slots=True)
class Figures:
    """The produces to one topic on one cluster."""

    rehearsed: Rehearsed
    cluster: str
    produces: int = 0
    stored: int = 0
    bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    latencies: Counter[int] = field(default_factory=Counter)
    longest_ms: float = 0.0

    def answered(self, code: int, seconds: float) -> None:
        name = error_name(code)
        if code == ErrorCode.NONE:
            self.stored += 1
        else:
            self.errors[name] += 1
        self.latencies[bucket_of(1000 * seconds)] += 1
        self.longest_ms = max(self.longest_ms, 1000 * seconds)
        metrics.seconds.labels(self.cluster, self.rehearsed.topic).observe(seconds)
        metrics.produces.labels(self.cluster, self.rehearsed.topic, name).inc()

    def unanswered(self) -> None:
        self.errors[NO_ANSWER] += 1
        metrics.produces.labels(self.cluster, self.rehearsed.topic, NO_ANSWER).inc()

    def drop(self, why: str) -> None:
        self.dropped[why] += 1
        metrics.dropped.labels(self.cluster, self.rehearsed.topic, why).inc()

    def written(self) -> rehearsals.RehearsalFigures:
        longest = Duration()
        longest.FromMicroseconds(round(1000 * self.longest_ms))
        return rehearsals.RehearsalFigures(
            rehearsal_id=self.rehearsed.rehearsal_id,
            topic=self.rehearsed.topic,
            cluster_name=self.cluster,
            produces=self.produces,
            stored=self.stored,
            errors=self.errors,
            dropped=self.dropped,
            bytes=self.bytes,
            latencies=self.latencies,
            longest=longest,
        )


@dataclass(slots=True)
class Rate:
    """Bytes a second, with the bytes of one second at once."""

    bytes_per_second: int
    left: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.bytes_per_second

    def admits(self, size: int, now: float) -> bool:
        self.left = min(self.bytes_per_second, self.left + (now - self.at) * self.bytes_per_second)
        self.at = now
        if size > self.left:
            return False
        self.left -= size
        return True


@dataclass(slots=True)
class Copy:
    """A produce on its way to a candidate."""

    produced: Produced
    records: bytearray
    figures: Figures
    asked: bool = False
    """Whether the candidate was asked for the leader already."""


class Rehearsing:
    """The rehearsals of the table in force."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._revision = 0
        self._topics: Mapping[str, Rehearsed] = {}
        self._figures: dict[tuple[Rehearsed, str], Figures] = {}
        self._rates: dict[str, Rate] = {}
        self._lanes: dict[tuple[str, int], Lanes] = {}
        self.bytes = 0
        """Copies on their way, in bytes ..."""
        self.copies = 0
        """... and their number."""
        metrics.waiting_bytes.set_function(lambda: self.bytes)

    def follow(self, policy: rehearsals.RehearsalPolicy | None) -> Mapping[str, Rehearsed]:
        """Follows the table in force; returns the topics that are rehearsed."""
        if policy is None or policy.revision == self._revision:
            return self._topics
        self._revision = policy.revision
        running = [each for each in policy.rehearsals if each.state == rehearsals.REHEARSAL_STATE_RUNNING]
        self._topics = {
            topic.topic: Rehearsed(
                topic.topic, each.rehearsal_id, each.cluster_name, each.share, each.end_time.ToMilliseconds()
            )
            for each in running
            for topic in each.topics
        }
        known = {each.rehearsal_id for each in running}
        rates = {each.rehearsal_id: Rate(each.bytes_per_second) for each in running}
        self._rates = rates | {name: rate for name, rate in self._rates.items() if name in known}
        for key, figures in list(self._figures.items()):
            if figures.rehearsed.rehearsal_id not in known:
                del self._figures[key]
        candidates = {each.cluster_name for each in running}
        for lane in [lane for lane in self._lanes if lane[0] not in candidates]:
            self._lanes.pop(lane).close("the rehearsal is over")
        return self._topics

    def report(self) -> list[rehearsals.RehearsalFigures]:
        return [each.written() for each in self._figures.values()]

    def take(self, found: list[Produced]) -> None:
        """Counts these produces, and sends copies of those that were stored."""
        copies = [copy for each in found if (copy := self._copied(each)) is not None]
        if copies:
            asyncio.get_running_loop().call_soon(self._send, copies)

    def _copied(self, produced: Produced) -> Copy | None:
        here = self._figures_of(produced.rehearsed, produced.cluster)
        here.produces += 1
        here.bytes += produced.size
        here.answered(produced.error_code, produced.seconds)
        rate = self._rates.get(produced.rehearsed.rehearsal_id)
        if produced.error_code != ErrorCode.NONE or rate is None:
            return None
        there = self._figures_of(produced.rehearsed, produced.rehearsed.candidate)
        if self.bytes + produced.size > MOST_BYTES or self.copies >= MOST_PRODUCES:
            there.drop(FULL)
        elif not rate.admits(produced.size, time.monotonic()):
            there.drop(RATE)
        else:
            self.bytes += produced.size
            self.copies += 1
            return Copy(produced, bytearray(produced.records), there)
        return None

    def _figures_of(self, rehearsed: Rehearsed, cluster: str) -> Figures:
        figures = self._figures.get((rehearsed, cluster))
        if figures is None:
            figures = self._figures[rehearsed, cluster] = Figures(rehearsed, cluster)
        return figures

    def _send(self, copies: list[Copy]) -> None:
        """Sends the copies of one request: one request for each leader."""
        by_leader: dict[tuple[str, int], list[Copy]] = {}
        lost: dict[str, list[Copy]] = {}
        for copy in copies:
            candidate = copy.produced.rehearsed.candidate
            known = self._clusters.known.get(candidate)
            leader = None if known is None else known.leader(_topic(copy), copy.produced.partition)
            if leader is not None:
                by_leader.setdefault((candidate, leader), []).append(copy)
            elif known is None or known.down is not None or copy.asked:
                self._over(copy).drop(AWAY)
            else:
                copy.asked = True
                lost.setdefault(candidate, []).append(copy)
        for (candidate, leader), parts in by_leader.items():
            self._produce(candidate, leader, parts)
        for candidate, parts in lost.items():
            topics = tuple(sorted({_topic(copy) for copy in parts}))
            self._clusters.refresh(candidate, topics, lambda _, parts=parts: self._send(parts))  # type: ignore[misc]

    def _produce(self, candidate: str, leader: int, copies: list[Copy]) -> None:
        first = copies[0].produced
        topics: dict[str, TopicProduceData] = {}
        for copy in copies:
            make_ordinary(copy.records)
            data = topics.setdefault(_topic(copy), TopicProduceData(_topic(copy)))
            data.partition_data.append(PartitionProduceData(copy.produced.partition, copy.records))
            copy.figures.produces += 1
            copy.figures.bytes += len(copy.records)
        call = Call(
            candidate,
            ProduceRequest(None, first.acks, first.timeout_ms, list(topics.values())),
            VERSION,
            Broker(leader),
            Lane.PRODUCE,
            min(LONGEST_TIMEOUT_S, max(0, first.timeout_ms) / 1000) + CALL_TIMEOUT_S,
            raw=True,
            by_mesh=True,
            own_names=True,
        )
        lanes = self._lanes.setdefault((candidate, first.session % LANES), Lanes())
        began = time.monotonic()
        self._clusters.submit(call, lanes, first.client_id, partial(self._settled, copies, began))

    def _settled(self, copies: list[Copy], began: float, outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
        seconds = time.monotonic() - began
        cluster = copies[0].produced.rehearsed.candidate
        codes: dict[tuple[str, int], int] = {}
        if isinstance(outcome, RawResponse):
            try:
                told = decoded(outcome, ProduceResponse, cluster)
            except WireError as error:
                told = Unreachable(cluster, str(error))
            if isinstance(told, ProduceResponse):
                codes = {
                    (topic.name, part.index): part.error_code
                    for topic in told.responses
                    for part in topic.partition_responses
                }
        never_sent = isinstance(outcome, Unreachable) and outcome.never_sent
        for copy in copies:
            figures, code = self._over(copy), codes.get((_topic(copy), copy.produced.partition))
            if never_sent:
                figures.produces -= 1
                figures.bytes -= len(copy.records)
                figures.drop(AWAY)
            elif code is None:
                figures.unanswered()
            else:
                figures.answered(code, seconds)
            if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) or code is None:
                self._clusters.doubt_topics(cluster, (_topic(copy),))

    def _over(self, copy: Copy) -> Figures:
        self.bytes -= len(copy.records)
        self.copies -= 1
        return copy.figures


def _topic(copy: Copy) -> str:
    return candidate_topic(copy.produced.rehearsed.topic)
