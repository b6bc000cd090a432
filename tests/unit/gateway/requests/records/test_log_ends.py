"""Consumers wait at the ends of logs: nobody waits where there is news, and whoever waits hears of it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.gateway.requests.records import log_ends
from services.gateway.requests.records.broker_fetches import NamedSlot
from services.gateway.requests.records.fetch_sessions import FetchSessions, Marks, Position, Result
from services.gateway.requests.records.log_ends import (
    ENDS_OF_A_WATCH,
    UNUSED_S,
    WATCHES_OF_A_BROKER,
    BrokerLogEnds,
    LogEnd,
    LogEndWatch,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import FetchResponse
from tests.fixtures.sweeps import REPEAT
from tests.unit.gateway.requests.records.test_broker_fetches import BrokerOfThisTest, scanned

VERSION = 12
SLOTS: list[NamedSlot] = [("a", number) for number in range(12)]
"""As many as are worth a session, and more."""


@dataclass
class Log:
    """A partition on its broker."""

    end: int = 5
    start: int = 0
    is_led: bool = True

    def result(self, offset: int) -> Result:
        """The answer to who reads from there."""
        if not self.is_led:
            return Result(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.start <= offset <= self.end:
            return Result(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return Result(Marks(self.end, self.end, self.start), record_bytes=self.end - offset)


@dataclass(eq=False)
class Consumer:
    """Reads to the end, and then waits if it may."""

    slots: list[NamedSlot]
    wanted: dict[NamedSlot, Position] = field(default_factory=dict)
    marks: dict[NamedSlot, Marks] = field(default_factory=dict)
    stands: list[LogEnd] = field(default_factory=list)
    """Where it waits."""


class Broker:
    """The broker of this test, and the watches of it."""

    def __init__(self) -> None:
        self.logs = {slot: Log() for slot in SLOTS}
        self.peer = BrokerOfThisTest()
        self.now = 100.0
        self.asked: dict[LogEndWatch, object] = {}
        """The requests without an answer."""
        self.ends = BrokerLogEnds(VERSION, self.ask)

    def ask(self, watch: LogEndWatch) -> None:
        request = watch.ask(self.now)
        if request is None:
            self.asked.pop(watch, None)
        else:
            self.asked[watch] = request

    def answer(self, watch: LogEndWatch, *, again: bool = True) -> list[Consumer]:
        """The broker answers, and is asked again. Returns who waits no more."""
        request = self.asked.pop(watch)
        for slot, position in watch._fetches.asked.items():
            self.peer.truth[slot] = self.logs[slot].result(position.offset)
        woken = watch.answered(scanned(self.peer.answer(request.message)))  # type: ignore[attr-defined]
        if again and watch in self.ends.watches:
            self.ask(watch)
        return self._gone(woken)

    def fail(self, watch: LogEndWatch) -> list[Consumer]:
        del self.asked[watch]
        return self._gone(watch.lost())

    def _gone(self, woken: list[Consumer]) -> list[Consumer]:
        for consumer in woken:
            for end in consumer.stands:
                end.waiting.pop(consumer, None)
            consumer.stands = []
        return woken

    def read(self, consumer: Consumer) -> None:
        """The consumer asks the broker itself, until it has everything."""
        for slot in consumer.slots:
            log = self.logs[slot]
            consumer.wanted[slot] = Position(log.end, 1000)
            consumer.marks.pop(slot, None)
            if log.is_led:
                consumer.marks[slot] = log.result(log.end).marks

    def wait(self, consumer: Consumer, *, committed: bool = False) -> bool:
        found = self.ends.standing(consumer.wanted, consumer.marks, committed, self.now)
        for end in found or ():
            end.waiting[consumer] = None
        consumer.stands = found or []
        return bool(found)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def waiting(broker: Broker, *slots: NamedSlot) -> Consumer:
    """A consumer that waits for these partitions."""
    consumer = Consumer(list(slots))
    broker.read(consumer)
    if broker.wait(consumer):  # others wait there
        return consumer
    for watch in list(broker.asked):
        broker.answer(watch)  # the partitions of the first request ...
        broker.answer(watch)  # ... and those that were noted meanwhile
    assert broker.wait(consumer)
    return consumer


def test_a_consumer_waits_once_the_watch_has_an_answer(broker: Broker) -> None:
    consumer = waiting(broker, SLOTS[0])
    (watch,) = broker.asked
    assert broker.answer(watch) == [], "nothing has happened"
    broker.logs[SLOTS[0]].end += 1
    assert broker.answer(watch) == [consumer]
    assert not broker.asked, "nobody stands at any end"


@pytest.mark.parametrize("count", [1, len(SLOTS)], ids=["without a session", "in a session"])
@pytest.mark.parametrize(
    "change",
    [Log(end=6), Log(is_led=False), Log(start=5), Log(end=3)],
    ids=["a record", "another leader", "records deleted", "truncated"],
)
def test_news_of_one_partition_wake_those_who_wait_there(broker: Broker, change: Log, count: int) -> None:
    consumers = [waiting(broker, slot) for slot in SLOTS[:count]]
    both = waiting(broker, *SLOTS[:2]) if count > 1 else None
    broker.logs[SLOTS[0]] = change
    (watch,) = broker.asked
    assert broker.answer(watch) == [consumers[0], *([both] if both else [])]
    assert all(each.stands for each in consumers[1:])


def test_a_watch_that_fails_wakes_all(broker: Broker) -> None:
    consumers = [waiting(broker, slot) for slot in SLOTS]
    (watch,) = broker.asked
    assert broker.fail(watch) == consumers
    assert not broker.ends.ends
    assert not broker.ends.watches


def test_a_lost_session_wakes_nobody_and_loses_nothing(broker: Broker) -> None:
    consumers = [waiting(broker, slot) for slot in SLOTS]
    (watch,) = broker.asked
    broker.answer(watch)
    broker.peer.sessions = FetchSessions()
    broker.logs[SLOTS[3]].end += 1
    assert broker.answer(watch) == [], "the broker knows no session"
    assert broker.answer(watch) == [consumers[3]]


def test_an_end_that_comes_back_at_once_is_told_anew(broker: Broker) -> None:
    """A session does not tell the same marks twice."""
    consumers = [waiting(broker, slot) for slot in SLOTS]
    (watch,) = broker.asked
    broker.answer(watch)
    broker.logs[SLOTS[0]].start += 1
    assert broker.answer(watch, again=False) == [consumers[0]]
    broker.read(consumers[0])
    assert not broker.wait(consumers[0]), "its end is watched anew"
    broker.ask(watch)
    broker.answer(watch)
    assert broker.wait(consumers[0])


def test_a_refused_watch_wakes_all(broker: Broker) -> None:
    consumer = waiting(broker, SLOTS[0])
    (watch,) = broker.asked
    assert watch.answered(scanned(FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))) == [consumer]
    assert not broker.ends.watches


@pytest.mark.parametrize(
    ("marks", "committed", "waits"),
    [
        (Marks(5, 5, 0), True, True),
        (Marks(5, 4, 0), False, True),
        (Marks(5, 4, 0), True, False),
        (Marks(6, 6, 0), False, False),
        (Marks(5, 5, 1), False, False),
        (Marks(5, 5, -1), False, True),
    ],
    ids=["at the end", "uncommitted", "open transaction", "not at the end", "other start", "start not told"],
)
def test_who_waits(broker: Broker, marks: Marks, committed: bool, waits: bool) -> None:
    waiting(broker, SLOTS[0])
    consumer = Consumer([SLOTS[0]], {SLOTS[0]: Position(5, 1000)}, {SLOTS[0]: marks})
    assert broker.wait(consumer, committed=committed) is waits


def test_others_at_another_offset_disturb_nobody(broker: Broker) -> None:
    consumer = waiting(broker, SLOTS[0])
    early = Consumer([SLOTS[0]], {SLOTS[0]: Position(3, 1000)}, {SLOTS[0]: Marks(3, 3, 0)})
    assert not broker.wait(early)
    assert broker.ends.ends[SLOTS[0]].position.offset == 5
    (watch,) = broker.asked
    broker.logs[SLOTS[0]].end += 1
    assert broker.answer(watch) == [consumer]


def test_an_answer_about_an_earlier_end_is_of_no_use(broker: Broker) -> None:
    consumer = Consumer([SLOTS[0]])
    broker.read(consumer)
    broker.wait(consumer)
    (watch,) = broker.asked
    broker.logs[SLOTS[0]].end += 1
    broker.read(consumer)
    assert not broker.wait(consumer), "the watch has asked for the earlier end"
    assert broker.answer(watch) == []
    assert not broker.wait(consumer)
    broker.answer(watch)
    assert broker.wait(consumer)


def test_unused_ends_are_watched_no_more(broker: Broker) -> None:
    consumer = waiting(broker, SLOTS[0])
    (watch,) = broker.asked
    broker.now += UNUSED_S + 1
    broker.answer(watch)
    assert broker.asked, "somebody waits there"
    broker._gone([consumer])
    broker.answer(watch)
    assert not broker.asked
    assert not broker.ends.ends
    assert broker.ends.watches == [watch], "it keeps its connection"
    broker.now += UNUSED_S
    broker.ask(watch)
    assert not broker.ends.watches


def test_a_watch_without_ends_goes_on_with_the_next_one(broker: Broker) -> None:
    consumer = waiting(broker, SLOTS[0])
    (watch,) = broker.asked
    broker.logs[SLOTS[0]].end += 1
    assert broker.answer(watch) == [consumer]
    assert not broker.asked
    waiting(broker, SLOTS[1])
    assert list(broker.asked) == [watch]


def test_a_broker_has_so_many_watches_at_most(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "ENDS_OF_A_WATCH", 2)
    monkeypatch.setattr(log_ends, "WATCHES_OF_A_BROKER", 3)
    consumer = Consumer(SLOTS)
    broker.read(consumer)
    assert not broker.wait(consumer)
    assert [len(watch.ends) for watch in broker.ends.watches] == [2, 2, 2]
    assert len(broker.asked) == 3
    assert ENDS_OF_A_WATCH * WATCHES_OF_A_BROKER == 10_000


class Waits(RuleBasedStateMachine):
    """Records, leaders, sessions and watches come and go while consumers wait."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.consumers = [Consumer(SLOTS[:1]), Consumer(SLOTS[:3]), Consumer(SLOTS), Consumer(SLOTS[5:])]
        for consumer in self.consumers:
            self.broker.read(consumer)

    @rule(number=st.integers(0, 3))
    def polls(self, number: int) -> None:
        consumer = self.consumers[number]
        if not consumer.stands and not self.broker.wait(consumer):
            self.broker.read(consumer)

    @rule(number=st.integers(0, 3))
    def is_over(self, number: int) -> None:
        self.broker._gone([self.consumers[number]])

    @rule(slot=st.sampled_from(SLOTS), end=st.integers(0, 9), start=st.integers(0, 5), is_led=st.booleans())
    def changes(self, slot: NamedSlot, end: int, start: int, is_led: bool) -> None:
        self.broker.logs[slot] = Log(end, min(start, end), is_led)

    @rule()
    def forgets_sessions(self) -> None:
        self.broker.peer.sessions = FetchSessions()

    @rule(seconds=st.sampled_from([1.0, UNUSED_S]))
    def passes(self, seconds: float) -> None:
        self.broker.now += seconds

    @rule()
    def fails(self) -> None:
        for watch in list(self.broker.asked):
            for consumer in self.broker.fail(watch):
                self.broker.read(consumer)
        assert not any(consumer.stands for consumer in self.consumers)

    @rule()
    def answers(self) -> None:
        """Twice: an answer may say only that the session is gone."""
        for watch in list(self.broker.asked):
            for _ in range(2):
                if watch in self.broker.asked:
                    for consumer in self.broker.answer(watch):
                        self.broker.read(consumer)
        for consumer in self.consumers:
            for slot in consumer.slots if consumer.stands else ():
                log, offset = self.broker.logs[slot], consumer.wanted[slot].offset
                assert log.result(offset) == Result(consumer.marks[slot]), "there is news, and it waits"

    @invariant()
    def who_waits_is_watched_for(self) -> None:
        ends = self.broker.ends.ends
        watched = {slot: end for watch in self.broker.asked for slot, end in watch.ends.items()}
        assert watched == ends
        for consumer in self.consumers:
            if consumer.stands:
                assert [ends.get(slot) for slot in consumer.slots] == consumer.stands
                assert all(consumer in end.waiting for end in consumer.stands)
        held = {consumer for end in ends.values() for consumer in end.waiting}
        assert held == {consumer for consumer in self.consumers if consumer.stands}

    def teardown(self) -> None:
        """Once all is quiet, all wait."""
        for slot in SLOTS:
            self.broker.logs[slot].is_led = True
        for _ in range(4):
            self.answers()
            for number in range(len(self.consumers)):
                self.polls(number)
        assert all(consumer.stands for consumer in self.consumers)


TestWaits = Waits.TestCase
TestWaits.settings = settings(
    max_examples=60 * REPEAT, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
