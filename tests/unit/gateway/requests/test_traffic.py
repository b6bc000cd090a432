"""Traffic of clients: which combinations a request counts for, with which records, and what is an error."""

from datetime import UTC, datetime
from inspect import isgenerator

import pytest

from mesh.traffic.counting import Combination, Counts, Tally
from mesh.traffic.sketches import LatencySketch
from services.gateway.authentication.principal import Principal
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.plan import Outcome, RawResponse, Request, Unreachable
from services.gateway.requests.records import fetch, produce
from services.gateway.requests.table import HANDLERS
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.batches import MOST_COUNTED, count_records
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_response
from services.gateway.wire.messages import ProduceRequest
from services.gateway.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records import fetching, test_produce
from tests.unit.gateway.wire.records import batch

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
APPLES = Combination("shop", "", "apples", "rules/r0", "c1", "Produce")
BANANAS = APPLES._replace(topic="bananas", rule="rules/r1", cluster="c2")


HEARTBEAT = HeartbeatRequest("pickers", 3, "m")
WELL = RawResponse(memoryview(encode_response(HeartbeatResponse(), 4, 1)), 9, 4)


class Watch:
    """A clock that goes on by a millisecond whenever somebody looks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


class Told:
    """A gateway whose traffic is counted."""

    def __init__(self, session: Session | None = None) -> None:
        self.counts = Counts(LatencySketch, NOON)
        memory = Memory(traffic=ClientTraffic(self.counts, Watch()))
        session = session or Session("127.0.0.1:5")
        self.world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=2, memory=memory, session=session)

    def produce(self, *places: tuple[str, int, bytes | bytearray], acks: int = -1) -> Playbook:
        topics: dict[str, TopicProduceData] = {}
        for topic, partition, records in places:
            topics.setdefault(topic, TopicProduceData(topic)).partition_data.append(
                PartitionProduceData(partition, records)
            )
        message = ProduceRequest(None, acks, 30_000, list(topics.values()))
        return Playbook(produce.handle, message, test_produce.VERSION, self.world.view(), "shop")

    def fetch(self, *topics: str) -> Playbook:
        return Playbook(fetch.handle, fetching.request(*topics), 12, self.world.view(), "shop")

    @property
    def tallies(self) -> dict[Combination, Tally]:
        return dict(self.counts.take(NOON).tallies)


def figures(tally: Tally) -> tuple[int, int, int, int]:
    return (tally.records, tally.bytes, tally.calls, tally.errors)


def test_a_produce_counts_the_records_of_its_batches_for_who_asked_and_where_they_went() -> None:
    told = Told()
    first, second = batch(count=3), batch(b"more records", count=2)
    told.produce(("apples", 0, first), ("apples", 1, second)).answered(
        test_produce.raw(("apples", 0, 0), ("apples", 1, 0))
    )
    assert {who: figures(tally) for who, tally in told.tallies.items()} == {APPLES: (5, len(first) + len(second), 1, 0)}


def test_a_produce_of_two_clusters_is_a_call_of_each_topic() -> None:
    told = Told()
    book = told.produce(("apples", 0, batch(count=3)), ("bananas", 0, batch(count=4)))
    book.answered(test_produce.raw(("apples", 0, 0)), test_produce.raw(("bananas", 0, 0)))
    size = len(batch())
    assert {who: figures(tally) for who, tally in told.tallies.items()} == {
        APPLES: (3, size, 1, 0),
        BANANAS: (4, size, 1, 0),
    }


def test_what_was_refused_is_an_error_and_moved_nothing() -> None:
    told = Told()
    book = told.produce(("apples", 0, batch(count=3)), ("apples", 1, batch(count=4)))
    book.answered(test_produce.raw(("apples", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER), ("apples", 1, 0)))
    assert figures(told.tallies[APPLES]) == (4, len(batch()), 1, 1)


def test_a_repeated_batch_that_its_broker_has_already_counts_as_taken() -> None:
    told = Told()
    taken = batch(count=3, producer_id=7, epoch=0, sequence=0)
    told.produce(("apples", 0, taken)).answered(Unreachable("c1", "gone"))
    answer = test_produce.raw(("apples", 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    told.produce(("apples", 0, taken)).answered(answer)
    assert figures(told.tallies[APPLES]) == (3, len(taken), 2, 1)


def test_a_topic_that_no_rule_matches_is_an_error_of_no_cluster() -> None:
    told = Told()
    assert told.produce(("cherries", 0, batch())).answer.responses
    assert {who: figures(tally) for who, tally in told.tallies.items()} == {
        APPLES._replace(topic="cherries", rule="", cluster=""): (0, 0, 1, 1)
    }


def test_a_fetch_counts_for_the_topics_that_it_has_brought_something_of() -> None:
    told = Told()
    records = bytes(batch(count=6))
    book = told.fetch("apples", "bananas")
    book.answered(fetching.raw(fetching.data("apples", records)), fetching.raw(fetching.data("bananas")))
    assert {who: figures(tally) for who, tally in told.tallies.items()} == {
        APPLES._replace(api="Fetch"): (6, len(records), 1, 0)
    }


def test_a_fetch_that_brings_nothing_is_a_call_about_no_topic() -> None:
    told = Told()
    told.fetch("apples").answered(fetching.raw(fetching.data("apples")))
    assert {who: figures(tally) for who, tally in told.tallies.items()} == {
        Combination("shop", api="Fetch"): (0, 0, 1, 0)
    }


def test_a_partition_that_cannot_be_read_is_an_error_of_its_topic() -> None:
    told = Told()
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    told.fetch("apples").answered(fetching.raw(fetching.data("apples", error=error)))
    assert figures(told.tallies[APPLES._replace(api="Fetch")]) == (0, 0, 1, 1)


@pytest.mark.parametrize(("outcome", "errors"), [(WELL, 0), (Unreachable("c2", "down"), 1)])
def test_any_other_call_counts_for_the_clusters_that_it_asks(outcome: Outcome, errors: int) -> None:
    told = Told()
    told.world.memory.group_homes.put("pickers", "c2", told.world.now)
    book = Playbook(HANDLERS[ApiKey.HEARTBEAT].plan, HEARTBEAT, 4, told.world.view(), "shop")
    book.answered(outcome)
    ((who, tally),) = told.tallies.items()
    assert who == Combination("shop", cluster="c2", api="Heartbeat")
    assert figures(tally) == (0, 0, 1, errors)


def test_a_call_that_its_client_does_not_wait_for_is_not_counted() -> None:
    told = Told()
    told.world.memory.group_homes.put("pickers", "c2", told.world.now)
    Playbook(HANDLERS[ApiKey.HEARTBEAT].plan, HEARTBEAT, 4, told.world.view()).close()
    assert told.tallies == {}


def test_a_call_takes_from_its_start_to_its_answer() -> None:
    told = Told()
    told.produce(("apples", 0, batch())).answered(test_produce.raw(("apples", 0, 0)))
    assert list(told.tallies[APPLES].recent) == [pytest.approx(1.0)]


def proved(name: str) -> Session:
    session = Session()
    session.prove(Principal(name, "PLAIN"))
    return session


@pytest.mark.parametrize(
    ("session", "principal"),
    [
        (Session(), ""),
        (proved("CN=shop"), "User:CN=shop"),
        (proved("ann"), "User:ann"),
    ],
)
def test_the_principal_is_who_the_client_has_shown_to_be(session: Session, principal: str) -> None:
    told = Told(session)
    told.produce(("apples", 0, batch())).answered(test_produce.raw(("apples", 0, 0)))
    assert list(told.tallies) == [APPLES._replace(principal=principal)]


def test_where_no_traffic_is_told_a_plan_is_the_handlers_own() -> None:
    row = HANDLERS[ApiKey.HEARTBEAT]
    request = Request(RequestHeader(ApiKey.HEARTBEAT, 4, 7, "shop", 0), memoryview(b""))
    plan = row.plan(request, World({"c1": []}).view())
    assert isgenerator(plan)
    assert plan.gi_code is row.handle.__code__


# --- records of batches ------------------------------------------------------------------------------------------


def test_records_are_counted_by_the_headers_of_their_batches() -> None:
    data = batch(count=3) + batch(b"others", count=40)
    assert count_records(data, 0, len(data)) == 43


def test_markers_of_transactions_are_no_records() -> None:
    data = batch(count=3) + batch(attributes=0x30)
    assert count_records(data, 0, len(data)) == 3


def test_a_batch_that_is_cut_short_is_not_counted() -> None:
    data = batch(count=3) + batch(count=40)[:-1]
    assert count_records(data, 0, len(data)) == 3


@pytest.mark.parametrize("data", [b"", bytes(100), b"\xff" * 100, bytes(batch())[:60]])
def test_what_is_no_batch_has_no_records(data: bytes) -> None:
    assert count_records(data, 0, len(data)) == 0


def test_beyond_many_batches_the_rest_is_taken_to_be_like_them() -> None:
    data = batch(count=2) * (2 * MOST_COUNTED)
    assert count_records(data, 0, len(data)) == 4 * MOST_COUNTED
