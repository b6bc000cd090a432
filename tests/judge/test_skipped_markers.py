"""Plain Kafka answers that a transaction ended, and writes no marker where a partition has no leader (KAFKA-20734).

The judge names that anomaly by the word of the broker, and still finds everything else.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from judge.anomalies import judged
from judge.clients.own_consumer import LATEST, OwnConsumer
from judge.clients.own_producer import TRANSACTION, OwnProducer
from judge.clients.roads import Roads
from judge.history import Guarantee, History, Kind, Operation, Outcome, Place, Poll, Send, history
from judge.protocol.apis import CREATE_TOPICS, FIND_COORDINATOR
from judge.protocol.connection import Connection
from judge.protocol.errors import check
from judge.report import Report
from judge.systems.kafka import KafkaCluster
from judge.systems.skipped_markers import Skipped, SkippedMarkers
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_unless

ALONE = 3
"""The only broker that holds the records; another one coordinates their transactions."""
LOG = Place("of-one-broker", 0)
WITHIN_S = 90.0


@pytest.fixture(scope="module")
def cluster(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with ExitStack() as stack:
        found = KafkaCluster("c", tmp_path_factory.mktemp("skipped"), free_block(9), 3)
        stack.callback(found.stop)
        found.start()
        with Connection(found.doors[0], "test", 60.0) as connection:
            assigned = [{"partition": LOG.partition, "brokers": [ALONE]}]
            topic = {"name": LOG.topic, "partitions": -1, "replication": -1, "assignments": assigned}
            topic["configs"] = [{"name": "min.insync.replicas", "value": "1"}]
            told = connection.request(CREATE_TOPICS, {"topics": [topic], "timeout_ms": 60_000, "validate_only": False})
            check(told["topics"][0]["error"], "CreateTopics")
        yield found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("commits", [True, False], ids=["a commit", "an abort"])
def test_the_next_transaction_decides_about_records_whose_marker_kafka_skipped(
    commits: bool, cluster: KafkaCluster
) -> None:
    heard = Heard()
    cluster.markers.tell = heard
    roads = Roads(cluster.doors[:2], "test", random.Random(0))
    producer = OwnProducer(roads, Guarantee.TRANSACTIONAL, _of_another_coordinator(roads))

    def lose_the_leader() -> None:
        cluster.brokers[ALONE - 1].kill()
        wait_unless(lambda: "it has a leader" if roads.knows(_looked_up(roads)) else None, "no leader", WITHIN_S)

    skipped, deciding = (1, 2) if commits else (3, 4)
    first = producer.transaction([(LOG, skipped)], commit=commits, between=lose_the_leader)
    assert first.outcome is (Outcome.OK if commits else Outcome.FAIL) and first.note in ("", "meant to abort")
    assert heard.came.wait(WITHIN_S), "the broker did not say that it skips a marker"
    assert heard.last.transactional_id == producer.transactional_id and heard.last.places == (LOG,)
    cluster.brokers[ALONE - 1].start()
    wait_unless(lambda: None if roads.knows(_looked_up(roads)) else "no leader", "a leader", WITHIN_S)
    second = producer.transaction([(LOG, deciding)], commit=not commits, between=lambda: None)
    assert second.outcome is (Outcome.FAIL if commits else Outcome.OK)

    told = _told([first.sends, second.sends], commits, _swept(roads))
    found = [each for each in judged(told) if each.why]
    assert found, "the records took the outcome of their own transaction"
    assert not Report(told, tuple(judged(told))).bad
    without_a_word = replace(told, operations=tuple(each for each in told.operations if each.kind is not Kind.UNMARKED))
    rules = {each.rule for each in judged(without_a_word) if not each.allowed}
    assert ("unseen" if commits else "G1a") in rules
    producer.close()


class Heard:
    """The last marker that a broker said it skips."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.last = Skipped("", "", ())

    def __call__(self, skipped: Skipped) -> None:
        self.last = skipped
        self.came.set()


@pytest.mark.timeout(300)
def test_a_broker_is_heard_until_it_has_stopped(cluster: KafkaCluster) -> None:
    """A broker that hands back its partitions in an orderly stop skips markers then."""
    stopped = threading.Event()
    broker = cluster.brokers[ALONE - 1]

    def hears(line: str) -> None:
        if "TxnMarkerSenderThread" in line and "Stopped" in line:
            stopped.set()

    heard, broker.hears = broker.hears, hears
    broker.stop()
    try:
        assert stopped.wait(WITHIN_S), f"the last lines of the broker are missing, see {broker.log}"
    finally:
        broker.hears = heard
        broker.start()


def test_the_words_of_a_broker_are_read() -> None:
    heard = Heard()
    SkippedMarkers(heard).hear(
        "c-1",
        "INFO TransactionMarkerChannelManager [Transaction Marker Channel Manager 1]: Couldn't find leader endpoint "
        "for partitions HashSet(a-b-0, c-12) while trying to send transaction markers for judge-1-a, these partitions "
        "are likely deleted already and hence can be skipped",
    )
    assert heard.last == Skipped("c-1", "judge-1-a", (Place("a-b", 0), Place("c", 12)))


def _of_another_coordinator(roads: Roads) -> str:
    for number in range(100):
        name = f"id-{number}-{random.getrandbits(32):x}"
        told: list[dict[str, int]] = []

        def answered(name: str = name, told: list[dict[str, int]] = told) -> str | None:
            told[:] = roads.to_any(FIND_COORDINATOR, {"key_type": TRANSACTION, "keys": [name]})["coordinators"]
            return f"error {told[0]['error']}" if told[0]["error"] else None

        wait_unless(answered, f"a coordinator of {name}", WITHIN_S)
        if told[0]["node_id"] != ALONE:
            return name
    raise AssertionError("one broker coordinates all")


def _looked_up(roads: Roads) -> Place:
    roads.forget()
    return LOG


def _swept(roads: Roads) -> tuple[Poll, ...]:
    reader = OwnConsumer(roads)
    reader.assign([LOG])
    end = reader.bound(LOG, LATEST, 0)
    polls = [Poll(LOG, ())]

    def unread() -> str | None:
        polls.extend(reader.poll().polls)
        return None if reader.positions[LOG] >= end else f"read to {reader.positions[LOG]} of {end}"

    wait_unless(unread, f"{LOG} is read to its end", WITHIN_S)
    return tuple(polls)


def _told(sends: list[tuple[Send, ...]], commits: bool, polls: tuple[Poll, ...]) -> History:
    def operation(index: int, kind: Kind, outcome: Outcome, steps: tuple[Send | Poll, ...], note: str) -> Operation:
        return Operation(index, "transactor", kind, outcome, index * 10.0, index * 10.0 + 5, steps, note=note)

    ends = [(Outcome.OK, ""), (Outcome.FAIL, "meant to abort")]
    first, second = ends if commits else reversed(ends)
    return history(
        [
            operation(0, Kind.TXN, first[0], sends[0], first[1]),
            operation(1, Kind.UNMARKED, Outcome.OK, (Poll(LOG, ()),), "transactor"),
            operation(2, Kind.TXN, second[0], sends[1], second[1]),
            operation(3, Kind.SWEEP, Outcome.OK, polls, ""),
        ]
    )
