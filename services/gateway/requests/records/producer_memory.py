"""Memory of producers' batches: no batch is stored twice, none is lost, and none overtakes another.

`Seams`: the batches that a topic's last cluster had stored when the topic left it. `Passages`: batches that are
crossing a seam now. `Refusals`: batches that were refused and have not come again. No I/O, all bounded.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mesh.routing import Stay
from services.gateway.wire.batches import SEQUENCES, BatchHeader, comes_after

BatchKey = tuple[int, int, str, int]
"""Producer id, epoch, topic, partition."""


def batch_key(topic: str, partition: int, batch: BatchHeader) -> BatchKey:
    return (batch.producer_id, batch.producer_epoch, topic, partition)


DOUBTS_REMEMBERED = 100_000
DOUBT_SECONDS = 150.0
"""Clients give up a record after 120 s by default."""


SETTLED_SECONDS = 3.0
"""A batch whose connection broke may still wait in its broker's socket or queue. For so long the gateway does not
believe a broker that reports no such batch: busy brokers took a second to work it off."""


class Doubt(NamedTuple):
    """Batches of one producer, for one partition, that were sent and got no answer."""

    stay: Stay
    """The topic's stay when the last of these batches was sent."""
    since: float
    sequence: int
    """The highest of these batches: the sequence of the first record of the last batch."""
    looked_from: Stay | None = None
    """The topic's stay when the producer came back and the gateway asked `stay` for these batches. After another move
    the gateway asks `stay` again: only one of the batches may have come back until then."""
    stored: "LastWrite | None" = None
    """The producer's last write at `stay`, if the topic has had another stay since."""


def settled_at(doubts: Iterable[tuple[BatchKey, Doubt]], concerns: Callable[[str], bool], now: float) -> float:
    """The time at which brokers have worked off all batches without an answer of the topics that this concerns."""
    ends = ((topic, doubt.since + SETTLED_SECONDS) for (_, _, topic, _), doubt in doubts)
    return max((end for topic, end in ends if end > now and concerns(topic)), default=now)


class LastWrite(NamedTuple):
    """The newest batch of a producer that a partition remembers."""

    epoch: int
    sequence: int
    """The sequence of the batch's last record."""
    timestamp: int
    """The batch's highest timestamp, in ms."""
    gap_since: float | None = None
    """The time when a later batch came before the next one, which the gateway waits for."""


SeamKey = tuple[str, int, str, str, int, Stay]
"""The topic, the partition, the place of its current stay (cluster, the topic's name there, visit), and the stay
before. If rules depend on the client, a topic may have come to one place from several."""

SEAMS_REMEMBERED = 100_000
SEAM_SECONDS = 900.0
"""For so long a producer may repeat a write whose answer was lost; clients give up after 120 s by default."""
PRODUCERS_OF_A_SEAM = 1000
"""The producers that wrote last: about 150 KB for a partition."""
PRODUCERS_OF_ALL_SEAMS = 1_000_000
"""About 150 MB; with more, the oldest seams are forgotten first."""


@dataclass(slots=True)
class Seam:
    """The batches that one partition's last cluster had stored when its topic left."""

    until: float
    """Until this time the gateway looks for repeats."""
    writes: dict[int, LastWrite]
    """Last writes by producer, of the producers that have not gone on yet."""
    gone_on: set[int] = field(default_factory=set)
    """Producers that have written to the new cluster: none of their batches is missing in between."""
    here: frozenset[int] | None = None
    """Producers that the new cluster knew when it was asked, by their ids there; None if the new cluster could not be
    asked."""
    unknown_since: float | None = None
    """Since when the gateway has been asking the last cluster without a full answer."""

    @property
    def producers(self) -> int:
        return len(self.writes) + len(self.gone_on) + len(self.here or ())


