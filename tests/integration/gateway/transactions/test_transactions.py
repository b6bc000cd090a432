"""Transactions on real clusters: Java speaks the second protocol (KIP-890), librdkafka the first."""

import contextlib
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from services.gateway.requests.plan import Command
from services.gateway.requests.transactions import end, sweep
from services.gateway.wire.errors import ErrorCode
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.older_kafka import OlderKafka
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.gateways import gateways_side_by_side
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import (
    ANSWER_S,
    Copier,
    JavaTransactions,
    LibrdkafkaTransacting,
    Open,
    Transacting,
    TransactionError,
    committed_offset,
    read_committed,
)

TRANSACTIONS = 24
COPIES = 500


@dataclass(frozen=True, slots=True)
class Orchard:
    """apples live on c1, bananas on c2; the other cluster has a topic of that name too, should they move."""

    apples: str
    bananas: str
    c1: KafkaCluster
    c2: KafkaCluster

    def committed(self) -> tuple[list[str], list[str]]:
        """apples on c1, bananas on c2."""
        return read_committed(self.c1.bootstrap, self.apples), read_committed(self.c2.bootstrap, self.bananas)


@pytest.fixture
def orchard(rules: Rules, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic) -> Orchard:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    made = Orchard(f"{name}-apples", f"{name}-bananas", kafka_c1, kafka_c2)
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, made.apples)
        create_topic(cluster, made.bananas)
    rules.to("c1", [made.apples])
    rules.to("c2", [made.bananas])
    return made


def commit(producer: Transacting, topic: str, *values: str) -> None:
    producer.begin()
    producer.send(topic, *values)
    producer.commit()


