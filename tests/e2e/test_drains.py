"""`meshctl cluster drain`: the topics of a cluster move to another one under load, and no record is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from confluent_kafka import Consumer, Producer

from mesh import durations
from mesh.rpc import drains, drains_grpc
from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.movers import Movers, running_movers
from tests.fixtures.record_rules import Side, two_sides
from tests.fixtures.two_of_everything import CALL_S, NOT_NOW, TwoOfEverything
from tests.fixtures.waiting import until, wait_until
from tests.fixtures.writers import Writer
from tests.integration.control.world import create_topic

TOPICS, PARTITIONS = 10, 2
BEFORE = 200
"""Records of each client before the drain, and after it."""
WITHIN_S = 200.0
BUDGET_MS = 5000
"""The machine of the tests is busy: a second may be too short for a cut."""
SHORT_PAUSE = "300ms"
MOVED, LEFT = "DRAIN_TOPIC_STATE_MOVED", "DRAIN_TOPIC_STATE_LEFT"

Drain = drains.Drain


class Reader:
    """A member of a group that reads on and on through one gateway, and notes what it reads."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self.read: list[tuple[str, int, int, str]] = []
        """Topic, partition, offset, value."""
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(bootstrap, group, topics))

    @contextmanager
    def running(self) -> Iterator[Reader]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def _read(self, bootstrap: str, group: str, topics: list[str]) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe(topics)
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.1):
                if (error := message.error()) is not None:
                    self.faults.append(str(error))
                    continue
                place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
                self.read.append((*place, (message.value() or b"").decode()))
        consumer.close()


