"""Fetches from brokers: what they are told, what is taken from their answers, and that in the end all is known."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.gateway.requests.records.broker_fetches import (
    SESSION_WORTH_PARTITIONS,
    BrokerFetches,
    Limits,
    NamedSlot,
    Terms,
)
from services.gateway.requests.records.fetch_sessions import (
    Asked,
    FetchSessions,
    Marks,
    Position,
    Result,
    Slot,
    Told,
    told_of,
    wish_of,
)
from services.gateway.wire.codec import encode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import FetchableTopicResponse, PartitionData
from services.gateway.wire.scanner import FetchResponseScan, scan_fetch_response
from tests.fixtures.sweeps import REPEAT

VERSION = 12
LIMITS = Limits(max_wait_ms=500, min_bytes=1, max_bytes=1000, rack_id="")
MANY: dict[NamedSlot, Position] = {("a", n): Position(0, 100) for n in range(SESSION_WORTH_PARTITIONS)}


def scanned(message: FetchResponse) -> FetchResponseScan:
    body = encode(message, VERSION)
    return scan_fetch_response(body, VERSION, 0, len(body))


class BrokerOfThisTest:
    """Keeps sessions as brokers do: the gateway's own, towards clients, are made to their rules."""

    def __init__(self) -> None:
        self.sessions = FetchSessions()
        self.truth: dict[Slot, Result] = {}
        self.ids = 0

    def answer(self, request: FetchRequest) -> FetchResponse:
        asked = Asked(
            request.session_id,
            request.session_epoch,
            False,
            {
                (t.topic, p.partition): Position(p.fetch_offset, p.partition_max_bytes)
                for t in request.topics
                for p in t.partitions
            },
            [(t.topic, partition) for t in request.forgotten_topics_data for partition in t.partitions],
        )
        wish = wish_of(self.sessions, asked, 0.0)
        if isinstance(wish, ErrorCode):
            return FetchResponse(error_code=wish)
        results = {slot: self.truth.get(slot, Result(Marks(1, 1, 0))) for slot in wish.wanted}
        told = told_of(self.sessions, wish, results, by_ids=False, now=0.0, random_bits=self._new_id)
        assert isinstance(told, Told)
        response = FetchResponse(session_id=told.session_id)
        for slot in told.slots:
            result, (topic, partition) = results[slot], slot
            records = b"%d" % wish.wanted[slot].offset if result.record_bytes else b""
            data = PartitionData(partition, result.error_code, *result.marks.numbers, records=records)
            response.responses.append(FetchableTopicResponse(str(topic), partitions=[data]))
        return response

    def _new_id(self, bits: int) -> int:
        self.ids += 1
        return self.ids

    def believes(self, session_id: int) -> Mapping[Slot, Position] | None:
        session = self.sessions.get(session_id)
        return None if session is None else session.wanted


def fresh() -> BrokerFetches:
    return BrokerFetches(Terms(VERSION, 0))


def named(request: FetchRequest) -> list[NamedSlot]:
    return [(topic.topic, part.partition) for topic in request.topics for part in topic.partitions]


def test_few_partitions_are_asked_for_without_a_session() -> None:
    fetches, broker = fresh(), BrokerOfThisTest()
    for _ in range(2):
        request = fetches.ask({("a", 0): Position(0, 100)}, LIMITS).message
        assert (request.session_id, request.session_epoch, named(request)) == (0, -1, [("a", 0)])
        assert fetches.answered(scanned(broker.answer(request)))
    assert len(broker.sessions) == 0


def test_before_version_7_there_are_no_sessions() -> None:
    request = BrokerFetches(Terms(6, 0)).ask(MANY, LIMITS).message
    assert (request.session_id, request.session_epoch) == (0, -1)


def test_in_a_session_a_broker_is_told_the_difference() -> None:
    fetches, broker = fresh(), BrokerOfThisTest()
    assert fetches.answered(scanned(broker.answer(fetches.ask(MANY, LIMITS).message)))
    quiet = fetches.ask(MANY, LIMITS).message
    assert (quiet.session_id, quiet.session_epoch, quiet.topics, quiet.forgotten_topics_data) == (1, 1, [], [])
    assert fetches.answered(scanned(broker.answer(quiet)))
    wanted = dict(MANY)
    del wanted["a", 0]
    wanted |= {("a", 1): Position(7, 100), ("b", 0): Position(0, 100)}
    request = fetches.ask(wanted, LIMITS).message
    assert (request.session_epoch, named(request)) == (2, [("a", 1), ("b", 0)])
    assert [(t.topic, t.partitions) for t in request.forgotten_topics_data] == [("a", [0])]
    broker.answer(request)
    assert broker.believes(1) == wanted


