"""Transactional producers of Java and librdkafka go on after a fail-over, and readers see nothing that was aborted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from mesh.rpc import standbys
from tests.e2e.test_fail_over import WITHIN_S, doomed, fail_over, mesh_of, read_all, shown_when, stand_by
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import until
from tests.integration.gateway.transacting import JavaTransactions, LibrdkafkaTransacting, Open, TransactionError

__all__ = ["doomed"]

TRANSACTIONS = 20
RECORDS = 3
GO_ON_WITHIN_S = 120.0


@pytest.fixture
def java_transactions(kafka_jars: None) -> Iterator[JavaTransactions]:
    jvm = JavaTransactions()
    yield jvm
    jvm.close()


class Transactor:
    """An application that writes one transaction after another. After an error it aborts, or takes a new producer."""

    def __init__(self, name: str, open_: Open, bootstrap: str, topic: str) -> None:
        self.committed: list[list[str]] = []
        self.aborted: list[list[str]] = []
        self.in_doubt: list[list[str]] = []
        """The commit ended in an error."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(name, open_, bootstrap, topic))
        self._thread.start()

    def _write(self, name: str, open_: Open, bootstrap: str, topic: str) -> None:
        producer = None
        for number in count():
            if self._stop.is_set():
                break
            values = [f"{name}-{number}-{each}" for each in range(RECORDS)]
            commits = False
            try:
                if producer is None:
                    producer = open_(bootstrap, name)
                    producer.init()
                producer.begin()
                producer.send(topic, *values)
                if producer.flush():
                    producer.abort()
                    self.aborted.append(values)
                    continue
                commits = True
                producer.commit()
                self.committed.append(values)
            except TransactionError as error:
                print(f"{time.time():.1f} {name}: {error}")
                (self.in_doubt if commits else self.aborted).append(values)
                try:
                    if producer is not None and not error.fatal and not commits:
                        producer.abort()
                        continue
                except TransactionError as later:
                    print(f"{time.time():.1f} {name}, aborting: {later}")
                if producer is not None:
                    producer.close()
                producer = None
        if producer is not None:
            producer.close()

    async def goes_on(self, transactions: int, within_s: float = WITHIN_S) -> None:
        before = len(self.committed)
        await until(lambda: len(self.committed) >= before + transactions, "transactions are committed", within_s)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)


@pytest.mark.timeout(500)
async def test_transactions_go_on_after_a_fail_over_and_each_is_there_as_a_whole_or_counted(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    java_transactions: JavaTransactions,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("paid")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        writers = [
            Transactor(f"{topic}.java", java_transactions.open, first, topic),
            Transactor(f"{topic}.librdkafka", LibrdkafkaTransacting, second, topic),
        ]
        try:
            await stand_by(mesh, topic)
            await shown_when(mesh, lambda found: any(each.HasField("lag") for each in found.topics))
            for writer in writers:
                await writer.goes_on(TRANSACTIONS)
            doomed.kill()
            died = time.monotonic()
            before = [len(writer.committed) for writer in writers]
            standby = await fail_over(mesh)
            for writer in writers:
                await writer.goes_on(1, GO_ON_WITHIN_S)
                print(f"went on after {time.monotonic() - died:.1f} s")
            for writer in writers:
                await writer.goes_on(TRANSACTIONS, GO_ON_WITHIN_S)
        finally:
            for writer in writers:
                await writer.end()
        there = {*await asyncio.to_thread(read_all, first, topic)}
    [failed_over] = standby.topics
    early = [values for writer, end in zip(writers, before, strict=True) for values in writer.committed[:end]]
    late = [values for writer, end in zip(writers, before, strict=True) for values in writer.committed[end:]]
    assert all(there.issuperset(values) for values in late)
    lost = [value for values in early for value in values if value not in there]
    said = sum(each.lost_records for each in failed_over.partitions)
    print(f"{len(lost)} lost, {said} said, {[len(writer.in_doubt) for writer in writers]} in doubt")
    assert {each.loss_count for each in failed_over.partitions} <= {
        standbys.LOSS_COUNT_EXACT,
        standbys.LOSS_COUNT_AT_MOST,
    }
    assert len(lost) <= said
    for writer in writers:
        for values in writer.aborted:
            assert there.isdisjoint(values), f"an aborted transaction is seen: {values}"