class Seams:
    """The last stored batch of each producer before a topic moved; see `seams`."""

    __slots__ = ("_given_up", "_producers", "_seams")
    capacity = SEAMS_REMEMBERED

    def __init__(self) -> None:
        self._seams: OrderedDict[SeamKey, Seam] = OrderedDict()
        self._producers = 0
        """The number of producers of all seams."""
        self._given_up: dict[str, float] = {}
        """Clusters that topics left because they were dead -> until when nobody asks them."""

    def give_up(self, cluster: str, now: float) -> None:
        """Topics have left a dead cluster: producers must not wait for its answers."""
        self._given_up = {name: until for name, until in self._given_up.items() if until > now}
        self._given_up[cluster] = now + SEAM_SECONDS

    def is_given_up(self, cluster: str, now: float) -> bool:
        """Whether nobody is to ask the cluster about producers."""
        return bool(self._given_up) and now < self._given_up.get(cluster, now)

    def __len__(self) -> int:
        return len(self._seams)

    def is_known(self, key: SeamKey) -> bool:
        seam = self._seams.get(key)
        return seam is not None and seam.unknown_since is None

    def ask(self, key: SeamKey, now: float) -> float:
        """Notes that the last cluster has to be asked, or asked again; returns since when."""
        seam = self._seams.get(key)
        if seam is None:
            seam = Seam(now + SEAM_SECONDS, {})
            self._keep(key, seam)
        if seam.unknown_since is None:
            seam.unknown_since = now
        return seam.unknown_since

    def untold_since(self, key: SeamKey) -> float:
        """Since when the last cluster has been asked without an answer; -inf if no question is open."""
        seam = self._seams.get(key)
        return -math.inf if seam is None or seam.unknown_since is None else seam.unknown_since

    def is_closed(self, key: SeamKey, now: float) -> bool:
        """Whether it is certain that no producer can repeat a batch."""
        seam = self._seams.get(key)
        if seam is None or seam.unknown_since is not None:
            return False
        if seam.writes and now > seam.until:
            self._producers -= seam.producers
            seam.writes.clear()
            seam.gone_on.clear()
            seam.here = None
        return not seam.writes

    def learn(self, key: SeamKey, writes: dict[int, LastWrite], now: float, here: frozenset[int] | None = None) -> None:
        if len(writes) > PRODUCERS_OF_A_SEAM:
            newest = sorted(writes.items(), key=lambda item: item[1].timestamp, reverse=True)
            writes = dict(newest[:PRODUCERS_OF_A_SEAM])
        known = self._seams.pop(key, None)
        # without producers that could come back, no batch is waited for
        seam = Seam(now + SEAM_SECONDS, writes, here=here if writes else None)
        if known is not None:
            self._producers -= known.producers
            seam.gone_on = known.gone_on
            for producer_id, missing in known.writes.items():
                if missing.gap_since is not None and writes.get(producer_id) == missing._replace(gap_since=None):
                    writes[producer_id] = missing
        self._keep(key, seam)

    def _keep(self, key: SeamKey, seam: Seam) -> None:
        self._seams[key] = seam
        self._producers += seam.producers
        while len(self._seams) > self.capacity or (self._producers > PRODUCERS_OF_ALL_SEAMS and len(self._seams) > 1):
            _, oldest = self._seams.popitem(last=False)
            self._producers -= oldest.producers

    def last_write(self, key: SeamKey, producer_id: int) -> LastWrite | None:
        seam = self._seams.get(key)
        return None if seam is None else seam.writes.get(producer_id)

    def may_have_gone_on(self, key: SeamKey, producer_id: int, id_here: int) -> bool:
        """Whether the producer may have begun on the new cluster.

        `id_here` is the producer's id there.
        """
        seam = self._seams.get(key)
        return seam is None or seam.here is None or producer_id in seam.gone_on or id_here in seam.here

    def miss(self, key: SeamKey, producer_id: int, now: float) -> None:
        """Notes that the producer has skipped its next batch, for the first time."""
        writes = self._seams[key].writes
        writes[producer_id] = writes[producer_id]._replace(gap_since=now)

    def goes_on(self, key: SeamKey, producer_id: int) -> None:
        """Notes that the producer has sent a newer batch: it repeats no older batch any more."""
        seam = self._seams.get(key)
        if seam is not None and seam.writes.pop(producer_id, None) is not None:
            seam.gone_on.add(producer_id)


