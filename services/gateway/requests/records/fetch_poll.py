"""One long poll over all brokers that lead a client's partitions.

Theory of operation
1. Each broker is asked for its partitions, with the client's wait and minimum. The poll is over when the bytes that
   have come in reach the minimum, a broker reports an error, all have answered, or the wait is over. An idle cluster
   never delays a busy cluster: the poll leaves an unanswered request behind, and the next poll continues with it
   (`Call.resume_key`).
2. A poll has rounds. Another round follows at once if an answer does not serve the current request. There are three
   such cases: the last poll had left the request behind, the broker's session is gone, or the answer names a nearer
   replica.
3. Partitions are read from such a replica for a while, or until it fails. The client never sees an error of a follower,
   because the gateway asks the leader instead.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from services.gateway.requests.placement import LEADER_ERRORS, Place, homes
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Broker,
    Call,
    Command,
    Gather,
    Lane,
    MeshView,
    Outcome,
    RawResponse,
    Stale,
)
from services.gateway.requests.records.broker_fetches import BrokerFetches, Found, Limits, NamedSlot, Terms
from services.gateway.requests.records.fetch_sessions import NO_SESSION, Marks, Position, Slot
from services.gateway.requests.records.stitched import Stretch
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.scanner import FetchedPartition, FetchResponseScan, scan_fetch_response
from services.gateway.wire.scanner.bounds import IDS_SINCE

NAMES_UNTIL: Final = IDS_SINCE - 1
"""The last version that names topics, and so the newest that the gateway speaks to clusters."""
ROUNDS: Final = 5
"""A poll needs no more rounds: session gone, replica named, replica gone, leader asked. A broker that needs more rounds
counts as silent."""
GRACE_S: Final = 0.05
"""Seconds beyond the wait. A broker without records answers a moment after the wait is over. To read this answer now is
cheaper than to continue with it in the next poll."""


def fitting(wanted: Iterable[Slot], found: Mapping[Slot, Found], max_bytes: int) -> Mapping[Slot, Found]:
    """The partitions for which an answer has room, in the client's order.

    The others count as not read: their records will come again.
    """
    if sum(each.part.record_bytes for each in found.values()) <= max_bytes:
        return found
    fitted: dict[Slot, Found] = {}
    room = max_bytes
    for slot in wanted:
        each = found.get(slot)
        if each is not None and (each.part.record_bytes <= room or room == max_bytes):
            fitted[slot] = each
            room -= each.part.record_bytes
    return fitted


@dataclass(slots=True)
class _Question:
    """The question to one broker, in one round."""

    place: Place
    fetches: BrokerFetches
    taken_up: bool
    """Asked by an earlier poll, which has left the question behind."""
    outcome: Outcome | None = None
    scan: FetchResponseScan | None = None
    """The scan of `outcome`; None if `outcome` is no answer."""

    def read(self, outcome: Outcome) -> FetchResponseScan | None:
        if outcome is not self.outcome:
            self.outcome, self.scan = outcome, scan_of(outcome)
        return self.scan


def scan_of(outcome: Outcome) -> FetchResponseScan | None:
    if not isinstance(outcome, RawResponse):
        return None
    try:
        return scan_fetch_response(outcome.frame, outcome.version, outcome.body_offset, len(outcome.frame))
    except WireError:
        return None


@dataclass(frozen=True, slots=True)
class _Enough:
    """Whether the outcomes so far call for the next step: an answer to the client, or another question."""

    questions: Sequence[_Question]
    record_bytes: int
    """Record bytes of earlier rounds."""
    min_bytes: int

    def __call__(self, outcomes: Sequence[Outcome | None]) -> bool:
        record_bytes = self.record_bytes
        for question, outcome in zip(self.questions, outcomes, strict=True):
            if outcome is None:
                continue
            if question.taken_up:
                return True
            scan = question.read(outcome)
            if scan is not None:
                if scan.error_code or any(is_pressing(part) for topic in scan.topics for part in topic.partitions):
                    return True
                record_bytes += scan.record_bytes
        return None not in outcomes or record_bytes >= self.min_bytes


def is_pressing(part: FetchedPartition) -> bool:
    return bool(part.error_code) or part.preferred_read_replica != -1


@dataclass(slots=True)
class Poll:
    """Use: `yield from poll.run()`, then `found`, `refused`, `marks()`."""

    mesh: MeshView
    wanted: Mapping[Slot, Position]
    version: int
    """The client's version."""
    isolation_level: int
    limits: Limits
    in_session: bool = True
    """Whether the client has a session with the gateway, or is about to get one."""
    parts_read: Mapping[Slot, Stretch] = field(default_factory=dict)
    """The parts that partitions of stitched logs are read from."""
    shown_as: Mapping[Slot, Slot] = field(default_factory=dict)
    """Names in requests for the past of forks -> the names that the client has for it."""
    leaves_out: bool = False
    """The client wants other partitions besides, which wait for their turn."""
    found: dict[Slot, Found] = field(default_factory=dict)
    """The partitions that brokers have answered."""
    waiting: Mapping[Slot, Marks] = field(default_factory=dict)
    """Partitions that are not asked for, because their records are held back (`committed`)."""
    refused: dict[Slot, ErrorCode] = field(default_factory=dict)
    """The errors that the gateway itself answers."""
    throttle_time_ms: int = 0
    """The broker's own throttle time, if there was only one broker."""
    whole: RawResponse | None = None
    """The one answer of the one broker, if it covers all wanted partitions and needs no change."""
    parts: dict[Place, dict[NamedSlot, Position]] = field(default_factory=dict)
    """The partitions that are wanted from each broker."""
    _followed: dict[NamedSlot, Place] = field(default_factory=dict)
    """Leaders of the partitions that are read from a follower."""
    asked: set[Place] = field(default_factory=set)
    """Brokers that were asked by this poll, if it was forwarded first by the forwarder."""
    _done: set[Place] = field(default_factory=set)
    """Brokers that have answered the wanted partitions, or can't be asked."""
    _silent: set[Place] = field(default_factory=set)
    """Brokers of `_done` that can't be asked."""
    _goes_on: bool = True
    """A partition has to be asked for at another broker."""

    def run(self) -> Generator[Command, Any, None]:
        for turn in range(ROUNDS):
            yield from self._place()
            questions = [self._question(place) for place in self.parts if place not in self._done]
            if not questions:
                break
            outcomes, in_time = yield from self._ask(questions, turn)
            for question, outcome in zip(questions, outcomes, strict=True):
                if outcome is not None:
                    yield from self._take(question, outcome)
            if turn == 0 and len(questions) == 1:
                self._look_at_whole(questions[0])
            if not in_time or self._is_enough() or (self._done >= self.parts.keys() and not self._goes_on):
                break
            self.own()
        else:  # brokers that contradict each other: a client that is answered at once asks again at once
            self._silent.update(self.parts)
        if self._silent >= self.parts.keys() and self.wanted and not self.found:
            yield Gather((), lambda _: False, self.limits.wait_s, since=self.mesh.now)
        for place in self._silent:
            for slot in self.parts.get(place, ()):
                if slot not in self.found:
                    self.refused[slot] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def marks(self) -> dict[Slot, Marks]:
        """The last marks of the partitions that no broker has answered in this poll, as clients see them."""
        parts = self.parts_read
        return {
            self.shown_as.get(slot, slot): parts[slot].shown_marks(marks) if slot in parts else marks
            for slot, marks in self.marks_of_brokers().items()
        }

    def marks_of_brokers(self) -> dict[Slot, Marks]:
        """The same marks with the offsets of clusters."""
        known = self.mesh.session.broker_fetches
        return {
            slot: marks
            for place, part in self.parts.items()
            if place in known  # unless its broker has just left the cluster
            for slot in part
            if slot not in self.found and (marks := known[place].marks.get(slot)) is not None
        }

    @property
    def brokers(self) -> int:
        """The number of brokers that the partitions are on."""
        return len(self.parts)

    @property
    def record_bytes(self) -> int:
        return sum(found.part.record_bytes for found in self.found.values())

    def _is_enough(self) -> bool:
        """Whether to answer the client now, even if some brokers have not answered."""
        return self.record_bytes >= self.limits.least_bytes or any(
            found.part.error_code for found in self.found.values()
        )

    # --- where ---------------------------------------------------------------------------------------------------

    def _place(self) -> Generator[Command, Any, None]:
        """Divides the wanted partitions among the brokers."""
        self._goes_on = False
        named: dict[NamedSlot, Position] = {}
        for (topic, partition), position in self.wanted.items():
            if isinstance(topic, str):
                named[topic, partition] = position
            else:
                self.refused[topic, partition] = ErrorCode.UNKNOWN_TOPIC_ID
        elsewhere = {slot: self.parts_read[slot].cluster for slot in named if slot in self.parts_read}
        places, errors = yield from homes(self.mesh, list(named), elsewhere)
        for slot, error in errors.items():
            self.refused[slot] = error
        self.parts.clear()
        self._followed.clear()
        for slot, leader in places.items():
            place = self._nearest(slot, leader) if self.limits.rack_id else leader
            part = self.parts.get(place)
            if part is None:
                part = self.parts[place] = {}
            part[slot] = named[slot]
        for broker, fetches in self.mesh.session.broker_fetches.items():
            if broker not in self.parts and fetches.table is not self.mesh.table:
                fetches.lost()  # its topics may have moved away; if they come back, the broker has to answer anew

    def _nearest(self, slot: NamedSlot, leader: Place) -> Place:
        replica = self.mesh.session.read_replicas.get((leader.cluster, *slot), self.mesh.now)
        if replica is None or replica not in self.mesh.clusters[leader.cluster].brokers:
            return leader
        self._followed[slot] = leader
        return Place(leader.cluster, replica)

    # --- questions -----------------------------------------------------------------------------------------------

    def _question(self, place: Place) -> _Question:
        version = highest_version(self.mesh, place.cluster, ApiKey.FETCH, min(self.version, NAMES_UNTIL))
        terms = Terms(version, self.isolation_level, self.mesh.clusters[place.cluster].naming)
        known = self.mesh.session.broker_fetches
        fetches = known.get(place)
        if fetches is None or fetches.terms != terms:
            self._forget_brokers_that_are_gone()
            fetches = known[place] = BrokerFetches(terms)
        fetches.table = self.mesh.table
        taken_up = fetches.on_its_way is not None and place not in self.asked
        self.asked.add(place)
        return _Question(place, fetches, taken_up)

    def _forget_brokers_that_are_gone(self) -> None:
        clusters = self.mesh.clusters
        known = self.mesh.session.broker_fetches
        for cluster, broker_id in list(known):
            if cluster not in clusters or broker_id not in clusters[cluster].brokers:
                del known[cluster, broker_id]

    def _ask(
        self, questions: list[_Question], turn: int
    ) -> Generator[Command, Any, tuple[tuple[Outcome | None, ...], bool]]:
        """The outcomes, and whether they came before the wait was over."""
        calls = tuple(self._call(question) for question in questions)
        enough = _Enough(questions, self.record_bytes, self.limits.least_bytes)
        outcomes: tuple[Outcome | None, ...]
        if turn == 0 and len(calls) == 1:  # one broker keeps the time by itself
            outcomes = yield Gather(calls, enough, calls[0].timeout_s)
        else:
            outcomes = yield Gather(calls, enough, self.limits.wait_s + GRACE_S, since=self.mesh.now)
        return outcomes, enough(outcomes)

    def _call(self, question: _Question) -> Call:
        place, fetches = question.place, question.fetches
        request = fetches.on_its_way
        if request is None:
            brokers = len(self.parts)
            in_session = self.in_session or brokers > 1
            request = fetches.ask(self.parts[place], self.limits.for_each_of(brokers), in_session)
        return Call(
            place.cluster,
            request.message,
            fetches.terms.version,
            Broker(place.broker_id),
            Lane.FETCH,
            timeout_s=self.limits.wait_s + CALL_TIMEOUT_S,
            raw=True,
            resume_key=fetches.resume_key,
        )

    # --- answers -------------------------------------------------------------------------------------------------

    def _take(self, question: _Question, outcome: Outcome) -> Generator[Command, Any, None]:
        place, fetches, scan = question.place, question.fetches, question.read(outcome)
        if scan is None:
            fetches.lost()
            if not question.taken_up:
                self._cannot_be_asked(place)
            return
        if not fetches.answered(scan):
            return
        stale: set[str] = set()
        if scan.error_code:
            stale.update(topic for topic, _ in self.parts[place])
            self._cannot_be_asked(place)
        served = False
        for topic in scan.topics:
            for part in topic.partitions:
                slot = (topic.name, part.partition)
                if part.error_code in LEADER_ERRORS:
                    stale.add(topic.name)
                if self._is_wanted(slot, question) and not self._is_elsewhere(slot, place, part):
                    assert isinstance(outcome, RawResponse)
                    self.found[slot] = Found(outcome.frame, outcome.version, part)
                    served = served or part.record_bytes > 0
        if served or not question.taken_up:
            self._done.add(place)
        if len(self.parts) == 1:
            self.throttle_time_ms = scan.throttle_time_ms
        if stale:
            yield Stale(place.cluster, tuple(sorted(stale)))

    def _is_wanted(self, slot: NamedSlot, question: _Question) -> bool:
        """Whether this broker's answer about the partition fits the offset that the client wants now."""
        position = self.parts[question.place].get(slot)
        asked = question.fetches.asked.get(slot)
        return position is not None and asked is not None and position.offset == asked.offset

    def _is_elsewhere(self, slot: NamedSlot, place: Place, part: FetchedPartition) -> bool:
        """Whether the gateway has to ask another replica for the partition."""
        key = (place.cluster, *slot)
        leader = self._followed.get(slot)
        if leader is not None and part.error_code:
            self.mesh.session.read_replicas.drop(key)
            self._ask_again(leader)
            return True
        nearest = Place(place.cluster, part.preferred_read_replica)
        if nearest == place or nearest.broker_id not in self.mesh.clusters[place.cluster].brokers:
            return False
        self.mesh.session.read_replicas.put(key, nearest.broker_id, self.mesh.now)
        self._ask_again(nearest)
        return True

    def _cannot_be_asked(self, place: Place) -> None:
        self._done.add(place)
        self._silent.add(place)
        for slot in self.parts[place]:
            leader = self._followed.get(slot)
            if leader is not None:
                self.mesh.session.read_replicas.drop((place.cluster, *slot))
                self._ask_again(leader)

    def _ask_again(self, place: Place) -> None:
        self._goes_on = True
        self._done.discard(place)

    def _look_at_whole(self, question: _Question) -> None:
        scan, outcome = question.scan, question.outcome
        alone = len(self.parts) == 1 and not (self.refused or self.leaves_out or question.taken_up)
        if alone and scan is not None and scan.untouched and question.fetches.session_id == NO_SESSION:
            self.whole = outcome if isinstance(outcome, RawResponse) else None

    def own(self) -> None:
        """Copies the answers so far, which must outlast another wait: they may be in a receive buffer."""
        copies: dict[int, Buffer] = {}
        for slot, found in self.found.items():
            key = id(found.buffer)
            if key not in copies:
                copies[key] = bytes(found.buffer)
            self.found[slot] = Found(copies[key], found.version, found.part)