def test_commits_are_read_and_aborts_are_not(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    producer = open_producer(start_gateway(rules.table).address, f"{orchard.apples}-id")
    producer.init()
    commit(producer, orchard.apples, "one", "two")
    producer.begin()
    producer.send(orchard.apples, "never")
    assert producer.flush() == []
    producer.abort()
    commit(producer, orchard.apples, "three")
    producer.close()
    assert orchard.committed() == (["one", "three", "two"], [])


def test_offsets_count_with_the_records_wherever_their_topics_live(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    address = start_gateway(rules.table).address
    group = f"{orchard.apples}-group"
    producer = open_producer(address, f"{orchard.apples}-id")
    producer.init()
    for topic, offset in ((orchard.apples, 5), (orchard.bananas, 7)):
        producer.begin()
        producer.send(orchard.apples, f"made of {offset} others")
        producer.offset(group, topic, offset)
        producer.commit()
    producer.begin()
    producer.offset(group, orchard.apples, 50)
    producer.offset(group, orchard.bananas, 70)
    producer.abort()
    producer.close()
    assert orchard.committed() == (["made of 5 others", "made of 7 others"], [])
    assert committed_offset(address, group, orchard.apples) == 5
    assert committed_offset(address, group, orchard.bananas) == 7


def test_transactions_over_two_clusters_through_two_gateways(
    orchard: Orchard, rules: Rules, tmp_path: Path, jvm: JavaTransactions
) -> None:
    """Each connection of a producer may lead to another gateway."""
    name = orchard.apples
    with gateways_side_by_side(2, tmp_path, rules.table) as address:
        of_java = commit_some_over_both(orchard, jvm.open(address, f"{name}-java"), "java")
        of_librdkafka = commit_some_over_both(
            orchard, LibrdkafkaTransacting(address, f"{name}-librdkafka"), "librdkafka"
        )
    assert orchard.committed() == (of_java[0] + of_librdkafka[0], of_java[1] + of_librdkafka[1])


def commit_some_over_both(orchard: Orchard, producer: Transacting, name: str) -> tuple[list[str], list[str]]:
    """Every fourth transaction is aborted, every third has nothing on c2; gives what was committed on each cluster."""
    producer.init()
    apples: list[str] = []
    bananas: list[str] = []
    for n in range(TRANSACTIONS):
        producer.begin()
        values = [f"{name}-{n:02}-{i}" for i in range(3)]
        producer.send(orchard.apples, *values)
        if n % 3:
            producer.send(orchard.bananas, *values)
        assert producer.flush() == []
        if n % 4 == 3:
            producer.abort()
        else:
            producer.commit()
            apples += values
            bananas += values if n % 3 else []
    producer.close()
    return apples, bananas


def test_a_producer_that_was_replaced_writes_nowhere_any_more(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    address = start_gateway(rules.table).address
    old = open_producer(address, f"{orchard.apples}-id")
    old.init()
    old.begin()
    old.send(orchard.bananas, "of the old one")
    assert old.flush() == []
    new = LibrdkafkaTransacting(address, f"{orchard.apples}-id")
    new.init()
    with pytest.raises(TransactionError) as fenced:
        old.commit()
    assert fenced.value.fatal
    commit(new, orchard.bananas, "of the new one")
    new.close()
    old.close()
    assert orchard.committed() == ([], ["of the new one"])


def test_a_gateway_that_was_not_there_at_the_beginning_commits(
    orchard: Orchard, rules: Rules, tmp_path: Path, open_producer: Open
) -> None:
    gateway = RunningGateway(tmp_path / "first", rules.table)
    producer = open_producer(gateway.address, f"{orchard.apples}-id")
    producer.init()
    producer.begin()
    producer.send(orchard.apples, "half")
    producer.send(orchard.bananas, "other half")
    assert producer.flush() == []
    gateway.close()
    second = RunningGateway(tmp_path / "second", rules.table, listen=gateway.address)
    try:
        producer.commit()
        producer.begin()
        producer.send(orchard.bananas, "on one alone")
        producer.commit()
        producer.close()
    finally:
        second.close()
    assert orchard.committed() == (["half"], ["on one alone", "other half"])


def test_a_gateway_that_dies_after_the_decision_leaves_it_to_any_other(
    orchard: Orchard, rules: Rules, tmp_path: Path, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose other clusters never hear of the commit stands for it; its client finds none until all is done."""

    def not_now(*_: object) -> Generator[Command, object, ErrorCode]:
        yield from ()
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    dying = RunningGateway(tmp_path / "first", rules.table)
    producer = open_producer(dying.address, f"{orchard.apples}-id")
    producer.init()
    producer.begin()
    producer.send(orchard.apples, "half")
    producer.send(orchard.bananas, "other half")
    assert producer.flush() == []
    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as elsewhere:
        patched.setattr(end, "commit_parts", not_now)
        patched.setattr(end, "finish_all", not_now)
        patched.setattr(sweep, "finish", not_now)
        committing = elsewhere.submit(producer.commit)
        wait_until(lambda: read_committed(orchard.c1.bootstrap, orchard.apples) == ["half"], "home has committed")
        dying.close()
        assert read_committed(orchard.c2.bootstrap, orchard.bananas, left_open=True) == []
        patched.undo()
        other = RunningGateway(tmp_path / "second", rules.table)
        wait_until(lambda: orchard.committed() == (["half"], ["other half"]), "the other gateway has finished it")
        other.close()
        again = RunningGateway(tmp_path / "third", rules.table, listen=dying.address)
        with contextlib.suppress(TransactionError):  # one that has waited for too long meanwhile
            committing.result()
        producer.close()
        again.close()
    assert orchard.committed() == (["half"], ["other half"])


def test_a_transactional_id_moves_while_a_transaction_is_open(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    gateway = start_gateway(rules.transactions(orchard.apples, "c1"))
    producer = open_producer(gateway.address, f"{orchard.apples}-id")
    producer.init()
    producer.begin()
    producer.send(orchard.apples, "begun on c1")
    assert producer.flush() == []
    gateway.move(rules.transactions(orchard.apples, "c2"))
    producer.commit()
    try:
        commit(producer, orchard.bananas, "on c2")
    except TransactionError as moved:  # with the first protocol the producer hears of it now
        assert not moved.fatal
        producer.abort()
        commit(producer, orchard.bananas, "on c2")
    producer.close()
    assert orchard.committed() == (["begun on c1"], ["on c2"])


def test_a_transactional_id_that_moved_between_transactions_goes_on_after_one_abort(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    gateway = start_gateway(rules.transactions(orchard.apples, "c1"))
    producer = open_producer(gateway.address, f"{orchard.apples}-id")
    producer.init()
    commit(producer, orchard.apples, "on c1")
    gateway.move(rules.transactions(orchard.apples, "c2"))
    with pytest.raises(TransactionError) as moved:
        commit(producer, orchard.bananas, "not yet")
    assert not moved.value.fatal
    producer.abort()
    commit(producer, orchard.bananas, "on c2")
    producer.close()
    assert orchard.committed() == (["on c1"], ["on c2"])


def test_a_topic_moves_while_a_transaction_is_open(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, open_producer: Open
) -> None:
    gateway = start_gateway(rules.table)
    producer = open_producer(gateway.address, f"{orchard.apples}-id")
    producer.init()
    producer.begin()
    producer.send(orchard.apples, "committed after the move")
    assert producer.flush() == []
    gateway.move(rules.to("c2", [orchard.apples]))
    producer.commit()
    commit(producer, orchard.apples, "on the new cluster")
    producer.close()
    assert orchard.committed() == (["committed after the move"], [])
    assert read_committed(orchard.c2.bootstrap, orchard.apples) == ["on the new cluster"]


@pytest.mark.soak
def test_what_a_copier_copies_that_is_killed_counts_exactly_once(
    orchard: Orchard, rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic
) -> None:
    copies = f"{orchard.apples}-copies"
    create_topic(orchard.c1, copies)
    address = start_gateway(rules.to("c1", [copies])).address
    values = [str(n) for n in range(COPIES)]
    produce_one_partition(address, orchard.apples, values)
    for _ in range(2):
        with Copier(address, orchard.apples, copies) as copier:
            copier.wait_for_commits(3)
    with Copier(address, orchard.apples, copies) as copier:
        copier.wait_for_the_end()
    assert read_committed(orchard.c1.bootstrap, copies) == sorted(values)


def produce_one_partition(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, value, partition=0)
    assert producer.flush(ANSWER_S) == 0


def test_a_cluster_of_2_8_has_transactions_of_the_first_protocol_for_itself(
    kafka_c1: KafkaCluster,
    older_kafka: OlderKafka,
    create_topic: CreateTopic,
    start_gateway: StartGateway,
    open_producer: Open,
) -> None:
    today, older = (f"transactions-{uuid.uuid4().hex[:8]}-{name}" for name in ("today", "older"))
    create_topic(kafka_c1, today)
    create_topic(older_kafka, older)
    rules = Rules({"today": kafka_c1.bootstrap, "2.8": older_kafka.bootstrap})
    rules.to("today", [today])
    rules.to("2.8", [older])
    rules.transactions(today, "today")
    address = start_gateway(rules.transactions(older, "2.8")).address
    for topic, foreign in ((older, today), (today, older)):
        producer = open_producer(address, f"{topic}-id")
        producer.init()
        commit(producer, topic, "one", "two")
        producer.begin()
        producer.send(foreign, "it can't tell what it knows of a transactional id, so nothing spans to it")
        assert len(producer.flush()) == 1
        producer.abort()
        commit(producer, topic, "three")
        producer.close()
    assert read_committed(kafka_c1.bootstrap, today) == ["one", "three", "two"]
    assert read_committed(older_kafka.bootstrap, older) == ["one", "three", "two"]