class Passages:
    """Batches that are crossing the seam of a topic that has moved, over all client connections.

    A client that keeps one connection for each node may send its next batch on another connection than the batch
    before. The new cluster does not know the producer yet, and takes whichever batch comes first for the beginning. So
    the gateway refuses the later batch until the earlier one is answered.
    """

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[BatchKey, dict[object, tuple[int, object]]] = {}
        """By request: base sequence, and the connection."""

    def enter(self, key: BatchKey, request: object, base_sequence: int, connection: object) -> None:
        self._under_way.setdefault(key, {})[request] = (base_sequence, connection)

    def leave(self, key: BatchKey, request: object) -> None:
        requests = self._under_way.get(key)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._under_way[key]

    def is_overtaking(self, key: BatchKey, base_sequence: int, connection: object) -> bool:
        """Whether an earlier batch is in progress on another connection."""
        return any(
            comes_after(base_sequence, earlier) and carrier is not connection
            for earlier, carrier in self._under_way.get(key, {}).values()
        )

    def __len__(self) -> int:
        return len(self._under_way)


REFUSALS_REMEMBERED = 100_000
"""Refused (producer, partition) pairs; with more the oldest is forgotten."""
REFUSED_IN_A_ROW = 100
"""Batches of one producer and partition; clients have at most 5 in flight."""
REFUSAL_SECONDS = 30.0
"""A refused batch that has not come again by then went through another gateway, or its producer gave it up. Clients try
again within seconds, and report an error after 120 s."""


class Refusals:
    """Batches that were refused and have not come again yet.

    Suppose that a batch is refused and the next one of its producer and partition is stored. Then the broker would for
    ever answer the first with OUT_OF_ORDER_SEQUENCE_NUMBER, or already the next one, which is fatal to librdkafka. So
    once a batch is refused, all later ones are refused too, and they come again in their order. They may come on
    another connection: if the topic has moved, a client that knows one node for each cluster takes the new cluster's
    node. A refused batch may come again on another gateway, or not at all, so no refusal is for ever.
    """

    __slots__ = ("waiting",)
    capacity = REFUSALS_REMEMBERED

    def __init__(self) -> None:
        self.waiting: OrderedDict[BatchKey, tuple[list[int], float]] = OrderedDict()
        """Base sequences in their order, and the time when the wait ends; the oldest refusal comes first."""

    def any(self, now: float) -> bool:
        """Whether the gateway waits for any batch."""
        while self.waiting:
            key, (_, until) = next(iter(self.waiting.items()))
            if now < until:
                return True
            del self.waiting[key]
        return False

    def admits(self, key: BatchKey, base_sequence: int, records: int, now: float) -> bool:
        """Whether a batch may pass: the gateway waits for no batch before it.

        A batch may hold records of several refused ones.
        """
        waited, until = self.waiting.get(key, ([], now))
        if now < until and comes_after(base_sequence, waited[0]):
            return False
        following = (base_sequence + records) % SEQUENCES
        left = [sequence for sequence in waited if not comes_after(following, sequence)] if now < until else []
        if left:
            self.waiting[key] = (left, now + REFUSAL_SECONDS)
        else:
            self.waiting.pop(key, None)
        return True

    def refuse(self, key: BatchKey, base_sequence: int, now: float) -> None:
        """Remembers that this batch was refused."""
        waited, _ = self.waiting.setdefault(key, ([], now + REFUSAL_SECONDS))
        if base_sequence not in waited and len(waited) < REFUSED_IN_A_ROW:
            later = (at for at, each in enumerate(waited) if comes_after(each, base_sequence))
            waited.insert(next(later, len(waited)), base_sequence)
        if len(self.waiting) > self.capacity:
            self.waiting.popitem(last=False)

    def __len__(self) -> int:
        return len(self.waiting)
