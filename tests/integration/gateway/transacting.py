"""Producers for tests of transactions: one interface, Java (second protocol, KIP-890) and librdkafka (first).

And Kafka's own program that copies a partition in transactions.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its own documented way

from tests.clients import maven
from tests.clients.console import driver as console
from tests.clients.java import driver as java
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import wait_until

COPIES_IN_A_TRANSACTION = 20
COPIER_S = 90.0
ANSWER_S = 25.0
"""Longer than a producer of either kind waits before it gives up by itself."""
QUIET_S = 2.0
"""Seconds for the rest of a transaction, once a record of it is refused."""


class TransactionError(Exception):
    """What the application is told: the error's name, as the client calls it."""

    def __init__(self, name: str, text: str, *, fatal: bool) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.fatal = fatal


class Transacting(Protocol):
    """A transactional producer. `flush` gives the errors of the sends before it; `offset` is one of partition 0."""

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, *values: str) -> None: ...
    def flush(self) -> list[str]: ...
    def offset(self, group: str, topic: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


Open = Callable[..., Transacting]
"""Bootstrap address, transactional id and properties, with underscores for dots -> a producer."""


class LibrdkafkaTransacting:
    def __init__(self, bootstrap: str, transactional_id: str, **config: str) -> None:
        properties = {name.replace("_", "."): value for name, value in config.items()}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **properties}
        )
        self._bootstrap = bootstrap
        self._failed: list[str] = []

    def init(self) -> None:
        self._do(lambda: self._producer.init_transactions(ANSWER_S))

    def begin(self) -> None:
        self._failed = []  # an abort fails the records that were kept
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, *values: str) -> None:
        for value in values:
            self._do(partial(self._producer.produce, topic, value, value, on_delivery=self._delivered))

    def flush(self) -> list[str]:
        """When a record is refused, librdkafka may keep the others of its transaction until the abort."""
        deadline = time.monotonic() + ANSWER_S
        while self._producer.flush(QUIET_S) and not self._failed:
            assert time.monotonic() < deadline, "records were neither delivered nor refused"
        failed, self._failed = self._failed, []
        return failed

    def offset(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            offsets = [TopicPartition(topic, 0, offset)]
            metadata = consumer.consumer_group_metadata()
            self._do(partial(self._producer.send_offsets_to_transaction, offsets, metadata, ANSWER_S))
        finally:
            consumer.close()

    def commit(self, within_s: float = ANSWER_S) -> None:
        self._do(lambda: self._producer.commit_transaction(within_s))

    def abort(self) -> None:
        self._do(lambda: self._producer.abort_transaction(ANSWER_S))

    def close(self) -> None:
        del self._producer  # librdkafka ends its threads with it

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error.name())

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            raise TransactionError(error.name(), error.str(), fatal=error.fatal()) from None


class JavaTransactions:
    """One JVM with any number of producers."""

    def __init__(self) -> None:
        command = java.command("4.4.0", "")[:-2]
        self._program = subprocess.Popen(
            [*command, "mesh.clients.Transact"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def open(self, bootstrap: str, transactional_id: str, **config: str) -> "JavaTransacting":
        properties = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
        self.ask(" ".join((transactional_id, "open", bootstrap, *properties)))
        return JavaTransacting(self, transactional_id)

    def ask(self, line: str) -> Any:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(f"{line}\n")
        for told in self._program.stdout:
            answer = json.loads(told)
            if "error" in answer:
                name = answer["type"].rpartition(".")[2]
                raise TransactionError(name, answer["error"], fatal=name in FATAL)
            return answer["result"]
        raise EOFError(f"the Java program has ended at {line!r}")

    def close(self) -> None:
        self._program.kill()
        self._program.wait(ANSWER_S)


FATAL = frozenset({"ProducerFencedException", "InvalidPidMappingException", "TransactionalIdAuthorizationException"})
"""Errors after which a Java producer has to be closed."""


class JavaTransacting:
    def __init__(self, jvm: JavaTransactions, transactional_id: str) -> None:
        self._jvm = jvm
        self._id = transactional_id

    def init(self) -> None:
        self._ask("init")

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, *values: str) -> None:
        if values:
            self._jvm.ask("\t".join(f"{self._id} send {topic} {value}" for value in values))

    def flush(self) -> list[str]:
        failed: list[str] = self._ask("flush")
        return failed

    def offset(self, group: str, topic: str, offset: int) -> None:
        self._ask(f"offset {group} {topic} {offset}")

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")

    def _ask(self, command: str) -> Any:
        return self._jvm.ask(f"{self._id} {command}")


def committed_offset(bootstrap: str, group: str, topic: str) -> int | None:
    """Where the group stands in partition 0 of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=ANSWER_S)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


def await_markers(bootstrap: str, topic: str) -> None:
    """Until no transaction is open in the topic. EndTxn is answered before its markers are written."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [TopicPartition(topic, one) for one in admin.list_topics(topic, ANSWER_S).topics[topic].partitions]

    def ends(level: IsolationLevel) -> dict[int, int]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = admin.list_offsets(dict.fromkeys(partitions, latest), isolation_level=level)
        return {one.partition: told.result(ANSWER_S).offset for one, told in asked.items()}

    wait_until(
        lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED),
        f"no transaction is open in {topic}",
    )


def read_committed(bootstrap: str, topic: str, *, left_open: bool = False) -> list[str]:
    """All records of the topic that a read_committed consumer gets up to the last stable offset, sorted.

    `left_open`: the test has left a transaction open there, so there are no markers to wait for.
    """
    if not left_open:
        await_markers(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end is told when the broker has waited for more
            "auto.offset.reset": "error",
        }
    )
    found: list[str] = []
    try:
        partitions = set(consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while partitions:
            message = consumer.poll(ANSWER_S)
            assert message is not None, f"{topic}: no answer for partitions {partitions}"
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                partitions.discard(message.partition() or 0)
    finally:
        consumer.close()
    return sorted(found)


class Copier:
    """Kafka's own TransactionalMessageCopier: reads a partition to its end, writes and commits offsets as one. Leaving
    the block kills it."""

    def __init__(self, bootstrap: str, source: str, copies: str) -> None:
        class_path = maven.class_path(console.PROJECT, console.KAFKA_VERSION)
        jvm = [str(need("java")[0]), *java.JVM_OPTIONS, console.LOG_WARNINGS, "-cp", class_path]
        options = {
            "broker-list": bootstrap,
            "input-topic": source,
            "input-partition": "0",
            "output-topic": copies,
            "transactional-id": copies,
            "consumer-group": copies,
            "transaction-size": str(COPIES_IN_A_TRANSACTION),
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._command = [*jvm, "org.apache.kafka.tools.TransactionalMessageCopier", *arguments, "--use-group-metadata"]

    def __enter__(self) -> "Copier":
        self._complaints = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=self._complaints, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(COPIER_S)
        self._complaints.close()

    def wait_for_commits(self, count: int) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if json.loads(line)["totalProcessed"] >= count * COPIES_IN_A_TRANSACTION:
                return
        raise AssertionError(f"the copier has ended before: {self._said()}")

    def wait_for_the_end(self) -> None:
        output, _ = self._process.communicate(timeout=COPIER_S)
        assert self._process.returncode == 0, output[-1000:] + self._said()
        assert json.loads(output.splitlines()[-1])["remaining"] == 0

    def _said(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-3000:]
