"""What a gateway tells of its clients: one line for connections of one kind, and what they use together."""

from __future__ import annotations

from mesh.rpc.channels import MAX_MESSAGE_BYTES
from services.gateway import metrics
from services.gateway.downstream.client_report import MAX_NAMES, client_report
from services.gateway.requests.memory import Session
from services.gateway.requests.uses import GROUPS_REMEMBERED, IDS_REMEMBERED, TOPICS_REMEMBERED, Names
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode


def session(client_id: str, *topics: str, address: str = "10.0.0.7") -> Session:
    made = Session(client_id=client_id, software_name="librdkafka", software_version="2.10.0", address=address)
    made.uses.produced.note_all(topics)
    return made


def test_connections_of_one_client_are_one_line_with_all_that_they_use() -> None:
    consumer, coordinator = session("shop", "apples", "pears"), session("shop")
    coordinator.uses.groups.note("shoppers")
    coordinator.uses.transactional_ids.note("till-1")

    report = client_report([consumer, coordinator, session("audit", "apples")])

    audit, shop = report.clients
    assert report.total == 3
    assert (shop.client_id, shop.software, shop.host, shop.connections) == ("shop", "librdkafka/2.10.0", "10.0.0.7", 2)
    assert (list(shop.topics), list(shop.groups), list(shop.transactional_ids)) == (
        ["apples", "pears"], ["shoppers"], ["till-1"],
    )  # fmt: skip
    assert (audit.principal, list(audit.topics)) == ("User:ANONYMOUS", ["apples"])


def answered(made: Session, key: int, version: int, requests: int) -> None:
    metrics.answered_of(made.calls, key, version).total += requests


def test_a_line_has_what_its_connections_do_and_since_when() -> None:
    producer, consumer = session("shop", "apples"), session("shop")
    consumer.uses.consumed.note_all(["apples", "pears"])
    for made, since in ((producer, 100.0), (consumer, 200.0)):
        made.listener = "internal"
        made.calls.begin(since)
    answered(producer, ApiKey.PRODUCE, 2, 10)
    answered(producer, ApiKey.PRODUCE, 9, 30)
    answered(consumer, ApiKey.FETCH, 12, 5)
    producer.calls.bytes_in.total += 4000
    metrics.count_error(producer.calls, ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for made in (producer, consumer):
        made.calls.measure(210.0)
    answered(producer, ApiKey.PRODUCE, 9, 20)
    for made in (producer, consumer):
        made.calls.measure(220.0)

    (shop,) = client_report([producer, consumer]).clients

    assert (shop.listener, shop.since_time.seconds, shop.last_time.seconds) == ("internal", 100, 220)
    assert [shop.topics[place] for place in shop.produced] == ["apples"]
    assert [shop.topics[place] for place in shop.consumed] == ["apples", "pears"]
    assert (shop.rates.requests, shop.rates.bytes_in) == (2.0, 0.0)
    fetch, produce = shop.apis
    assert (fetch.api, fetch.lowest_version, fetch.highest_version, fetch.removed_in) == ("Fetch", 12, 12, "")
    assert (produce.lowest_version, produce.highest_version, produce.requests) == (2, 9, 60)
    assert produce.removed_in == "4.0"
    assert [(each.error, each.answers) for each in produce.errors] == [("NOT_LEADER_OR_FOLLOWER", 1)]


def test_the_idlest_are_left_out_where_there_are_too_many() -> None:
    idle, *others = [session(f"client-{number:04}") for number in range(1001)]
    idle.calls.begin(1.0)
    for each in others:
        each.calls.begin(2.0)
    report = client_report([idle, *others])
    assert "client-0000" not in {each.client_id for each in report.clients}
    assert (len(report.clients), report.kinds) == (1000, 1001)


def test_equal_clients_make_equal_reports_in_whatever_order_they_came() -> None:
    one, other = session("a", "x", "y"), session("b")
    assert client_report([one, other]) == client_report([other, one])


def test_the_names_that_came_last_are_remembered() -> None:
    names = Names(2)
    names.note_all(["apples", "pears", "apples", "plums"])
    assert list(names) == ["pears", "plums"]


def test_a_report_has_a_bound_however_many_topics_there_are() -> None:
    each = [f"topic-{number}" for number in range(TOPICS_REMEMBERED + 10)]
    report = client_report(session(f"client-{number:04}", *each) for number in range(1100))
    assert (len(report.clients), report.kinds, report.total) == (1000, 1100, 1100)
    assert sum(len(client.topics) for client in report.clients) == MAX_NAMES


def test_a_report_fits_into_a_message_to_the_router_however_long_names_are() -> None:
    """A router ends the stream of a gateway whose message is too large, and would do so again at each report."""

    def wordy(number: int) -> Session:
        made = Session(client_id=f"{number:04}" + "c" * 32_000, software_name="s" * 1000, address="10.0.0.7")
        made.uses.produced.note_all(f"{each:03}" + "t" * 100_000 for each in range(TOPICS_REMEMBERED))
        made.uses.groups.note_all(f"{each:02}" + "g" * 100_000 for each in range(GROUPS_REMEMBERED))
        made.uses.transactional_ids.note_all(f"{each:02}" + "i" * 100_000 for each in range(IDS_REMEMBERED))
        return made

    report = client_report(wordy(number) for number in range(10))

    assert len(report.clients) == 10
    assert {len(client.topics) for client in report.clients} == {TOPICS_REMEMBERED}
    assert report.ByteSize() * 100 < MAX_MESSAGE_BYTES
