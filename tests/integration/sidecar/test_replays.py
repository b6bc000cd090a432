"""Records are consumed again, as jobs: by the backend, by a topic, by where dead letters came from."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from services.sidecar.records import Reason
from tests.fixtures.backend import Backend, answer_of
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.dead_letter_world import FIRST_TIME, ended, fail, job, run, start
from tests.integration.sidecar.test_auditing import whole_lines
from tests.integration.sidecar.world import Json, Kafka, SidecarWorld, started


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend().running() as backend:
        yield backend


@pytest.fixture(scope="module")
def orders(kafka_c1: KafkaCluster) -> str:
    """What the reactive consumer of these sidecars has."""
    topic = f"replays-orders-{uuid.uuid4().hex[:8]}"
    kafka = Kafka(kafka_c1.bootstrap)
    for name in (topic, f"{topic}.dlq"):
        kafka.create(name)
    return topic


def settings(backend: Backend, orders: str) -> dict[str, Any]:
    return {
        "reactive_topics": orders,
        "reactive_enabled": False,  # jobs have the backend for themselves
        "backend_url": backend.host_url,
        "backend_retry_delay_ms": 1,
        "value_format": "string",
        "commit_timeout_ms": 10_000,
    }


@pytest.fixture(scope="module")
def audit_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def world(kafka_c1: KafkaCluster, backend: Backend, orders: str, audit_file: Path) -> Iterator[SidecarWorld]:
    audit = {"audit_target": "logfile", "audit_file": str(audit_file)}
    with started(kafka_c1.bootstrap, **settings(backend, orders), **audit) as world:
        yield world


def audited(file: Path, topic: str) -> list[tuple[str, int, str]]:
    """Type, offset and status of what is said of a topic."""
    lines = map(json.loads, whole_lines(file))
    return [(one["auditType"], one["offset"], one["auditStatus"]) for one in lines if one["topic"] == topic]


@pytest.fixture(autouse=True)
def forgets(backend: Backend) -> Iterator[None]:
    yield
    backend.cure()
    backend.calls.clear()


@pytest.fixture
def source(kafka: Kafka, topic: str) -> str:
    """A topic with two partitions, and its dead letters."""
    kafka.create(topic)
    kafka.create(f"{topic}.dlq", partitions=1)
    return topic


def seen(backend: Backend) -> list[tuple[int, int, str]]:
    return [(one["partition"], one["offset"], one["value"]) for one in backend.records]


def test_a_range_goes_to_the_backend_and_nothing_else_moves(
    world: SidecarWorld, kafka: Kafka, orders: str, backend: Backend, group: str
) -> None:
    first = kafka.end(orders, 0)
    kafka.write(orders, *({"value": b"%d" % n, "partition": 0} for n in range(5)))
    done = run(world, topicName=orders, partition=0, startOffset=first + 1, endOffset=first + 4, consumerGroup=group)
    assert (done["state"], done["records"], done["failed"]) == ("done", 3, 0)
    assert seen(backend) == [(0, first + n, str(n)) for n in (1, 2, 3)]
    assert {call.headers["idempotency-key"].partition("-replay-")[2] for call in backend.calls} == {done["id"]}
    assert kafka.committed(group, orders, 0) == first + 4


def test_many_partitions_from_a_time_to_a_time(world: SidecarWorld, kafka: Kafka, source: str) -> None:
    target = f"{source}-again"
    kafka.create(target, partitions=1)
    for partition in (0, 1):
        kafka.write(
            source, *({"value": b"%d" % n, "partition": partition, "timestamp": FIRST_TIME + n} for n in range(1, 6))
        )
    done = run(
        world,
        ranges=[{"topic": source, "startTime": FIRST_TIME + 2, "endTime": FIRST_TIME + 4}],
        to="topic",
        topic=target,
    )
    assert done["state"] == "done"
    assert [(one["partition"], one["records"]) for one in done["partitions"]] == [(0, 2), (1, 2)]
    assert sorted(one.value for one in kafka.read(target, None) if one.value) == [b"2", b"2", b"3", b"3"]


@contextlib.contextmanager
def transactions(kafka: Kafka) -> Iterator[Callable[[str, bytes, bool], None]]:
    """Writes one record to partition 0, which is committed or not."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"t-{uuid.uuid4().hex}"})
    producer.init_transactions(30)

    def write(topic: str, value: bytes, is_committed: bool) -> None:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(30)

    yield write