@pytest.mark.parametrize("how", ["unknown", "epoch", "lost"])
def test_whatever_goes_wrong_ends_in_a_full_request(how: str) -> None:
    fetches, broker = fresh(), BrokerOfThisTest()
    fetches.answered(scanned(broker.answer(fetches.ask(MANY, LIMITS).message)))
    fetches.ask(MANY, LIMITS)
    if how == "lost":
        fetches.lost()
    else:
        if how == "unknown":
            broker.sessions.end(fetches.session_id)
        error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if how == "unknown" else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert not fetches.answered(scanned(FetchResponse(error_code=error))), "ask again"
    request = fetches.ask(MANY, LIMITS).message
    assert (request.session_epoch, named(request)) == (0, list(MANY))
    assert request.session_id == (0 if how == "unknown" else 1), "what the broker may still hold is closed"
    assert fetches.answered(scanned(broker.answer(request)))
    assert len(broker.sessions) == 1


def test_a_broker_without_room_gives_no_session_and_is_asked_in_full_again() -> None:
    fetches = fresh()
    fetches.ask(MANY, LIMITS)
    assert fetches.answered(scanned(FetchResponse(session_id=0)))
    assert (fetches.ask(MANY, LIMITS).message.session_epoch, fetches.session_id) == (0, 0)


def test_marks_are_kept_for_who_wants_a_full_answer() -> None:
    fetches, broker = fresh(), BrokerOfThisTest()
    broker.truth[("a", 3)] = Result(Marks(9, 8, 7))
    fetches.answered(scanned(broker.answer(fetches.ask(MANY, LIMITS).message)))
    fetches.answered(scanned(broker.answer(fetches.ask(MANY, LIMITS).message)))
    assert (fetches.marks["a", 3], fetches.marks["a", 4]) == (Marks(9, 8, 7), Marks(1, 1, 0))


def test_one_request_at_a_time() -> None:
    fetches = fresh()
    fetches.ask(MANY, LIMITS)
    with pytest.raises(AssertionError):
        fetches.ask(MANY, LIMITS)


SLOTS: list[NamedSlot] = [("a", n) for n in range(SESSION_WORTH_PARTITIONS)] + [("b", 0), ("b", 1)]


class BothSides(RuleBasedStateMachine):
    """Whatever is wanted, lost and left behind: after an answer the broker knows what was wanted when it was asked,
    its marks are known here, and records are offered until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = BrokerOfThisTest()
        self.fetches = fresh()
        self.wanted = dict.fromkeys(SLOTS[:SESSION_WORTH_PARTITIONS], Position(0, 100))
        self.late: FetchResponse | None = None

    @rule(slot=st.sampled_from(SLOTS), offset=st.integers(0, 3))
    def want(self, slot: NamedSlot, offset: int) -> None:
        self.wanted[slot] = Position(offset, 100)

    @rule(slot=st.sampled_from(SLOTS))
    def want_no_more(self, slot: NamedSlot) -> None:
        if len(self.wanted) > 1:
            self.wanted.pop(slot, None)

    @rule(slot=st.sampled_from(SLOTS), mark=st.integers(1, 3), error=st.sampled_from([0, 0, 6]), records=st.booleans())
    def change(self, slot: NamedSlot, mark: int, error: int, records: bool) -> None:
        self.broker.truth[slot] = Result(Marks(mark, mark, 0), error, 1 if records and not error else 0)

    @rule()
    def the_broker_forgets(self) -> None:
        self.broker.sessions.end(self.fetches.session_id)

    @rule()
    def ask(self) -> None:
        if self.late is None:
            self.late = self.broker.answer(self.fetches.ask(dict(self.wanted), LIMITS).message)

    @rule()
    def lose(self) -> None:
        if self.late is not None:
            self.late = None
            self.fetches.lost()

    @rule()
    def take(self) -> None:
        """An answer, perhaps one that was left behind while other things came to be wanted."""
        if self.late is None:
            return
        answer, self.late = self.late, None
        if not self.fetches.answered(scanned(answer)):
            return
        offered = {
            (t.topic, p.partition_index): bytes(p.records or b"") for t in answer.responses for p in t.partitions
        }
        for slot, records in offered.items():
            if records:
                assert records == b"%d" % self.fetches.asked[slot].offset
        believed = self.broker.believes(self.fetches.session_id)
        if self.fetches.session_id and believed is not None:
            assert believed == self.fetches.asked

    @rule()
    def settle(self) -> None:
        """Once nothing changes any more, one question tells all; two if the broker has forgotten the session."""
        self.take()
        for _ in range(2):
            self.ask()
            answer = self.late
            self.take()
        assert answer is not None
        assert self.fetches.asked == self.wanted
        offered = {(t.topic, p.partition_index) for t in answer.responses for p in t.partitions if p.records}
        for slot in self.wanted:
            result = self.broker.truth.get(slot, Result(Marks(1, 1, 0)))
            assert (slot in offered) == bool(result.record_bytes)
            if not result.error_code:
                assert self.fetches.marks[slot] == result.marks

    @invariant()
    def what_is_kept_is_bounded_by_what_is_asked(self) -> None:
        assert self.fetches.marks.keys() <= self.fetches.asked.keys()


TestBothSides = BothSides.TestCase
TestBothSides.settings = settings(
    max_examples=20 * REPEAT, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
