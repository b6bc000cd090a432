"""Fetch sessions of clients: what an answer has, what is refused, who makes way; and that both sides always agree."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.gateway.requests.records.fetch_sessions import (
    MAKES_WAY_AFTER_S,
    Asked,
    FetchSessions,
    Marks,
    Position,
    Result,
    Slot,
    Told,
    Wish,
    next_epoch,
    told_of,
    wish_of,
)
from services.gateway.wire.errors import ErrorCode
from tests.fixtures.sweeps import REPEAT

A: Slot = ("apples", 0)
B: Slot = ("apples", 1)
C: Slot = ("bananas", 0)
HERE = Position(42, 100)
QUIET = Result(Marks(50, 50, 0))
IDS = itertools.count(1)


class Client:
    """Asks `sessions` and keeps what it needs to ask again."""

    def __init__(self, sessions: FetchSessions, by_ids: bool = False) -> None:
        self.sessions = sessions
        self.by_ids = by_ids
        self.session_id = 0
        self.epoch = 0
        self.now = 0.0

    def ask(self, wanted: dict[Slot, Position], forgotten: Iterable[Slot] = ()) -> Wish | ErrorCode:
        asked = Asked(self.session_id, self.epoch, self.by_ids, wanted, forgotten)
        return wish_of(self.sessions, asked, self.now)

    def told(self, wish: Wish | ErrorCode, results: dict[Slot, Result]) -> list[Slot]:
        """The partitions of the answer."""
        assert isinstance(wish, Wish)
        told = told_of(
            self.sessions, wish, results, by_ids=self.by_ids, now=self.now, random_bits=lambda bits: next(IDS)
        )
        assert isinstance(told, Told)
        self.session_id, self.epoch = told.session_id, next_epoch(self.epoch) if told.session_id else 0
        return told.slots

    def poll(self, wanted: dict[Slot, Position], results: dict[Slot, Result]) -> list[Slot]:
        return self.told(self.ask(wanted), results)


def begun(sessions: FetchSessions, *slots: Slot) -> Client:
    client = Client(sessions)
    assert client.poll(dict.fromkeys(slots, HERE), dict.fromkeys(slots, QUIET)) == list(slots)
    return client


def test_a_full_answer_has_all_partitions_an_incremental_one_what_has_changed() -> None:
    client = begun(FetchSessions(), A, B, C)
    assert client.session_id
    assert client.poll({}, {A: QUIET, B: QUIET, C: QUIET}) == []
    assert client.poll({}, {A: QUIET, B: Result(Marks(51, 51, 0), record_bytes=9)}) == [B]
    assert client.poll({B: Position(51, 100)}, {B: Result(Marks(51, 51, 7))}) == [B], "the log start has changed"
    assert client.poll({}, {C: Result(Marks(60, 50, 0))}) == [C], "the high watermark has changed"
    assert client.poll({}, {C: Result(Marks(60, 55, 0))}) == [], "as with brokers, the last stable offset alone is not"


def test_an_error_is_told_each_time_and_its_end_too() -> None:
    client = begun(FetchSessions(), A, B)
    failed: dict[Slot, Result] = {A: Result(error_code=6)}
    assert [client.poll({}, failed), client.poll({}, failed), client.poll({}, {A: QUIET, B: QUIET})] == [[A], [A], [A]]


def test_partitions_come_and_go() -> None:
    client = begun(FetchSessions(), A)
    wish = client.ask({B: HERE, A: Position(43, 100)}, forgotten=[])
    assert isinstance(wish, Wish)
    assert dict(wish.wanted) == {A: Position(43, 100), B: HERE}
    assert client.told(wish, {B: QUIET}) == [B]
    wish = client.ask({}, forgotten=[A])
    assert isinstance(wish, Wish)
    assert dict(wish.wanted) == {B: HERE}


def test_what_had_records_goes_to_the_end() -> None:
    client = begun(FetchSessions(), A, B, C)
    client.poll({}, {A: Result(Marks(51, 51, 0), record_bytes=1)})
    wish = client.ask({})
    assert isinstance(wish, Wish)
    assert list(wish.wanted) == [B, C, A]


def test_refusals_are_those_of_brokers() -> None:
    sessions = FetchSessions()
    client = begun(sessions, A)
    session_id = client.session_id
    client.session_id += 1
    assert client.ask({}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    client.session_id, client.epoch = session_id, 2
    assert client.ask({}) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch, client.by_ids = 1, True
    assert client.ask({}) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.by_ids = False
    assert isinstance(client.ask({}), Wish), "what was refused has changed nothing"


def test_a_session_that_another_connection_has_used_meanwhile_is_told_so() -> None:
    client = begun(FetchSessions(), A)
    slow = client.ask({})
    client.epoch += 1
    client.ask({})
    assert isinstance(slow, Wish)
    told = told_of(client.sessions, slow, {}, by_ids=False, now=0, random_bits=lambda bits: 1)
    assert told == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_that_it_names(epoch: int) -> None:
    sessions = FetchSessions()
    client = begun(sessions, A, B)
    client.epoch = epoch
    assert client.poll({A: HERE}, {}) == [A]
    assert (len(sessions), sessions.partitions) == ((1, 1) if epoch == 0 else (0, 0))


def test_a_session_without_partitions_is_none() -> None:
    sessions = FetchSessions()
    client = begun(sessions, A)
    assert client.told(client.ask({}, forgotten=[A]), {}) == []
    assert (client.session_id, len(sessions), sessions.partitions) == (0, 0, 0)


def test_an_id_gets_its_name_as_soon_as_it_is_known() -> None:
    sessions = FetchSessions()
    client = Client(sessions, by_ids=True)
    strange = (b"i" * 16, 3)
    client.poll({strange: HERE, A: HERE}, {strange: Result(error_code=100), A: QUIET})
    session = sessions.get(client.session_id)
    assert session is not None
    assert session.strange_ids() == {b"i" * 16}
    session.learn_names({b"i" * 16: "bananas"})
    wish = client.ask({})
    assert isinstance(wish, Wish)
    assert list(wish.wanted) == [("bananas", 3), A]
    assert client.told(wish, {("bananas", 3): QUIET, A: QUIET}) == [("bananas", 3)]


# --- room ------------------------------------------------------------------------------------------------------------


def test_without_room_a_client_goes_on_without_a_session() -> None:
    sessions = FetchSessions(sessions_held=1)
    first = begun(sessions, A)
    second = begun(sessions, A, B)
    assert (first.session_id > 0, second.session_id) == (True, 0)
    assert isinstance(first.ask({}), Wish)


def test_sessions_that_are_not_used_make_way() -> None:
    sessions = FetchSessions(sessions_held=1)
    made_way: list[bool] = []
    sessions.on_made_way = lambda: made_way.append(True)
    first, late = begun(sessions, A, B), Client(sessions)
    late.now = MAKES_WAY_AFTER_S + 1
    assert late.poll({A: HERE}, {}) == [A]
    assert (late.session_id > 0, len(made_way)) == (True, 1)
    assert first.ask({}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_small_sessions_make_way_for_larger_ones_when_they_are_no_longer_new() -> None:
    sessions = FetchSessions(sessions_held=2)
    small, large = begun(sessions, A), begun(sessions, A, B)
    for now in (60.0, MAKES_WAY_AFTER_S + 1):
        for client in (small, large):
            client.now = now
            client.poll({}, {})
    newcomer = Client(sessions)
    newcomer.now = MAKES_WAY_AFTER_S + 2
    newcomer.poll({A: HERE, C: HERE}, {})
    assert newcomer.session_id > 0
    assert small.ask({}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(large.ask({}), Wish)


def test_partitions_are_bounded_too_those_that_come_later_as_well() -> None:
    sessions = FetchSessions(partitions_held=3)
    client = begun(sessions, A, B)
    assert begun(sessions, A, B).session_id == 0
    assert client.poll({C: HERE}, {C: QUIET}) == [C]
    assert client.told(client.ask({("cherries", 0): HERE}), {}) == [("cherries", 0)]
    assert (client.session_id, sessions.partitions) == (0, 0), "it has become too large, and the client is told so"


# --- always ----------------------------------------------------------------------------------------------------------

SLOTS: list[Slot] = [(topic, partition) for topic in ("a", "b") for partition in range(3)]


class BothSides(RuleBasedStateMachine):
    """A client that keeps to KIP-227, and a truth that changes: what the client believes is always the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = FetchSessions(sessions_held=2, partitions_held=8)
        self.client = Client(self.sessions)
        self.wanted: dict[Slot, Position] = {}
        """Of the client."""
        self.in_session: dict[Slot, Position] = {}
        """As the client has told it."""
        self.truth = {slot: Result(Marks(10, 10, 0)) for slot in SLOTS}
        self.believed: dict[Slot, tuple[int, int, int]] = {}

    @initialize(slots=st.sets(st.sampled_from(SLOTS), min_size=1))
    def begin(self, slots: set[Slot]) -> None:
        self.wanted = dict.fromkeys(slots, Position(0, 100))

    @rule(slot=st.sampled_from(SLOTS), offset=st.integers(0, 3))
    def seek(self, slot: Slot, offset: int) -> None:
        self.wanted[slot] = Position(offset, 100)

    @rule(slot=st.sampled_from(SLOTS))
    def drop(self, slot: Slot) -> None:
        self.wanted.pop(slot, None)

    @rule(slot=st.sampled_from(SLOTS), mark=st.integers(10, 12), start=st.integers(0, 1), error=st.sampled_from([0, 6]))
    def change(self, slot: Slot, mark: int, start: int, error: int) -> None:
        self.truth[slot] = Result(Marks(mark, mark, start), error)

    @rule()
    def lose_the_session(self) -> None:
        self.sessions.end(self.client.session_id)

    @rule()
    def others_take_the_room(self) -> None:
        self.client.now += 200
        other = Client(self.sessions)
        other.now = self.client.now
        other.poll(dict.fromkeys(SLOTS, HERE), {})

    @rule(records=st.sets(st.sampled_from(SLOTS)))
    def poll(self, records: set[Slot]) -> None:
        incremental = self.client.epoch > 0
        changed = {s: p for s, p in self.wanted.items() if not incremental or self.in_session.get(s) != p}
        forgotten = [slot for slot in self.in_session if slot not in self.wanted] if incremental else []
        wish = self.client.ask(changed, forgotten)
        if isinstance(wish, ErrorCode):
            assert incremental
            self.client.epoch = 0
            return
        kept = wish.session is not None
        assert dict(wish.wanted) == (self.wanted if kept or not incremental else changed)
        if not kept:
            self.believed.clear()
        for slot in forgotten:
            self.believed.pop(slot, None)
        # brokers tell of what has changed, and of all that they were not asked for before
        news = {slot for slot in wish.wanted if self.believed.get(slot) != self._true(slot) or slot in records}
        results = {slot: self.truth[slot]._replace(record_bytes=5 if slot in records else 0) for slot in news}
        results |= {slot: self.truth[slot] for slot in wish.wanted if self.truth[slot].error_code}
        told = self.client.told(wish, results)
        assert set(told) == (results.keys() if kept else wish.wanted.keys())
        self.believed |= {slot: self._true(slot) for slot in told}
        self.in_session = dict(self.wanted)
        assert {slot: self.believed[slot] for slot in wish.wanted} == {s: self._true(s) for s in wish.wanted}

    def _true(self, slot: Slot) -> tuple[int, int, int]:
        result = self.truth[slot]
        return (result.marks.high_watermark, result.marks.log_start_offset, result.error_code)

    @invariant()
    def room_is_kept(self) -> None:
        assert len(self.sessions) <= 2
        assert self.sessions.partitions <= 8


TestBothSides = BothSides.TestCase
TestBothSides.settings = settings(max_examples=15 * REPEAT, stateful_step_count=25, deadline=None)