async def asked(mesh: TwoOfEverything, method: str, request: Any, is_so: Callable[[Any], bool] = bool) -> Any:
    """The answer of the control that leads, when it is so."""
    found: list[Any] = []

    async def answers() -> bool:
        for channel in mesh.channels:
            try:
                answer = await getattr(drains_grpc.DrainServiceStub(channel), method)(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as error:
                assert error.code() in (*NOT_NOW, grpc.StatusCode.NOT_FOUND), f"{error.code()}: {error.details()}"
            else:
                if is_so(answer):
                    found.append(answer)
                    return True
        return False

    await until(answers, f"{method} is answered", WITHIN_S)
    return found[0]


def transaction_of(bootstrap: str, topic: str) -> Producer:
    """An open transaction with a record in the topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    producer.produce(topic, "transaction-0")
    producer.flush(CALL_S)
    return producer


@pytest.mark.timeout(600)
async def test_ten_topics_move_under_load_while_the_control_that_leads_is_killed(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    name = unique_name("drained")
    topics = [f"{name}-{number}" for number in range(TOPICS)]
    compacted = f"{name}-compacted"
    for topic in topics:
        create_topic(kafka_c1.bootstrap, topic, PARTITIONS)
    create_topic(kafka_c1.bootstrap, compacted, 1, **{"cleanup.policy": "compact"})
    database = postgres()
    migrate(database)
    async with TwoOfEverything(database, kafka_c1, kafka_c2, f"{name}.events", tmp_path) as mesh:
        for topic in (*topics, compacted):
            await mesh.moves(topic, "c1")
        await mesh.start_gateways()
        writers = [Writer(each, gateway.address, *topics) for each, gateway in zip("ab", mesh.gateways, strict=True)]
        reader = Reader(mesh.gateways[1].address, f"{name}.group", topics)
        try:
            with reader.running():
                for writer in writers:
                    await writer.goes_on(BEFORE)
                spec = drains.DrainSpec(
                    source_cluster="c1", target_cluster="c2", topics=f"{name}*", hold_budget=durations.of_ms(BUDGET_MS),
                    cuts_at_most=50,
                )  # fmt: skip
                request = drains.StartDrainRequest(spec=spec, request_id=str(uuid.uuid4()))
                drain: Drain = await asked(mesh, "StartDrain", request)
                shown = drains.GetDrainRequest(name=drain.name)
                await asked(mesh, "GetDrain", shown, lambda found: found.counts.moved >= 2)
                leader = [each for each in mesh.controls if each.ready() == "ready"]
                await asyncio.to_thread(leader[0].stop, signal.SIGKILL)
                amid: Drain = await asked(mesh, "GetDrain", shown)
                leader[0].start()
                end: Drain = await asked(mesh, "GetDrain", shown, lambda found: found.HasField("end_time"))
                for writer in writers:
                    await writer.goes_on(BEFORE)
                for writer in writers:
                    await writer.end()
                stored = [value for writer in writers for value in writer.stored]
                await until(lambda: len(reader.read) >= len(stored), "all is read", WITHIN_S)
        finally:
            for writer in writers:
                await writer.end()
    by_name = {each.topic: each for each in end.topics}
    pauses = sorted(durations.whole_ms(by_name[topic].pause) for topic in topics)
    seconds = end.end_time.ToDatetime() - end.create_time.ToDatetime()
    print(f"{TOPICS} topics in {seconds}; pauses of producers: {pauses} ms")
    assert amid.state == drains.DRAIN_STATE_RUNNING
    assert amid.counts.waiting, "control was killed amid the drain"
    assert (end.state, end.counts.moved, end.counts.left) == (drains.DRAIN_STATE_DONE, TOPICS, 1)
    assert all(by_name[topic].confirmed and not by_name[topic].problem for topic in topics), end
    assert "is compacted on 'c1'" in by_name[compacted].problem
    assert len({each.move for each in end.topics if each.move}) == TOPICS
    assert compacted in end.remainder.topics
    assert not {*topics} & {*end.remainder.topics}
    assert f"{name}.group" in end.remainder.groups
    assert len(end.remainder.rules) == 1, "the rule of the topic that stays"
    assert [writer.faults for writer in writers] == [[], []]
    assert reader.faults == []
    once = Counter(value for _, _, _, value in reader.read)
    assert [value for value in stored if once[value] != 1] == []
    assert once.keys() == {*stored}
    newest: dict[tuple[str, int, str], int] = defaultdict(lambda: -1)
    offsets: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    for topic, partition, offset, value in reader.read:
        writer_name, number = value.rsplit("-", 1)
        assert newest[topic, partition, writer_name] < int(number)
        assert offsets[topic, partition] < offset
        newest[topic, partition, writer_name], offsets[topic, partition] = int(number), offset


@pytest.fixture(scope="module")
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.fixture(scope="module")
def movers(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    sides: tuple[Side, Side],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Movers]:
    with running_movers(postgres(), kafka_c1, sides, "drains", tmp_path_factory.mktemp("movers")) as found:
        yield found


def topics_on(sides: tuple[Side, Side], movers: Movers, prefix: str, *ends: str) -> list[str]:
    c1, c2 = sides
    names = [c2.will_have(c1.create(f"{prefix}-{end}", 1)) for end in ends]
    for name in names:
        movers.route(name, "c1")
    return names


def shown_when(movers: Movers, drain: dict[str, Any], is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = movers.told("cluster", "drain", "show", drain["name"])
        return found if is_so(found) else None

    found = wait_until(look, f"{drain['name']} is as expected", WITHIN_S)
    assert found is not None
    return found


def topic_of(drain: dict[str, Any], topic: str) -> dict[str, Any]:
    [found] = [each for each in drain["topics"] if each["topic"] == topic]
    return dict(found)


def test_a_move_that_misses_the_bound_on_pauses_is_rolled_back_and_the_drain_goes_on_and_names_it(
    movers: Movers, sides: tuple[Side, Side], kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("bounded")
    slow, quick = topics_on(sides, movers, prefix, "a", "b")
    sides[0].write(quick, [(0, b"apple")] * 3)
    producer = transaction_of(kafka_c1.bootstrap, slow)  # nothing is copied behind its first record
    try:
        options = ("--topics", f"{prefix}*", "--at-once", "1", "--pause-at-most", SHORT_PAUSE, "--cuts", "2")
        drain = movers.told("cluster", "drain", "c1", "--to", "c2", *options)
        end = shown_when(movers, drain, lambda found: found["state"] == "DRAIN_STATE_DONE")
    finally:
        producer.abort_transaction(CALL_S)
    assert topic_of(end, slow)["state"] == LEFT
    assert "2 cuts were given up, so the move was rolled back" in topic_of(end, slow)["problem"]
    assert (topic_of(end, quick)["state"], topic_of(end, quick)["records"]) == (MOVED, "3")
    assert slow in end["remainder"]["topics"]
    assert slow in end["remainder"]["transactional_ids"]
    assert quick not in end["remainder"]["topics"]
    code, _, told = movers.meshctl("cluster", "drain", "c1", "--to", "c2", "--topics", quick)
    assert (code, f"rules lead no topic that matches '{quick}' to 'c1'" in told) == (2, True)


def test_a_paused_drain_begins_no_move_and_a_cancelled_one_ends_with_those_under_way(
    movers: Movers, sides: tuple[Side, Side], kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("paused")
    first, second, third = topics_on(sides, movers, prefix, "a", "b", "c")
    producer = transaction_of(kafka_c1.bootstrap, first)
    try:
        options = ("--topics", f"{prefix}*", "--at-once", "1", "--cuts", "100", "--pause-at-most", "1s")
        drain = movers.told("cluster", "drain", "c1", "--to", "c2", *options)
        shown_when(movers, drain, lambda found: bool(topic_of(found, first)["move"]))
        movers.told("cluster", "drain", "pause", drain["name"])
    finally:
        producer.commit_transaction(CALL_S)
    paused = shown_when(movers, drain, lambda found: topic_of(found, first)["state"] == MOVED)
    assert (paused["state"], paused["counts"]["waiting"]) == ("DRAIN_STATE_PAUSED", 2)
    producer = transaction_of(kafka_c1.bootstrap, second)
    try:
        movers.told("cluster", "drain", "resume", drain["name"])
        shown_when(movers, drain, lambda found: bool(topic_of(found, second)["move"]))
        cancelled = movers.told("cluster", "drain", "cancel", drain["name"])
        assert cancelled["state"] == "DRAIN_STATE_CANCELLING"
    finally:
        producer.commit_transaction(CALL_S)
    end = shown_when(movers, drain, lambda found: "end_time" in found)
    assert end["state"] == "DRAIN_STATE_CANCELLED"
    assert topic_of(end, second)["state"] == MOVED, "a move under way ends as it is"
    assert (topic_of(end, third)["state"], topic_of(end, third)["move"]) == ("DRAIN_TOPIC_STATE_WAITING", "")
    code, _, told = movers.meshctl("cluster", "drain", "resume", drain["name"])
    assert (code, "is cancelled: it can't be resumed" in told) == (1, True)


def test_a_dry_run_says_for_each_topic_whether_it_fits_and_changes_nothing(
    movers: Movers, sides: tuple[Side, Side], unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("planned")
    [fits] = topics_on(sides, movers, prefix, "fits")
    sides[0].write(fits, [(0, b"x" * 1000)] * 100)
    other = sides[1].will_have(sides[0].create(f"{prefix}-other", 1))
    movers.route(other, "c1")
    sides[1].create(other, 3)
    arguments = ("cluster", "drain", "c1", "--to", "c2", "--topics", f"{prefix}*", "--rate", "0.001", "--dry-run")
    code, told, _ = movers.meshctl(*arguments, "-o", "json")
    assert code == 1, "a topic does not fit"
    code, table, error = movers.meshctl(*arguments)
    assert "checked only, nothing was changed" in table
    assert "1 topics stay on c1" in error
    plan = json.loads(told)
    assert topic_of(plan, fits)["state"] == "DRAIN_TOPIC_STATE_WAITING"
    assert int(topic_of(plan, fits)["bytes"]) > 100_000
    assert int(topic_of(plan, fits)["seconds"]) >= 200, "two copies share the rate"
    assert "has 1 partitions on 'c1', and 3 on 'c2'" in topic_of(plan, other)["problem"]
    in_window = (*arguments, "--window", "01:00-01:02")
    plan = json.loads(movers.meshctl(*in_window, "-o", "json")[1])
    assert "it is too large: its copy takes some" in topic_of(plan, fits)["problem"]
    begun = [each["spec"]["topics"] for each in movers.told("cluster", "drain", "list")["drains"]]
    assert f"{prefix}*" not in begun