def test_what_is_missing_from_a_range_is_passed_over(world: SidecarWorld, kafka: Kafka, source: str) -> None:
    target = f"{source}-again"
    kafka.create(target, partitions=1)
    with transactions(kafka) as write:
        for value, is_committed in ((b"a", True), (b"lost", False), (b"b", True), (b"lost", False)):
            write(source, value, is_committed)
    done = run(world, ranges=[{"topic": source, "partition": 0, "startOffset": 1}], to="topic", topic=target)
    (place,) = done["partitions"]
    assert (done["state"], place["position"], place["records"]) == ("done", place["endOffset"], 1)
    assert [one.value for one in kafka.read(target, None)] == [b"b"]


def test_a_dry_run_counts_and_moves_nothing(world: SidecarWorld, kafka: Kafka, source: str) -> None:
    fail(kafka, source, {"key": b"a"}, {"key": b"b"}, {"key": b"a", "reason": Reason.BACKEND})
    asked: Json = {"ranges": [{"topic": source}], "deadLetters": True, "to": "source", "dryRun": True}
    all_of_them = run(world, **asked)
    assert all_of_them["description"] == "3 offsets, each a record or a gap"
    chosen = run(world, **asked, filter={"keys": ["a"], "reasons": ["retries"]})
    assert (chosen["partitions"][0]["planned"], chosen["description"]) == (1, "1 records are chosen")
    assert kafka.read(source, 0) == []
    assert kafka.committed(chosen["group"], f"{source}.dlq", 0) < 0


def test_dead_letters_go_back_to_where_they_came_from_as_they_were(
    world: SidecarWorld, kafka: Kafka, source: str
) -> None:
    fail(
        kafka,
        source,
        {"key": b"alice", "value": b"1", "headers": [("h", b"\xff"), ("h", b"")]},
        {"key": None, "value": None},
    )
    done = run(world, ranges=[{"topic": source}], deadLetters=True, to="source")
    assert (done["state"], done["records"]) == ("done", 2)
    back = sorted(kafka.read(source, None), key=lambda one: one.timestamp)
    assert [(one.key, one.value, one.timestamp, one.headers) for one in back] == [
        (b"alice", b"1", FIRST_TIME, [("h", b"\xff"), ("h", b"")]),
        (None, None, FIRST_TIME + 1, []),
    ]


def test_dead_letters_are_chosen_by_reason_key_and_offset(world: SidecarWorld, kafka: Kafka, source: str) -> None:
    unreadable: Json = {"reason": Reason.DESERIALIZATION}
    fail(
        kafka,
        source,
        {"key": b"alice", "value": b"1"},
        {"key": b"bob", "value": b"2", **unreadable},
        {"key": b"alice", "value": b"3"},
        {"key": b"carol", "value": b"4"},
    )
    back: set[bytes | None] = set()
    for filter_, chosen in (
        ({"reasons": ["deserialization"]}, {b"2"}),
        ({"keys": ["alice"], "reasons": ["retries"]}, {b"1", b"3"}),
        ({"offsets": [3]}, {b"4"}),
    ):
        place = {"topic": source, "partition": 0}
        done = run(world, ranges=[place], deadLetters=True, to="source", filter=filter_)
        assert (done["state"], done["records"]) == ("done", len(chosen))
        found = {one.value for one in kafka.read(source, None)}
        assert found - back == chosen
        back = found


def test_what_the_backend_fails_again_is_a_dead_letter_again_and_keeps_its_origin(
    world: SidecarWorld, kafka: Kafka, orders: str, backend: Backend, audit_file: Path
) -> None:
    first = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"key": b"alice", "value": b"good"}, {"key": b"bob", "value": b"bad"})
    backend.always(answer_of(lambda record: {"processed": record["value"] != "bad", "stacktrace": "still bad"}))
    done = run(world, ranges=[{"topic": orders, "partition": 0, "startOffset": first}], deadLetters=True)
    assert (done["state"], done["records"], done["failed"]) == ("done", 2, 1)
    (letter,) = (one for one in kafka.read(f"{orders}.dlq", None) if ("StackTrace", b"still bad") in one.headers)
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["StackTrace"]) == (b"bob", b"bad", b"still bad")
    assert (headers["dlq.topic"], headers["dlq.offset"]) == (orders.encode(), b"1")
    told = {
        ("STREAMING_CONSUMER", first, "SUCCESS"),
        ("STREAMING_CONSUMER", first + 1, "FAILURE"),
        ("STREAMING_PRODUCER", letter.offset, "SUCCESS"),
    }
    wait_until(lambda: told <= set(audited(audit_file, f"{orders}.dlq")), "all of it is audited")


