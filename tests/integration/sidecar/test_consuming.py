"""Reading over HTTP, as a backend does it: create, subscribe, read, commit, delete."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from services.sidecar.telemetry import metrics
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import (
    TOO_LONG_MS,
    WITHIN_SECONDS,
    Instance,
    Json,
    Kafka,
    SidecarWorld,
    started,
    value_of,
)


def values(records: list[Json]) -> list[object]:
    return [record.get("value") for record in records]


@pytest.fixture
def reader(sidecar: SidecarWorld, group: str, orders: str) -> Instance:
    """A subscribed instance that reads strings, and waits for them for as long as anybody asks."""
    instance = sidecar.create(group, "c1", keyFormat="STRING", valueFormat="STRING", requestWaitMs=TOO_LONG_MS)
    instance.subscribe(orders)
    return instance


def test_the_whole_flow(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    produced = [{"key": "k", "value": {"n": number}, "timestamp": 1700000000000 + number} for number in range(3)]
    (partition,) = {one["partition"] for one in sidecar.produce(orders, *produced).json()["offsets"]}
    created = sidecar.http.post(f"/consumers/{group}", json={"id": "c1", "auto.offset.reset": "earliest"})
    path = f"/consumers/{group}/instances/c1"
    uri = f"http://127.0.0.1:{sidecar.sidecar.port}{path}"
    assert created.json() == {"instance_id": "c1", "base_uri": uri, "instanceId": "c1", "baseUri": uri}
    instance = Instance(sidecar.http, path)
    assert (instance.assignments(), sidecar.http.get(f"{path}/subscriptions").json()) == ([], {"topics": []})
    instance.subscribe(orders)
    assert sidecar.http.get(f"{path}/subscriptions").json() == {"topics": [orders]}

    records = instance.read_all(3)
    assert [list(record) for record in records] == [
        ["topic", "key", "value", "headers", "partition", "offset", "timestamp"]
    ] * 3
    assert [(record["key"], record["value"], record["offset"], record["timestamp"]) for record in records] == [
        ("k", {"n": number}, number, 1700000000000 + number) for number in range(3)
    ]
    assert instance.assignments() == [{"topic": orders, "partition": one} for one in (0, 1)]

    where = {"topic": orders, "partition": partition}
    assert instance.commit().json() == [{**where, "consumed": 2, "committed": 3}]
    assert instance.committed(where) == [{**where, "offset": 3, "metadata": ""}]
    assert kafka.committed(group, orders, partition) == 3
    assert instance.delete().status_code == 204
    assert instance.delete().json()["code"] == "ERR12200"


def test_records_of_an_answer_that_broke_off_come_again_and_a_commit_does_not_cover_them(
    kafka: Kafka, orders: str, group: str
) -> None:
    for _ in range(11):  # more than a connection buffers
        kafka.write(orders, {"value": b"x" * 900_000, "partition": 0})
    with started(kafka.bootstrap, request_max_bytes=1 << 25) as world:
        reader = world.create(group, "c1", valueFormat="STRING", responseMinBytes=9_000_000, requestWaitMs=60_000)
        reader.subscribe(orders)
        with socket.create_connection(("127.0.0.1", world.sidecar.port)) as connection:
            connection.sendall(f"GET {reader.path}/records HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert connection.recv(100)
        wait_until(lambda: value_of(metrics.open_requests) == 0, "the sidecar knows that its caller has gone")
        (again,) = reader.read_all(1, max_bytes=1)
        reader.commit()
    assert (again["offset"], kafka.committed(group, orders, 0)) == (0, 1)


def test_the_first_read_waits_for_the_group(reader: Instance, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": b"there"})
    assert values(reader.read()) == ["there"]


def test_a_read_answers_as_soon_as_there_is_something(reader: Instance, kafka: Kafka, orders: str) -> None:
    reader.join(partitions=2)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(reader.read)
        kafka.write(orders, {"value": b"news"})
        assert values(read.result()) == ["news"]


def test_a_read_ends_with_its_time(reader: Instance) -> None:
    reader.join(partitions=2)
    started_at = time.monotonic()
    assert reader.read(timeout=300) == []
    assert time.monotonic() - started_at >= 0.3


def test_an_instance_may_want_many_bytes_before_it_answers(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    instance = sidecar.create(group, "c1", format="string", responseMinBytes=6, requestWaitMs=TOO_LONG_MS)
    instance.subscribe(orders)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(instance.read)
        kafka.write(orders, {"value": b"abc", "partition": 0})
        kafka.write(orders, {"value": b"def", "partition": 0})
        assert values(read.result()) == ["abc", "def"]


def test_a_read_that_wants_many_bytes_ends_with_its_record_limit(kafka: Kafka, orders: str, group: str) -> None:
    with started(kafka.bootstrap, max_poll_records=2) as sidecar:
        instance = sidecar.create(group, "c1", format="string", responseMinBytes=100, requestWaitMs=TOO_LONG_MS)
        instance.subscribe(orders)
        kafka.write(orders, *({"value": b"x", "partition": 0} for _ in range(5)))
        assert [len(instance.read()) for _ in range(2)] == [2, 2]


def test_what_does_not_fit_comes_next_and_in_order(reader: Instance, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, *({"value": b"12345", "partition": 0} for _ in range(5)))
    assert [record["offset"] for record in reader.read(max_bytes=10)] == [0, 1]
    assert [record["offset"] for record in reader.read(maxBytes=10)] == [2, 3]
    assert [record["offset"] for record in reader.read()] == [4]


def test_a_record_larger_than_the_bound_comes_alone(reader: Instance, kafka: Kafka, orders: str) -> None:
    kafka.write(orders, {"value": b"x" * 200_000, "partition": 0}, {"value": b"y", "partition": 0})
    assert [len(record["value"]) for record in reader.read()] == [200_000]
    assert values(reader.read()) == ["y"]


def test_only_what_was_handed_over_is_committed(reader: Instance, kafka: Kafka, orders: str, group: str) -> None:
    kafka.write(orders, *({"value": b"12345", "partition": 0} for _ in range(3)))
    reader.read(max_bytes=1)
    reader.commit()
    assert kafka.committed(group, orders, 0) == 1


def test_a_commit_names_the_last_record_read_and_keeps_a_note(reader: Instance, orders: str) -> None:
    where = {"topic": orders, "partition": 0}
    reader.join(partitions=2)
    answer = reader.commit({**where, "offset": 5, "metadata": "m"})
    assert (answer.status_code, answer.json()) == (200, [{**where, "consumed": 5, "committed": 6}])
    assert reader.committed(where, {"topic": orders, "partition": 1}) == [{**where, "offset": 6, "metadata": "m"}]


def test_a_commit_that_does_not_wait_happens_too(reader: Instance, orders: str) -> None:
    where = {"topic": orders, "partition": 0}
    reader.join(partitions=2)
    answer = reader.commit({**where, "offset": 5}, **{"async": "true"})
    assert (answer.status_code, answer.json()) == (200, [{**where, "consumed": 5}])
    wait_until(lambda: reader.committed(where) == [{**where, "offset": 6, "metadata": ""}], "the offset is committed")


def test_a_commit_that_kafka_refuses_says_why(reader: Instance) -> None:
    answer = reader.commit({"topic": "no-such-topic", "partition": 0, "offset": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12207")
    assert "no-such-topic" in answer.json()["description"] or "Unknown topic" in answer.json()["description"]


def test_nothing_read_nothing_committed(reader: Instance) -> None:
    assert reader.commit().json() == []


def test_a_new_instance_continues_where_the_old_one_committed(
    sidecar: SidecarWorld, reader: Instance, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.write(orders, {"value": b"first", "partition": 0})
    reader.read_all(1)
    reader.commit()
    reader.delete()
    kafka.write(orders, {"value": b"second", "partition": 0})
    successor = sidecar.create(group, "c1", format="string")
    successor.subscribe(orders)
    assert values(successor.read_all(1)) == ["second"]


def test_commits_by_itself_when_told_so(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    instance = sidecar.create(group, "c1", format="string", autoCommitEnable="true")
    instance.subscribe(orders)
    kafka.write(orders, *({"value": b"12345", "partition": 0} for _ in range(3)))
    instance.read(max_bytes=10)
    instance.delete()
    assert kafka.committed(group, orders, 0) == 2


def test_nulls_are_left_out_and_headers_are_text(reader: Instance, kafka: Kafka, orders: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("bytes", b"\xff"), ("none", None), ("X-Correlation-Id", b"c")]
    kafka.write(orders, {"key": b"gone", "partition": 0, "headers": headers}, {"value": b"no key", "partition": 0})
    tombstone, keyless = reader.read_all(2)
    assert (tombstone["key"], "value" in tombstone) == ("gone", False)
    assert tombstone["headers"] == {"a": "2", "bytes": "�", "none": "", "X-Correlation-Id": "c"}
    assert (keyless["value"], "key" in keyless) == ("no key", False)
    assert len(keyless["headers"]["X-Correlation-Id"]) == 22


def test_json_comes_back_with_all_its_digits(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    kafka.write(orders, {"value": b'{"n": 123456789012345678901234567890, "f": 1.10}'})
    instance = sidecar.create(group, "c1")
    instance.subscribe(orders)
    assert '"value":{"n": 123456789012345678901234567890, "f": 1.10}' in instance.get().text


def test_a_record_that_does_not_fit_its_format_is_named_and_can_be_passed(
    reader: Instance, kafka: Kafka, orders: str
) -> None:
    kafka.write(orders, *({"value": value, "partition": 0} for value in (b"good", b"\xff", b"good")))
    assert [record["offset"] for record in reader.read_all(1)] == [0]
    for _ in range(2):
        answer = reader.get()
        assert (answer.status_code, answer.json()["code"]) == (400, "ERR12205")
        assert f"{orders}-0 offset 1 does not fit its format: its value is not UTF-8" in answer.json()["description"]
    assert values(reader.read(format="binary", max_bytes=1)) == ["/w=="]
    assert [record["offset"] for record in reader.read_all(1)] == [2]


def test_a_read_before_a_subscription_is_answered(sidecar: SidecarWorld, group: str) -> None:
    answer = sidecar.create(group, "c1").get()
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12205")


def test_a_topic_that_is_not_there_is_named(sidecar: SidecarWorld, group: str, topic: str) -> None:
    instance = sidecar.create(group, "c1")
    instance.subscribe(topic)

    def refusals() -> list[httpx.Response]:
        return [answer for answer in [instance.get(timeout=200)] if answer.is_error]

    [answer] = wait_until(refusals, "Kafka has said that it is not there")
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12205")
    assert topic in answer.json()["description"]


def test_a_pattern_finds_topics_by_their_whole_name(
    sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    kafka.create(f"{orders}-other")
    kafka.write(orders, {"value": b"1"})
    kafka.write(f"{orders}-other", {"value": b"2"})
    instance = sidecar.create(group, "c1")
    pattern = {"topic_pattern": f"{orders[:-2]}.."}
    assert sidecar.http.post(f"{instance.path}/subscriptions", json=pattern).status_code == 204
    assert values(instance.read_all(1)) == [1]
    assert sidecar.http.get(f"{instance.path}/subscriptions").json() == {"topics": [orders]}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"topics": ["^.*"]}, "/topics/0"),
        ({"topics": ["good", ""]}, "/topics/1"),
        ({"topics": "all"}, "/topics"),
        ({"topic_pattern": "a\0b"}, "/topic_pattern"),
        ({"topic_pattern": "a(b"}, "/topic_pattern"),
        ({"topik": []}, "/topik"),
    ],
)
def test_what_cannot_be_subscribed_is_named(sidecar: SidecarWorld, group: str, body: Json, pointer: str) -> None:
    instance = sidecar.create(group, "c1")
    answer = sidecar.http.post(f"{instance.path}/subscriptions", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")
    assert f"Schema Validation Error - {pointer}: " in answer.json()["description"]
    assert sidecar.http.get(f"{instance.path}/subscriptions").json() == {"topics": []}


def test_unsubscribing_leaves_the_group(reader: Instance, sidecar: SidecarWorld, orders: str, group: str) -> None:
    reader.join(partitions=2)
    assert sidecar.http.delete(f"{reader.path}/subscriptions").status_code == 204
    assert sidecar.http.get(f"{reader.path}/subscriptions").json() == {"topics": []}
    other = sidecar.create(group, "c2", format="string")
    other.subscribe(orders)
    other.join(partitions=2)


def test_an_instance_that_does_not_read_does_not_hold_up_its_group(
    reader: Instance, sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    reader.join(partitions=2)
    other = sidecar.create(group, "c2", format="string")
    other.subscribe(orders)
    other.join(partitions=1)
    kafka.write(orders, {"value": b"0", "partition": 0}, {"value": b"1", "partition": 1})
    assert sorted(values(reader.read_all(1)) + values(other.read_all(1)), key=str) == ["0", "1"]


def test_reads_of_one_instance_follow_each_other(reader: Instance, kafka: Kafka, orders: str) -> None:
    count = 200
    kafka.write(orders, *({"value": str(number).encode(), "partition": 0} for number in range(count)))
    reader.read(max_bytes=1)
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(reader.read, max_bytes=100, timeout=300) for _ in range(6)]
        offsets = [[record["offset"] for record in read.result()] for read in reads]
    seen = [offset for batch in offsets for offset in batch]
    assert sorted(seen) == list(range(1, len(seen) + 1))
    assert all(batch == sorted(batch) for batch in offsets)


def test_records_for_a_backend_that_hung_up_come_again(
    reader: Instance, sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    reader.join(partitions=2)
    hasty = httpx.Timeout(WITHIN_SECONDS, read=0.5)
    with pytest.raises(httpx.ReadTimeout):
        sidecar.http.get(f"{reader.path}/records", params={"timeout": 10_000}, timeout=hasty)
    kafka.write(orders, {"value": b"1", "partition": 0}, {"value": b"2", "partition": 0})
    wait_until(lambda: value_of(metrics.open_requests) == 0, "the read that nobody waits for has ended")
    reader.commit()
    assert kafka.committed(group, orders, 0) < 1
    assert values(reader.read_all(2)) == ["1", "2"]
    reader.commit()
    assert kafka.committed(group, orders, 0) == 2


def test_deleting_answers_a_read_that_waits(reader: Instance) -> None:
    reader.join(partitions=2)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(reader.get)
        wait_until(lambda: value_of(metrics.open_requests), "the read is there")
        assert reader.delete().status_code == 204
        assert read.result().status_code in (200, 404)


def test_an_instance_that_nobody_uses_is_closed(kafka: Kafka, group: str) -> None:
    with started(kafka.bootstrap, instance_timeout_ms=300) as sidecar:
        sidecar.create(group, "c1")
        wait_until(lambda: value_of(metrics.instances) == 0, "the instance is closed")
        assert sidecar.http.get(f"/consumers/{group}/instances/c1/assignments").json()["code"] == "ERR12200"


def test_there_is_a_bound_on_instances(kafka: Kafka, group: str) -> None:
    with started(kafka.bootstrap, max_instances=1) as sidecar:
        first = sidecar.create(group, "c1")
        answer = sidecar.http.post(f"/consumers/{group}", json={"name": "c2"})
        assert (answer.status_code, answer.json()["code"]) == (429, "ERR12902")
        first.delete()
        sidecar.create(group, "c2")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "c1"}, "ERR12202"),
        ({"name": "c2", "autoOffsetReset": "sometimes"}, "ERR12201"),
        ({"name": "c2", "valueFormat": "AVRO"}, "ERR12203"),
        ({"name": "c2", "format": 4}, "ERR12203"),
        ({"name": "c2", "valueFormat": "XML"}, "ERR11004"),
        ({"name": "c2", "bogus": 1}, "ERR11004"),
        ({"name": "a/b"}, "ERR11004"),
        ({"name": "c2", "responseMinBytes": -2}, "ERR11004"),
        ({"name": "c2", "requestWaitMs": 10_000_000}, "ERR11004"),
    ],
)
def test_instances_that_cannot_be(sidecar: SidecarWorld, group: str, body: Json, code: str) -> None:
    sidecar.create(group, "c1")
    answer = sidecar.http.post(f"/consumers/{group}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_names_are_made_up_if_none_is_given(sidecar: SidecarWorld, group: str) -> None:
    name = sidecar.http.post(f"/consumers/{group}", json={}).json()["instance_id"]
    assert name.startswith("rest-consumer-sidecar-test-")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"timeout": "abc"}, "/timeout: string found, integer expected"),
        ({"timeout": -1}, "/timeout: must have a minimum value of 0"),
        ({"format": "xml"}, "/format: does not have a value in the enumeration"),
    ],
)
def test_wrong_queries_are_named(reader: Instance, query: dict[str, object], text: str) -> None:
    answer = reader.get(**query)
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")
    assert text in answer.json()["description"]


def test_every_call_on_an_unknown_instance_is_not_found(sidecar: SidecarWorld, group: str) -> None:
    path = f"/consumers/{group}/instances/nope"
    calls: list[tuple[str, str, Json | None]] = [
        ("DELETE", "", None),
        ("POST", "/subscriptions", {}),
        ("GET", "/subscriptions", None),
        ("DELETE", "/subscriptions", None),
        ("POST", "/assignments", {"partitions": []}),
        ("GET", "/assignments", None),
        ("GET", "/records", None),
        ("POST", "/acknowledgements", {}),
        ("POST", "/positions", {}),
        ("POST", "/positions/first", {}),
        ("POST", "/positions/last", {}),
        ("POST", "/offsets", None),
        ("PUT", "/offsets", {"partitions": []}),
    ]
    for method, end, body in calls:
        answer = sidecar.http.request(method, path + end, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "ERR12200"), (method, end)
        assert answer.json()["description"] == f"Consumer instance not found for group {group} and instance nope"