def test_on_their_last_retry_failures_are_left(
    world: SidecarWorld, kafka: Kafka, orders: str, backend: Backend, group: str
) -> None:
    first = kafka.end(f"{orders}.dlq")
    fail(kafka, orders, {"value": b"bad"})
    backend.always(answer_of(lambda _: {"processed": False}))
    command: Json = {"topicName": orders, "dlqIndicator": True, "partition": 0, "consumerGroup": group}
    done = run(world, **command, startOffset=first, endOffset=first + 1, lastRetry=True)
    assert (done["state"], done["records"], done["failed"]) == ("done", 1, 1)
    assert kafka.end(f"{orders}.dlq") == first + 1


def test_a_record_that_does_not_fit_its_format_becomes_a_dead_letter_as_it_is(
    kafka: Kafka, backend: Backend, orders: str
) -> None:
    first = kafka.end(orders, 1)
    kafka.write(orders, {"value": b"{", "key": b"k", "partition": 1}, {"value": b"5", "partition": 1})
    with started(kafka.bootstrap, **{**settings(backend, orders), "value_format": "json"}) as world:
        done = run(world, ranges=[{"topic": orders, "partition": 1, "startOffset": first}])
    assert (done["records"], done["failed"]) == (2, 1)
    assert [one["value"] for one in backend.records] == [5]
    (found,) = (one for one in kafka.read(f"{orders}.dlq", None) if one.value == b"{")
    assert (found.key, found.value, dict(found.headers)["dlq.reason"]) == (b"k", b"{", b"deserialization")


def test_a_job_that_is_cancelled_ends_where_it_is(
    world: SidecarWorld, kafka: Kafka, orders: str, backend: Backend
) -> None:
    first = kafka.end(orders, 0)
    kafka.write(orders, *({"value": b"%d" % n, "partition": 0} for n in range(3)))
    place = {"topic": orders, "partition": 0, "startOffset": first}
    begun = start(world, ranges=[place], rate=0.01)  # one now, the next in 100 s
    wait_until(lambda: job(world, begun["id"])["records"] == 1, "the first record is done")
    answer = world.http.delete(f"/adm/kafka/replay/{begun['id']}")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert answer.json()["partitions"][0]["position"] == first + 1
    assert kafka.committed(begun["group"], orders, 0) == first + 1
    assert world.http.get("/adm/kafka/replay").json()[0]["id"] == begun["id"]


def test_the_next_process_goes_on_where_one_was_and_writes_nothing_twice(
    kafka: Kafka, backend: Backend, orders: str, source: str, tmp_path: Path
) -> None:
    fail(kafka, source, *({"value": b"%d" % n, "key": b"k"} for n in range(20)))
    mine = {**settings(backend, orders), "state_dir": str(tmp_path)}
    with started(kafka.bootstrap, **mine) as world:
        begun = start(world, ranges=[{"topic": source}], deadLetters=True, to="source", rate=2)
        wait_until(lambda: job(world, begun["id"])["records"] > 2, "some are written")
        assert "ended" not in job(world, begun["id"])
    with started(kafka.bootstrap, **mine) as world:
        done = ended(world, begun["id"])
    assert (done["state"], done["records"]) == ("done", 20)
    assert [one.value for one in kafka.read(source, None)] == [b"%d" % n for n in range(20)]


def test_a_group_that_has_members_is_refused(world: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    kafka.write(orders, {"value": b"x", "partition": 0})
    member = world.create(group, "member", valueFormat="string")
    member.subscribe(orders)
    wait_until(lambda: member.read(timeout=100), "it has joined its group")
    end = kafka.end(orders, 0)
    done = run(world, topicName=orders, partition=0, startOffset=end - 1, endOffset=end, consumerGroup=group)
    member.delete()
    assert done["state"] == "failed"
    assert "the group has members; name a group that nobody reads with" in done["description"]


def test_a_job_whose_records_cannot_be_written_says_so(world: SidecarWorld, kafka: Kafka, source: str) -> None:
    kafka.write(source, {"value": b"x", "partition": 0})
    done = run(world, ranges=[{"topic": source}], to="topic", topic=f"{source}-missing")
    assert done["state"] == "failed"
    assert done["description"].startswith(f"its records cannot be written to {source}-missing: ")
    nowhere = run(world, ranges=[{"topic": f"{source}-missing"}], to="topic", topic=source)
    assert nowhere["description"] == f"There is no topic '{source}-missing' that this sidecar can see"


COMMAND = {"topicName": "", "partition": 0, "startOffset": 10, "endOffset": 25, "consumerGroup": "g"}


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"topicName": ""}, "topic name can not be empty"),
        ({"topicName": "strange"}, "provided topic in request must match one of the topics in consuming topic list"),
        ({"partition": -1}, "partition can not be negative"),
        ({"startOffset": -1}, "replay start offset can not be negative"),
        ({"endOffset": -1}, "replay end offset can not be negative"),
        ({"endOffset": 9}, "replay end offset can not be less than start offset"),
        ({"endOffset": 10}, "replay end offset can not be equal to start offset"),
        ({"consumerGroup": None}, "replay consumer group can not be empty"),
        ({"streamingApp": True}, "Destination topic can not be empty for a streaming app"),
        ({"rate": 5}, "rate: only with ranges"),
        ({"ranges": []}, "ranges exclude "),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_in_the_originals_words(
    world: SidecarWorld, orders: str, members: Json, sentence: str
) -> None:
    answer = world.http.post("/adm/kafka/replay", json={**COMMAND, "topicName": orders, **members})
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12218")
    assert answer.json()["description"].startswith(sentence)


def test_a_streaming_apps_range_goes_to_its_topic(world: SidecarWorld, kafka: Kafka, orders: str, source: str) -> None:
    end = kafka.end(orders, 0)
    kafka.write(orders, {"value": b"to the app", "partition": 0})
    command = {**COMMAND, "topicName": orders, "startOffset": end, "endOffset": end + 1, "consumerGroup": source}
    assert run(world, **command, streamingApp=True, destinationTopic=source)["state"] == "done"
    assert [one.value for one in kafka.read(source, None)] == [b"to the app"]


def test_the_originals_topic_of_commands_is_honoured(kafka: Kafka, backend: Backend, orders: str, source: str) -> None:
    commands = f"{source}-commands"
    kafka.create(commands, partitions=1)
    kafka.write(commands, {"value": b'{"topicName":"of another time"}'})
    end = kafka.end(orders, 0)
    kafka.write(orders, *({"value": b"%d" % n, "partition": 0} for n in range(3)))
    mine = {
        **settings(backend, orders),
        "dead_letter_controller_topic": commands,
        "reactive_group": source,
        "consumer_properties": {"partition.assignment.strategy": "cooperative-sticky"},  # as others may have it
    }
    with started(kafka.bootstrap, **mine) as world:
        wait_until(lambda: kafka.committed(f"{source}-replaystream", commands, 0) == 1, "it listens from now on")
        command = {**COMMAND, "topicName": orders, "startOffset": end, "consumerGroup": f"{source}-g"}
        answer = world.http.post("/adm/kafka/replay", json={**command, "endOffset": end + 2})
        assert (answer.status_code, answer.json()["offsets"]) == (200, [{"partition": 0, "offset": 1}])
        assert ended(world, "command-0-1")["records"] == 2
        written = kafka.read(commands, 2)[1]
        assert (written.key, json.loads(written.value or b"")["topicName"]) == (orders.encode(), orders)
        framed = b"\0\0\0\0\7" + json.dumps({**command, "startOffset": end + 2, "endOffset": end + 3}).encode()
        kafka.write(commands, {"key": orders.encode(), "value": framed}, {"value": b"nonsense"})
        wait_until(lambda: kafka.committed(f"{source}-replaystream", commands, 0) == 4, "all commands are taken")
        assert ended(world, "command-0-2")["records"] == 1
    assert [one["value"] for one in backend.records] == ["0", "1", "2"]


def test_no_job_without_a_producer_and_none_that_is_not_there(
    world: SidecarWorld, kafka: Kafka, backend: Backend, orders: str
) -> None:
    missing = world.http.get("/adm/kafka/replay/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "ERR12962")
    assert world.http.delete("/adm/kafka/replay/none").status_code == 404
    with started(kafka.bootstrap, **settings(backend, orders), producer_enabled=False) as mute:
        answer = mute.http.post("/adm/kafka/replay", json={**COMMAND, "topicName": orders})
        assert (answer.status_code, answer.json()["code"]) == (400, "ERR12216")
